"""The vLLM tier on real nodes, driven as vLLM's tiering manager does: shared pages, jobs of every kind, random work."""

from __future__ import annotations

import os
import random
import time
import unittest
from typing import Any

import sglang_node
import vllm_support as support
from sglang_node import Node
from support import wait_for
from vllm_manager import Engine

from meshcache import NotAvailable

TIMEOUT_SECONDS = 20.0


class Engines(unittest.TestCase):
    """Makes engines that end with the test, with nothing lost, late or wrong."""

    def engine(self, node: Node, *, params: dict[str, Any] | None = None, **options: Any) -> Engine:
        own = {"client_socket": node.client_socket, "tag": self.id(), "timeout": TIMEOUT_SECONDS}
        engine = Engine({**own, **(params or {})}, **options)

        def end() -> None:
            engine.close()
            self.assertEqual(engine.manager.errors, [])

        self.addCleanup(end)
        return engine

    def stored(self, engine: Engine, keys: list[bytes]) -> None:
        """Stores chunks, again where a busy machine let a deadline pass."""

        def is_stored() -> bool:
            engine.manager.evict()
            engine.run(keys)
            engine.manager.evict()
            return engine.run(keys) == [len(keys)]

        wait_for("chunks are stored and found", is_stored)

    def found(self, engine: Engine, keys: list[bytes], count: int | None = None) -> None:
        """Chunks are loaded, not one of them from the engine's own pool."""

        def is_found() -> bool:
            engine.manager.evict()
            return engine.run(keys) == [len(keys) if count is None else count]

        wait_for("chunks are found", is_found)


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class NodesTest(Engines):
    nodes: list[Node] = []

    @classmethod
    def setUpClass(cls) -> None:
        first = Node()
        cls.nodes = [first, Node(first.discovery)]

    @classmethod
    def tearDownClass(cls) -> None:
        for node in cls.nodes:
            node.remove()

    def test_two_engines_on_two_nodes_share_chunks(self) -> None:
        for name in support.GENERATIONS:
            for mode, shared, way in [
                ("auto", True, "direct"),
                ("auto", False, None),
                ("staged", True, None),
                ("bytes", True, "bytes"),
            ]:
                with self.subTest(name=name, mode=mode, shared=shared):
                    params = {"mode": mode, "tag": f"{self.id()} {name} {mode} {shared}"}
                    one, other = (
                        self.engine(node, params=params, name=name, shared=shared, slots=400) for node in self.nodes
                    )
                    self.assertEqual(one.manager.tier._sharing.mode, way or sglang_node.copied_way())
                    keys = support.chunk_keys(f"{name} {mode}", 300, group=3)
                    self.stored(one, keys)
                    self.found(other, keys)
                    self.assertGreaterEqual(other.manager.loaded, len(keys))
                    # What was not stored ends the prefix.
                    self.found(other, [*keys[:50], *support.chunk_keys("unknown", 3)], 50)

    def test_the_lookup_of_each_request_counts_once(self) -> None:
        """However many requests share a question to the node, and whether or not the answer was known: the figures are those of the engine."""
        engine = self.engine(self.nodes[0], slots=700)
        keys, others = support.chunk_keys("counted", 300), support.chunk_keys("also counted", 300)
        client = engine.manager.tier._sharing._client
        asked = found = 0

        def run(*prompts: list[bytes]) -> list[int]:
            nonlocal asked, found
            engine.manager.evict()
            hits = engine.run(*prompts)
            asked, found = asked + sum(map(len, prompts)), found + sum(hits)
            return hits

        wait_for("chunks are stored and found", lambda: run(keys[:270]) == [270])
        # Two at once, then again while the answers are known, also those about chunks behind which nothing is asked for.
        wait_for("some chunks are found", lambda: run(keys, others)[0] >= 270)
        run(keys, others)
        for _ in range(2):
            run(support.chunk_keys("counted", 200) + support.chunk_keys("nowhere", 20))
            run(support.chunk_keys("elsewhere", 30))
        wait_for("all lookups are counted", lambda: client.stats()["lookups"] >= asked)
        stats = client.stats()
        told = stats["node"]["client"]
        self.assertEqual((stats["lookups"], stats["found"]), (asked, found))
        self.assertEqual((told["lookups"], told["found"]), (asked, found))

    def test_chunks_of_megabytes(self) -> None:
        one, other = (self.engine(node, slots=8, slot_bytes=3 << 20) for node in self.nodes)
        keys = support.chunk_keys("large", 6)
        self.stored(one, keys)
        self.found(other, keys)

    def test_engines_of_other_specifications_share_nothing(self) -> None:
        one = self.engine(self.nodes[0])
        other = self.engine(self.nodes[0], spec=support.newer_spec(tp_size=2, world_size=2))
        keys = support.chunk_keys("apart", 5)
        self.stored(one, keys)
        self.assertEqual(other.run(keys), [0])

    def test_keys_that_differ_in_any_byte_are_other_keys(self) -> None:
        engine = self.engine(self.nodes[0])
        keys = [bytes(range(256)), bytes(36), b"\xff" * 36, b"ab", b"AB", b"61", b"a", b"\x00"]
        for key in keys:
            self.assertEqual(engine.run([key]), [0])
        engine.settle()
        for key in keys:
            self.found(engine, [key])

    def test_drained_jobs_touch_nothing(self) -> None:
        engine = self.engine(self.nodes[0], slots=64, slot_bytes=64 << 10)
        keys = support.chunk_keys("drained", 60)
        self.stored(engine, keys)
        for _ in range(5):
            engine.manager.evict()
            engine.begin(keys)
            while not engine.manager.has_jobs:
                engine.step()
            engine.manager.reset_cache()
        self.assertEqual(engine.manager.tier.get_finished_jobs(), [])
        self.assertFalse(engine.manager.tier.has_pending_work())
        engine.settle()

    def test_closed_with_jobs_under_way(self) -> None:
        for mode in ("auto", "staged", "bytes"):
            engine = self.engine(self.nodes[0], params={"mode": mode}, slots=64, slot_bytes=64 << 10)
            keys = support.chunk_keys("closed", 60)
            self.stored(engine, keys)
            engine.manager.evict()
            engine.begin(keys)
            while not engine.manager.has_jobs:
                engine.step()
            # The shutdown releases the memory: an export that is left would raise.
            engine.close()
            tier, context = engine.manager.tier, engine.manager.names.base.ReqContext("late")
            self.assertIs(tier.lookup(keys[0], context), engine.manager.names.miss)
            tier.submit_load(engine.manager.names.job(10**6, keys, range(60), True, context))
            self.assertEqual([result.success for result in tier.get_finished_jobs()], [False])
            self.assertEqual(list(tier.get_finished_jobs()), [])

    def test_jobs_of_every_shape_have_one_result(self) -> None:
        for name in support.GENERATIONS:
            engine = self.engine(self.nodes[0], name=name, params={"tag": f"{self.id()} {name}"})
            manager, names = engine.manager, engine.manager.names
            keys = support.chunk_keys("shapes", 6)
            self.stored(engine, keys[:3])
            manager.evict()
            # The slots are this test's own from here on.
            slots = [manager.primary.take(b"own" + bytes([number])) for number in range(6)]
            context = names.base.ReqContext("shapes")
            cases: list[tuple[Any, Any, list[bytes] | None]] = [
                (keys[:3], slots[:3], None),
                (tuple(keys[:2]), tuple(slots[:2]), None),
                (dict.fromkeys(keys[:2]).keys(), iter(slots[:2]), None),
                ([], [], None),
                (keys, slots, keys[:3]),
                (keys[3:], slots[3:], []),
                (keys[:3], slots[:2], []),
                (keys[:2], slots[:3], []),
                (keys[:2], [slots[0], slots[0]], []),
                (keys[:1], [10**9], []),
                (keys[:1], [-1], []),
                (keys[:1], [None], []),
                (keys[:1], None, []),
            ]
            for job_id, (some, where, _) in enumerate(cases):
                manager.tier.submit_load(names.job(job_id, some, where, True, context))
            manager.tier.submit_store(names.job(100, keys[:1], [10**9], False, context))
            manager.tier.drain_jobs()
            finished = manager.tier.get_finished_jobs if name == support.NEWER else manager.tier.get_finished
            results = {result.job_id: result for result in finished()}
            self.assertEqual(set(results), {*range(len(cases)), 100})
            self.assertFalse(results[100].success)
            for job_id, (_, _, moved) in enumerate(cases):
                self.assertEqual(results[job_id].success, moved is None, f"job {job_id}")
                if name == support.NEWER:
                    self.assertEqual(list(results[job_id].successful_keys or ()), moved or [], f"job {job_id}")
                    self.assertGreaterEqual(results[job_id].transfer_time, 0)
            for key, slot in zip(keys[:3], slots):
                assert slot is not None
                self.assertEqual(manager.primary.read(slot), support.content(key, manager.primary.slot_bytes))

    def test_a_thousand_random_jobs(self) -> None:
        seed = int(os.environ.get("MESHCACHE_TEST_SEED", random.randrange(1 << 32)))
        print(f"vLLM tier, random jobs: MESHCACHE_TEST_SEED={seed}")
        chance = random.Random(seed)
        names = [chance.choice(support.GENERATIONS) for _ in range(3)]
        modes = [chance.choice(["auto", "staged", "bytes"]) for _ in range(3)]
        engines = [
            self.engine(
                self.nodes[number % 2],
                # Specifications of two generations never share: the tag alone does not make them.
                params={"mode": modes[number], "tag": str(seed)},
                name=names[number],
                shared=chance.random() < 0.7,
                # Room for the requests of one engine at a time, as vLLM has it.
                slots=chance.randint(130, 200),
            )
            for number in range(3)
        ]
        conversations = [support.chunk_keys(f"{seed} {number}", 40) for number in range(12)]
        # The plain model: what a generation's engines have ever computed. Nothing else may be found.
        computed: dict[str, set[bytes]] = {name: set() for name in support.GENERATIONS}
        jobs = 0
        until = time.monotonic() + 300
        while jobs < 1000 and time.monotonic() < until:
            number = chance.randrange(3)
            engine, known = engines[number], computed[names[number]]
            action = chance.random()
            if action < 0.04:
                engine.manager.evict()
            elif action < 0.06:
                engine.manager.reset_cache()
            elif not engine.requests or (action < 0.5 and len(engine.requests) < 3):
                keys = chance.choice(conversations)[: chance.randint(1, 40)]
                engine.begin(keys)
            else:
                before = list(engine.requests)
                engine.step()
                for request in before:
                    if request.is_done:
                        self.assertLessEqual(set(request.keys[: request.hits]), known, f"seed {seed}")
                        known.update(request.keys)
            jobs = sum(engine.manager.jobs for engine in engines)
        for engine in engines:
            engine.settle()
        self.assertGreaterEqual(jobs, 1000, f"seed {seed}")
        self.assertGreater(sum(engine.manager.loaded for engine in engines), 0, f"seed {seed}")


class AbsentTest(Engines):
    def test_a_node_that_is_not_there_at_the_start(self) -> None:
        missing = sglang_node.missing()
        if missing is not None:
            self.skipTest(missing)
        node = Node()
        self.addCleanup(node.remove)
        node.kill()
        with self.assertRaises(NotAvailable):
            self.engine(node, params={"required": True})
        with self.assertLogs("vllm.meshcache", "WARNING") as logs:
            engine = self.engine(node)
            keys = support.chunk_keys("absent", 20)
            self.assertEqual(engine.run(keys[:10], keys[10:]), [0, 0])
        self.assertEqual([line for line in logs.output if "no node at" in line], logs.output[:1])
        self.assertEqual(len(logs.output), 1, logs.output)
        node.start()
        self.stored(engine, support.chunk_keys("present", 20))


if __name__ == "__main__":
    unittest.main()
