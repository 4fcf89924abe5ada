"""The vLLM tier while its node is killed, frozen, and started anew: no job is lost, nothing is written late, no request waits for ever."""

from __future__ import annotations

import random
import time
import unittest

import sglang_node
import vllm_support as support
from sglang_node import Node
from support import wait_for
from test_vllm_nodes import Engines
from vllm_manager import Engine

#: A job may end so much later than its deadline on a busy machine.
GRACE_SECONDS = 20.0

SLOT_BYTES = 64 << 10
REQUESTS = 8
CHUNKS = 24


def prompts(name: str) -> list[list[bytes]]:
    return [support.chunk_keys(f"{name} {number}", CHUNKS) for number in range(REQUESTS)]


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class FaultsTest(Engines):
    def pair(self, **options: object) -> tuple[Node, Engine]:
        """A node that joins another one, which lives on, and an engine."""
        first = Node()
        self.addCleanup(first.remove)
        node = Node(first.discovery)
        self.addCleanup(node.remove)
        params = {"timeout": 2.0, **options.pop("params", {})}  # type: ignore[dict-item]
        size = {"slots": 2 * REQUESTS * CHUNKS, "slot_bytes": SLOT_BYTES}
        return node, self.engine(node, params=params, **{**size, **options})

    def load(self, engine: Engine, name: str) -> None:
        """Stores prompts, and begins to load them: jobs are submitted, and none of their results were fetched."""
        for keys in prompts(name):
            self.stored(engine, keys)

        def is_loading() -> bool:
            # Answers of lookups are believed for a while, so that a busy machine may need several turns.
            engine.settle()
            engine.manager.evict()
            for keys in prompts(name):
                engine.begin(keys)
            while engine.requests and not engine.manager.has_jobs:
                engine.step()
            return engine.manager.has_jobs

        wait_for("jobs are under way", is_loading)

    def serves(self, engine: Engine) -> None:
        """Chunks are stored and found again; new ones each time, as those of a node that was lost are known for a while."""
        attempt = 0

        def is_served() -> bool:
            nonlocal attempt
            attempt += 1
            keys = support.chunk_keys(f"{self.id()} {attempt}", CHUNKS)
            engine.run(keys)
            engine.manager.evict()
            return engine.run(keys) == [CHUNKS]

        wait_for("the engine is served again", is_served)

    def settled(self, engine: Engine, timeout: float = 2.0) -> None:
        engine.settle(120.0)
        self.assertLess(engine.manager.longest_job, timeout + GRACE_SECONDS)
        self.assertEqual(engine.manager.errors, [])

    def test_killed_amid_jobs_and_started_anew(self) -> None:
        for name in support.GENERATIONS:
            with self.subTest(name=name):
                node, engine = self.pair(name=name)
                self.load(engine, "killed")
                node.kill()
                self.settled(engine)
                keys = support.chunk_keys("while it is away", 5)
                self.assertEqual(engine.run(keys), [0])
                node.start()
                self.serves(engine)
                self.settled(engine)
                self.assertTrue(engine.manager.tier._sharing._client.stats()["reconnects"] > 0)

    def test_frozen_amid_jobs_it_is_ended_before_memory_is_used_again(self) -> None:
        node, engine = self.pair()
        self.assertEqual(engine.manager.tier._sharing.mode, "direct")
        self.load(engine, "frozen")
        node.freeze()
        self.settled(engine)
        failed = engine.manager.load_failures
        node.thaw()
        wait_for("the client has ended the node, or all loads had been done", lambda: node.has_ended() or failed == 0)
        engine.manager.primary.check()
        # Each key was asked for, and failed, once: a load that failed is a miss next.
        self.assertLessEqual(failed, REQUESTS * CHUNKS)
        if node.has_ended():
            node.kill()
            node.start()
        self.serves(engine)
        self.settled(engine)

    def test_frozen_before_jobs_are_submitted(self) -> None:
        """All lookups have answers, all loads meet a node that is frozen."""
        for mode in ("auto", "staged"):
            with self.subTest(mode=mode):
                node, engine = self.pair(params={"mode": mode})
                manager = engine.manager
                keys = prompts("hits")[0]
                self.stored(engine, keys)
                manager.evict()
                context = manager.context("by hand")

                def has_hits() -> bool:
                    for key in keys:
                        manager.lookup(key, context)
                    manager.process()
                    return len(manager._pending.get("by hand", ([],))[0]) == len(keys)

                wait_for("all keys are found", has_hits)
                node.freeze()
                manager.end_step()
                self.assertTrue(manager.has_jobs)
                wait_for("the job has its result", lambda: manager.process() or not manager.has_jobs)
                self.assertEqual(manager.load_failures, CHUNKS)
                # The slots are used for something else now, and those of stores that have failed after that.
                others = support.chunk_keys("others", 2 * CHUNKS)
                self.assertEqual(engine.run(others), [0])
                manager.evict()
                node.thaw()
                self.settled(engine)
                manager.primary.check()
                # If any of these are found, they have what was in their slots before.
                engine.run(others)
                if mode == "auto":
                    wait_for("the client has ended the node", node.has_ended)
                    node.kill()
                    node.start()
                else:
                    self.assertFalse(node.has_ended(), "staged pages need no end of the node")
                self.serves(engine)
                manager.primary.check()

    def test_frozen_and_thawed_in_time(self) -> None:
        node, engine = self.pair(params={"timeout": 30.0})
        for round_ in range(3):
            self.load(engine, "thawed")
            node.freeze()
            for _ in range(10):
                engine.step()
            node.thaw()
            self.settled(engine, 30.0)
        self.assertFalse(node.has_ended())
        self.serves(engine)

    def test_drained_while_the_node_is_frozen(self) -> None:
        node, engine = self.pair()
        self.load(engine, "drained")
        node.freeze()
        engine.manager.reset_cache()
        self.assertFalse(engine.manager.has_jobs)
        engine.manager.primary.check()
        node.thaw()
        self.settled(engine)

    def test_shut_down_while_the_node_is_frozen(self) -> None:
        for mode in ("auto", "staged", "bytes"):
            with self.subTest(mode=mode):
                node, engine = self.pair(params={"mode": mode})
                self.load(engine, "shut down")
                node.freeze()
                began = time.monotonic()
                engine.close()
                self.assertLess(time.monotonic() - began, 10.0 + GRACE_SECONDS)
                node.thaw()

    def test_killed_and_frozen_at_random(self) -> None:
        seed = random.randrange(1 << 32)
        print(f"vLLM tier, random faults: seed {seed}")
        chance = random.Random(seed)
        node, engine = self.pair(
            params={"mode": chance.choice(["auto", "staged", "bytes"])}, shared=chance.random() < 0.7
        )
        for _ in range(6):
            for keys in chance.sample(prompts("random"), 4):
                engine.begin(keys[: chance.randint(1, CHUNKS)])
            for _ in range(chance.randint(1, 30)):
                engine.step()
            fault = chance.choice(["kill", "freeze", "both", "none"])
            if fault in ("freeze", "both"):
                node.freeze()
            if fault in ("kill", "both"):
                node.kill()
            for _ in range(chance.randint(1, 30)):
                engine.step()
            if fault != "none" and chance.random() < 0.5:
                self.settled(engine)
            node.thaw()
            if fault in ("kill", "both") or node.has_ended():
                node.kill()
                node.start()
            if chance.random() < 0.5:
                engine.manager.evict()
        self.settled(engine)
        # It may have been frozen for longer than the client bears.
        if node.has_ended():
            node.kill()
            node.start()
        self.serves(engine)
        engine.manager.primary.check()


if __name__ == "__main__":
    unittest.main()
