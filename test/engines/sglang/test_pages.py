"""SGLang's own trees and controllers with meshcache behind them: what one engine computes another one restores, byte by byte, while nodes die."""

from __future__ import annotations

import random
import unittest
from typing import Any

import lab
from harness.nodes import Cluster, wait_for

#: Prompts of the soak, and how many of its nodes die meanwhile.
PROMPTS = 24
KILLS = 2


class PagesTest(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(2)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cluster.close()

    def setUp(self) -> None:
        self.tag = lab.new_tag()

    def engine(self, node: int, **spec: Any) -> lab.Engine:
        engine = lab.Engine(self.cluster.nodes[node].client_socket, self.tag, **spec)
        self.addCleanup(engine.close)
        return engine

    def test_what_one_engine_computes_another_one_restores(self) -> None:
        kinds: list[dict[str, Any]] = [{}, {"kind": "mla"}, {"layout": "layer_first"}]
        for spec in kinds:
            with self.subTest(spec):
                self.tag = lab.new_tag()
                one, other = self.engine(0, **spec), self.engine(1, **spec)
                for seed in (1, 2):
                    one.compute(seed, 4)
                    tokens = 4 * one.page
                    wait_for("all pages are read", lambda: other.restore(seed, 4) == tokens)
                self.assertEqual(other.restore(3, 4), 0)

    def test_a_flush_keeps_nothing_that_may_be_of_other_weights(self) -> None:
        one, other = self.engine(0), self.engine(1)
        one.compute(1, 4)
        one.flush()
        one.attach_again()
        self.assertEqual(one.restore(1, 4), 0)
        one.compute(1, 4, salt=100)
        wait_for("pages from before, of the former weights", lambda: other.restore(1, 4) == 4 * other.page)
        for engine in (one, other):
            engine.flush()
            engine.storage.set_fingerprint("v2")
            engine.attach_again()
            self.assertEqual(engine.restore(1, 4), 0)
        one.compute(1, 4, salt=200)
        wait_for("pages of the told weights", lambda: other.restore(1, 4, salt=200) == 4 * other.page)

    def test_a_statement_keeps_the_pages(self) -> None:
        engine = self.engine(0, extra={"on_reset": "same_weights"})
        engine.compute(1, 4)
        engine.flush()
        wait_for("pages are read again", lambda: engine.restore(1, 4) == 4 * engine.page)

    def test_nodes_that_die(self) -> None:
        """Nothing is lost but pages: every prompt is right, whatever of it was there."""
        chance = random.Random(7)
        engines = [self.engine(0, pages=256), self.engine(1, pages=256)]
        kills = set(chance.sample(range(2, PROMPTS), KILLS))
        for number in range(PROMPTS):
            if number in kills:
                node = chance.choice(self.cluster.nodes)
                node.kill()
                node.start()
            writer, reader = chance.sample(engines, 2)
            pages = chance.randrange(1, 8)
            writer.compute(number, pages)
            self.assertIn(reader.restore(number, pages), range(0, pages * reader.page + 1, reader.page))
        seed = PROMPTS

        def is_back() -> bool:
            nonlocal seed
            seed += 1
            engines[0].compute(seed, 2)
            return engines[1].restore(seed, 2) == 2 * engines[1].page

        wait_for("pages are shared again", is_back)
        for engine in engines:
            names = ("prefetch_thread", "prefetch_io_aux_thread", "backup_thread")
            threads = [getattr(engine.controller, name) for name in names if hasattr(engine.controller, name)]
            self.assertTrue(all(thread.is_alive() for thread in threads))


if __name__ == "__main__":
    unittest.main()
