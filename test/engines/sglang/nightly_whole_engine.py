"""Whole SGLang engines on two nodes."""

from __future__ import annotations

import os
import unittest

from harness.whole_engine import bench_rows, problems


@unittest.skipIf(
    os.environ.get("MESHCACHE_ENGINE_ENVIRONMENT") == "sglang-0.5.12.post1",
    "a whole SGLang 0.5.12 needs a GPU: its allocator of pages is a Triton kernel",
)
class WholeEngine(unittest.TestCase):
    def test_answers_from_every_backend_are_the_computed_ones(self) -> None:
        found = problems(bench_rows("sglang"), ("SGLang's file backend", "own node", "other node"))
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
