"""Whole vLLM engines on two nodes."""

from __future__ import annotations

import unittest

from harness.whole_engine import bench_rows, problems


class WholeEngine(unittest.TestCase):
    def test_answers_from_every_tier_are_the_computed_ones(self) -> None:
        found = problems(bench_rows("vllm"), ("vLLM's fs tier", "own node", "other node", "own node's disk"))
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
