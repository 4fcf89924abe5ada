"""Whole SGLang engines whose weights change in place, many prompts before and after."""

from __future__ import annotations

import shutil
import tempfile
import unittest

import lab
from harness.changing_weights import ChangingWeights
from harness.nodes import Cluster
from test_whole import MODEL, Engine, other_weights


@unittest.skipIf(lab.HAS_HIRADIX, "SGLang 0.5.12 needs kernels of its own to run a model on the CPU")
class SglangWeights(ChangingWeights):
    def test_answers_are_those_of_the_weights(self) -> None:
        tag = lab.new_tag()
        folder = tempfile.mkdtemp(prefix="meshcache-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        other_weights(folder)
        with Cluster(2, pool="1gb") as cluster:
            one, other, plain = (
                # An idle scheduler that polls would take the processor from the engine that is asked.
                Engine(socket, tag, sleep_on_idle=True)
                for socket in (*(node.client_socket for node in cluster.nodes), None)
            )
            engines = (one, other, plain)
            # They live to the end: a shutdown ends all children of this process, the nodes among them.
            for engine in engines:
                self.addCleanup(engine.engine.shutdown)
            cached, computed = [one.answer, other.answer], plain.answer
            self.ask_part("as loaded", cached, computed)
            for state, weights, version in (
                ("changed, and the engines were told no version", folder, None),
                ("changed back, and the engines were told a version", MODEL, "v3"),
                ("changed, and the engines were told a version", folder, "v4"),
            ):
                for engine in engines:
                    engine.update(weights, version)
                self.ask_part(state, cached, computed)


del ChangingWeights

if __name__ == "__main__":
    unittest.main()
