"""The SGLang backend on real nodes, driven by the calls of SGLang's controller threads."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable
from typing import Any

import sglang_node
import sglang_support as support
from sglang_controller import BATCH, Engine
from sglang_node import Node

from meshcache.sglang import MeshCacheStorage

#: Until something that must happen has happened, however busy the machine is.
PATIENCE_SECONDS = 60.0

TIMEOUT_SECONDS = 5.0

#: A call may end so much later than its deadline: the fence, and a busy machine.
GRACE_SECONDS = 20.0


def eventually(check: Callable[[], Any]) -> Any:
    """Waits until a check gives something true, and gives that."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = check()
        if found or time.monotonic() > end:
            return found
        time.sleep(0.05)


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class NodesTest(unittest.TestCase):
    nodes: list[Node] = []

    @classmethod
    def setUpClass(cls) -> None:
        first = Node()
        cls.nodes = [first]
        cls.nodes.append(Node(first.discovery))

    @classmethod
    def tearDownClass(cls) -> None:
        for node in cls.nodes:
            node.remove()

    def engine(self, node: Node, *, pages: int = 512, extra: Any = None, **options: Any) -> Engine:
        configuration = {
            "client_socket": node.client_socket,
            "tag": self.id(),
            "timeout": TIMEOUT_SECONDS,
            **(extra or {}),
        }
        engine = Engine(configuration, pages=pages, **options)
        self.addCleanup(engine.detach)
        return engine

    def finish(self, *engines: Engine) -> None:
        for engine in engines:
            self.assertEqual(engine.errors, [])
            self.assertLess(engine.longest_seconds, TIMEOUT_SECONDS + GRACE_SECONDS)

    def stored(self, engine: Engine, keys: list[str]) -> None:
        """Stores pages, again where a busy machine let a deadline pass."""
        self.assertTrue(eventually(lambda: engine.store(keys).get() == len(keys)), "pages cannot be stored")

    def readable(self, engine: Engine, keys: list[str]) -> None:
        self.assertTrue(eventually(lambda: engine.ask(keys).get() == len(keys)), "pages are not found")
        self.assertTrue(eventually(lambda: engine.read(keys).get() == len(keys)), "pages cannot be read")

    def test_two_engines_on_two_nodes_share_pages(self) -> None:
        for mode, shared in [("auto", True), ("auto", False), ("staged", True), ("bytes", True)]:
            with self.subTest(mode=mode, shared=shared):
                one, other = (self.engine(node, extra={"mode": mode}, shared=shared) for node in self.nodes)
                keys = support.page_keys(f"{mode} {shared}", 2 * BATCH + 7)
                self.stored(one, keys)
                self.readable(other, keys)
                self.readable(one, keys)
                self.assertEqual(one.backend.get_stats().backup_pgs[-1], 7)
                self.finish(one, other)

    def test_a_lookup_counts_what_all_pools_can_restore(self) -> None:
        engine = self.engine(self.nodes[0])
        keys = support.page_keys("counted", 40)
        self.stored(engine, keys[:30])
        self.readable(engine, keys[:30])
        client = engine.backend._client
        assert client is not None
        before = client.stats()
        # The states are kept at the end of what was stored, so that nothing can be restored up to page 20.
        hits = [
            engine.backend.batch_exists_v2(asked, engine._placeholders(asked)).kv_hit_pages
            for asked in (keys, keys[:20])
        ]
        self.assertEqual(hits, [30, 0])
        after = client.stats()
        self.assertEqual([after[name] - before[name] for name in ("lookups", "found")], [60, 30])
        told = after["node"]["client"]
        self.assertEqual([told["lookups"], told["found"]], [after["lookups"], after["found"]])

    def test_other_configurations_never_share(self) -> None:
        one, keys = self.engine(self.nodes[0]), support.page_keys("apart", 20)
        self.stored(one, keys)
        others: list[dict[str, Any]] = [
            {"model_name": "other"},
            {"tp_size": 2},
            {"pp_size": 2},
            {"attn_cp_size": 2},
            {"extra": {"tag": "other"}},
            {"half": 512},
        ]
        for other in others:
            engine = self.engine(self.nodes[0], **other)
            self.assertEqual((engine.ask(keys).get(), engine.read(keys).get()), (0, 0), str(other))
            self.finish(engine)
        self.readable(one, keys)
        self.finish(one)

    def test_three_threads_at_once(self) -> None:
        """Each thread has work at any time: pages are stored while others are asked for and read."""
        engine = self.engine(self.nodes[0])
        prompts = [support.page_keys(f"prompt {number}", BATCH + number) for number in range(8)]
        self.stored(engine, prompts[0])
        work = []
        for before, now in zip(prompts, prompts[1:]):
            work += [engine.store(now), engine.ask(before), engine.read(before), engine.ask(now), engine.read(now)]
        for answer in work:
            self.assertIsNotNone(answer.get())
        for keys in prompts:
            self.stored(engine, keys)
            self.readable(engine, keys)
        self.finish(engine)

    def test_thousands_of_keys_in_one_question(self) -> None:
        engine, keys = self.engine(self.nodes[0], pages=512), support.page_keys("many", 4096)
        self.stored(engine, keys[:500])
        self.assertTrue(eventually(lambda: engine.ask(keys).get() == 500))
        self.finish(engine)

    def test_a_frozen_node_is_waited_for_once(self) -> None:
        node = Node()
        self.addCleanup(node.remove)
        engine, keys = self.engine(node, extra={"mode": "staged"}), support.page_keys("frozen once", 5)
        self.stored(engine, keys)
        backend = engine.backend
        client = backend._client
        assert client is not None
        node.freeze()
        try:
            with self.assertLogs("meshcache.sglang", "WARNING") as log:
                self.assertEqual(backend.batch_exists(keys), 0)
            self.assertIn("lookup: the node has not answered in time", "".join(log.output))
            waited = client._counters.read()["timeouts"]
            for _ in range(100):
                self.assertEqual(backend.batch_exists(keys), 0)
                self.assertEqual(backend.batch_exists_v2(keys).kv_hit_pages, 0)
                self.assertEqual(backend.batch_get_v1(keys, engine.kv.indices(range(5))), [False] * 5)
            # Only the question whether the node answers again may have been in vain meanwhile.
            self.assertLess(client._counters.read()["timeouts"] - waited, 100)
        finally:
            node.thaw()
        self.readable(engine, keys)
        self.finish(engine)

    def test_clear_while_it_is_used(self) -> None:
        engine, keys = self.engine(self.nodes[0]), support.page_keys("clear", BATCH)
        self.stored(engine, keys)
        answers = [engine.read(keys), engine.ask(keys)]
        self.assertTrue(eventually(engine.backend.clear))
        for answer in answers:
            self.assertIsNotNone(answer.get())
        self.assertTrue(eventually(lambda: engine.ask(keys).get() == 0))
        self.assertEqual(engine.read(keys).get(), 0)
        self.stored(engine, keys)
        self.readable(engine, keys)
        self.finish(engine)

    def test_detach_and_attach_at_run_time(self) -> None:
        engine, keys = self.engine(self.nodes[0]), support.page_keys("detach", BATCH)
        self.stored(engine, keys)
        for _ in range(3):
            backend = engine.backend
            engine.detach()
            self.assertEqual(backend.batch_get_v1(keys, engine.kv.indices(range(BATCH))), [False] * BATCH)
            engine.attach()
            self.readable(engine, keys)
        self.finish(engine)

    def test_closed_while_it_is_used(self) -> None:
        engine, keys = self.engine(self.nodes[0]), support.page_keys("close", BATCH)
        self.stored(engine, keys)
        answers = [engine.read(keys), engine.ask(keys), engine.store(keys)]
        engine.backend.close()
        for answer in answers:
            self.assertIsNotNone(answer.get())
        self.finish(engine)


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class FaultsTest(unittest.TestCase):
    def test_a_node_that_is_not_there_at_the_start_then_killed_then_back(self) -> None:
        first = Node()
        self.addCleanup(first.remove)
        node = Node(first.discovery)
        self.addCleanup(node.remove)
        node.kill()
        engine = Engine({"client_socket": node.client_socket, "timeout": TIMEOUT_SECONDS}, pages=256)
        self.addCleanup(engine.detach)
        keys = support.page_keys("fault", BATCH + 5)
        self.assertEqual((engine.ask(keys).get(), engine.read(keys).get(), engine.store(keys).get()), (0, 0, 0))
        for _ in range(2):
            node.start()
            # Until the cluster has noticed the crash, pages of the node that was lost count as stored already.
            self.assertTrue(eventually(lambda: self.serves(engine, keys)), "no service after the start")
            answers = [engine.read(keys), engine.store(keys), engine.ask(keys), engine.read(keys)]
            node.kill()
            for answer in answers:
                self.assertIsNotNone(answer.get())
            self.assertEqual((engine.ask(keys).get(), engine.read(keys).get()), (0, 0))
        self.assertEqual(engine.errors, [])
        self.assertLess(engine.longest_seconds, TIMEOUT_SECONDS + GRACE_SECONDS)

    @staticmethod
    def serves(engine: Engine, keys: list[str]) -> bool:
        return bool(engine.store(keys).get() == engine.ask(keys).get() == engine.read(keys).get() == len(keys))

    def test_a_frozen_node_writes_nothing_late(self) -> None:
        """Slots are used again as soon as a read has returned, while the node is frozen, and after that."""
        node = Node()
        self.addCleanup(node.remove)
        engine = Engine({"client_socket": node.client_socket, "timeout": 1}, pages=256)
        self.addCleanup(engine.detach)
        keys = support.page_keys("frozen", BATCH)
        self.assertTrue(eventually(lambda: self.serves(engine, keys)))
        backend, slots = engine.backend, range(256, 256 + BATCH)
        node.freeze()
        started = time.monotonic()
        flags = backend.batch_get_v1(keys, engine.kv.indices(slots))
        self.assertLess(time.monotonic() - started, 1 + GRACE_SECONDS)
        for slot, flag in zip(slots, flags):
            self.assertIs(flag, False)
            engine.kv.write(slot, support.content(str(slot), engine.kv.page_bytes))
        node.thaw()
        self.assertEqual(backend.batch_get_v1(["missing"], engine.kv.indices([0])), [False])
        self.assertTrue(eventually(node.has_ended), "the client may end a node that is frozen")
        for slot in slots:
            self.assertEqual(engine.kv.read(slot), support.content(str(slot), engine.kv.page_bytes))
        node.kill()
        node.start()
        self.assertTrue(eventually(lambda: self.serves(engine, keys)))
        self.assertEqual(engine.errors, [])

    def test_required(self) -> None:
        node = Node()
        self.addCleanup(node.remove)
        node.kill()
        storage = MeshCacheStorage(support.storage_config({"client_socket": node.client_socket, "required": True}), {})
        with self.assertRaises(Exception):
            storage.register_mem_pool_host(support.MLATokenToKVPoolHost(2, (64,)))


if __name__ == "__main__":
    unittest.main()
