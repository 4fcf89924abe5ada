"""Whole SGLang engines on two nodes."""

from __future__ import annotations

import unittest

from harness.whole_engine import bench_rows, problems


class WholeEngine(unittest.TestCase):
    def test_answers_from_every_backend_are_the_computed_ones(self) -> None:
        found = problems(bench_rows("sglang"), ("SGLang's file backend", "own node", "other node"))
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
