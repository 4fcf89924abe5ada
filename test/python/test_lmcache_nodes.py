"""The LMCache plug-in on real nodes, driven as LMCache's adapter drives it."""

from __future__ import annotations

import ctypes
import gc
import logging
import mmap
import os
import random
import sys
import threading
import time
import unittest
from typing import Any

import lmcache_support as support
import sglang_node
from lmcache_driver import SLOT_BYTES, SLOTS, Driver
from lmcache_support import Completed, Engine, content, key_of, wait_for
from sglang_node import Node

from meshcache.lmcache.transfer import EMPTY_PAGE

TIMEOUT_SECONDS = 5.0

#: A future may complete so much later than its deadline: the fence, and a busy machine.
GRACE_SECONDS = 20.0

MAP_FIXED = 0x10

#: With MESHCACHE_TEST_SEED a run is repeated.
SEED = int(os.environ.get("MESHCACHE_TEST_SEED", random.randrange(1 << 32)))


def keys_of(name: str, count: int) -> list[Any]:
    return [key_of(f"{name} {number}") for number in range(count)]


class EngineTest(unittest.TestCase):
    def engine(self, node: Node, pool_bytes: int = 1 << 20, **params: Any) -> Engine:
        settings = {
            "client_socket": node.client_socket,
            "facts": {"engine": "test"},
            "tag": self.id(),
            "timeout": TIMEOUT_SECONDS,
            **params,
        }
        engine = Engine(pool_bytes, **settings)
        self.addCleanup(engine.close)
        return engine

    def finish(self, *engines: Engine) -> None:
        for engine in engines:
            engine.close()
            self.assertEqual(engine.adapter.violations, [])

    def stored(self, engine: Engine, keys: Any, objects: Any) -> None:
        """Stores pages, again where a busy machine let a deadline pass."""
        wait_for("pages are stored", lambda: engine.store(keys, objects))

    def loaded(self, engine: Engine, keys: Any, objects: Any, contents: list[bytes], store: bool = False) -> None:
        """Loads pages, again where a busy machine let a deadline pass.

        ``store``: each time they are stored before. Until a cluster has noticed a crash, pages of the node that was lost count
        as stored already.
        """

        def load() -> bool:
            if store:
                for obj, data in zip(objects, contents):
                    obj.write(data)
                engine.store(keys, objects)
            for obj in objects:
                obj.write(b"\xff" * obj.get_size())
            return all(engine.lookup(keys)) and all(engine.load(keys, objects))

        wait_for("pages are loaded", load)
        self.assertEqual([obj.read() for obj in objects], contents)


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class NodesTest(EngineTest):
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

    def test_two_engines_on_two_nodes_share_pages_by_every_way(self) -> None:
        sizes = [1, 4096, 0, 100_000, 65_536, 0, 7]
        for mode, shared, way in [
            ("auto", True, "direct"),
            ("auto", False, sglang_node.copied_way()),
            ("staged", True, sglang_node.copied_way()),
            ("bytes", True, "bytes"),
            ("bytes", False, "bytes"),
        ]:
            with self.subTest(mode=mode, shared=shared):
                one, other = (self.engine(node, mode=mode, shared=shared) for node in self.nodes)
                keys = keys_of(f"{mode} {shared}", len(sizes))
                contents = [content(key.chunk_hash.hex(), size) for key, size in zip(keys, sizes)]
                for obj, data in zip(one.objects(sizes), contents):
                    obj.write(data)
                self.stored(one, keys, one.objects(sizes))
                for engine in (other, one):
                    self.loaded(engine, keys, engine.objects(sizes, 1 << 19), contents)
                stats = other.connector.stats()
                self.assertGreaterEqual(stats[f"bytes_read_{way}"], sum(sizes))
                self.assertEqual(stats["pending"], 0)
                # A page of another size is no page, also when one of them is empty.
                self.assertEqual(one.load(keys[2:3], one.objects([16])), [False])
                shorter = one.objects([max(0, size - 1) for size in sizes])
                self.assertEqual(one.load(keys, shorter), [size == 0 for size in sizes])
                longer = one.objects([size + 1 for size in sizes])
                self.assertEqual(one.load(keys, longer), [False] * len(sizes))
                self.assertEqual(one.adapter.delete(keys), [True] * len(keys))
                for engine in (one, other):
                    self.assertEqual(engine.load(keys, engine.objects(sizes, 1 << 19)), [False] * len(keys))
                self.finish(one, other)

    def test_the_first_content_of_a_key_stays_and_tags_are_apart(self) -> None:
        one, other = self.engine(self.nodes[0]), self.engine(self.nodes[0], tag="other")
        keys, page = keys_of("first", 1), one.objects([8])[0]
        for text in (b"contents", b"whatever"):
            page.write(text)
            self.stored(one, keys, [page])
        self.loaded(one, keys, [page], [b"contents"])
        self.assertEqual((other.lookup(keys), other.load(keys, other.objects([8]))), ([False], [False]))
        self.finish(one, other)

    def test_servers_of_which_one_fact_differs_or_is_missing_share_nothing(self) -> None:
        stated = {"engine": "test"}
        one = self.engine(self.nodes[0], facts=stated)
        keys, page = keys_of("facts", 1), one.objects([8])
        page[0].write(b"contents")
        self.stored(one, keys, page)
        equal = self.engine(self.nodes[1], facts=dict(stated))
        self.loaded(equal, keys, equal.objects([8]), [b"contents"])
        others = [{"engine": "other"}, {**stated, "dtype": "bfloat16"}, {}]
        for facts in others:
            other = self.engine(self.nodes[1], facts=facts)
            self.assertEqual((other.lookup(keys), other.load(keys, other.objects([8]))), ([False], [False]), facts)
        # A server whose engines are unknown shares with no other, and has its own pages.
        first, second = self.engine(self.nodes[0], facts={}), self.engine(self.nodes[0], facts={})
        self.stored(first, keys, first.objects([8]))
        wait_for("its own page is found", lambda: first.lookup(keys) == [True])
        self.assertEqual((second.lookup(keys), second.load(keys, second.objects([8]))), ([False], [False]))
        self.finish(one, equal, first, second)

    def test_after_a_reset_nothing_is_shared_until_the_weights_are_told(self) -> None:
        one, other = self.engine(self.nodes[0]), self.engine(self.nodes[1])
        keys, page = keys_of("weights", 1), one.objects([8])
        page[0].write(b"old old ")
        self.stored(one, keys, page)
        wait_for("the other finds it", lambda: other.lookup(keys) == [True])
        for engine in (one, other):
            engine.connector.cleared()
            self.assertEqual(engine.load(keys, engine.objects([8], 64)), [False])
        page[0].write(b"new new ")
        self.stored(one, keys, page)
        self.assertEqual(other.load(keys, other.objects([8], 64)), [False])
        for engine in (one, other):
            self.assertTrue(engine.connector.set_fingerprint("second"))
            self.assertFalse(engine.connector.set_fingerprint("second"))
        self.stored(one, keys, page)
        self.loaded(other, keys, other.objects([8], 64), [b"new new "])
        self.finish(one, other)

    def test_a_reset_of_weights_that_never_change_is_none(self) -> None:
        one = self.engine(self.nodes[0], on_reset="same_weights")
        keys, page = keys_of("fixed", 1), one.objects([8])
        page[0].write(b"contents")
        self.stored(one, keys, page)
        one.connector.cleared()
        self.loaded(one, keys, page, [b"contents"])
        self.finish(one)

    def test_a_page_that_stands_for_an_empty_one_is_not_stored(self) -> None:
        engine, keys = self.engine(self.nodes[0]), keys_of("empty", 3)
        sizes = [len(EMPTY_PAGE), 0, len(EMPTY_PAGE)]
        objects = engine.objects(sizes)
        for obj, data in zip(objects, (EMPTY_PAGE, b"", b"x" * len(EMPTY_PAGE))):
            obj.write(data)
        self.assertFalse(engine.store(keys, objects))
        wait_for("the others are stored", lambda: engine.lookup(keys) == [False, True, True])
        self.loaded(engine, keys[1:], objects[1:], [b"", b"x" * len(EMPTY_PAGE)])
        self.assertEqual(engine.load(keys[1:2], objects[:1]), [False])
        self.finish(engine)

    def test_a_pool_that_is_another_file_now_gets_its_pages(self) -> None:
        engine, keys = self.engine(self.nodes[0]), keys_of("other file", 2)
        objects, contents = engine.objects([4096, 100]), [content("one", 4096), content("two", 100)]
        for obj, data in zip(objects, contents):
            obj.write(data)
        self.stored(engine, keys, objects)
        self.loaded(engine, keys, objects, contents)
        descriptor = os.memfd_create("other")
        os.ftruncate(descriptor, 1 << 20)
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED
        address = ctypes.c_void_p(engine.pool.address)
        found = libc.mmap(address, ctypes.c_size_t(1 << 20), protection, flags, descriptor, ctypes.c_long(0))
        self.assertEqual(found, engine.pool.address)
        os.close(descriptor)
        self.loaded(engine, keys, objects, contents)
        self.assertEqual([region["mode"] for region in engine.connector.stats()["regions"]], ["direct"])
        self.finish(engine)

    def test_random_operations_agree_with_a_model(self) -> None:
        print(f"test_lmcache_nodes: MESHCACHE_TEST_SEED={SEED}", file=sys.stderr)
        shapes: list[dict[str, Any]] = [{}, {"shared": False}, {"mode": "bytes"}]
        engines = [
            self.engine(self.nodes[number % 2], SLOTS * SLOT_BYTES, workers=1 + number, **shape)
            for number, shape in enumerate(shapes)
        ]
        driver = Driver(engines, SEED)
        driver.play(600)
        self.assertEqual(driver.wrong, [], f"seed {SEED}")
        for count in ("hits", "misses", "stored", "found", "deleted"):
            self.assertGreater(driver.counts[count], 0, f"seed {SEED}: {driver.counts}")
        self.finish(*engines)

    def test_thousands_in_flight(self) -> None:
        engine = self.engine(self.nodes[0], max_pending=10_000, timeout=29.0)
        keys, objects = keys_of("many", 8), engine.objects([512] * 8)
        for key, obj in zip(keys, objects):
            obj.write(content(str(key), 512))
        self.stored(engine, keys, objects)
        completed = Completed(engine.connector)
        engine.adapter._stop.set()
        engine.adapter._demux_thread.join()
        texts = [f"text-{number}" for number in range(3)]
        futures = []
        for number in range(4000):
            view = engine.pool.allocate(8192 + number % 64 * 512, 512).byte_array
            futures += [
                engine.connector.submit_batch_get(texts[:1], [view]),
                engine.connector.submit_batch_exists(texts[: number % 4]),
            ]
        for future in futures:
            completed.wait(future)
        self.assertEqual((completed.twice, len(completed.by_id)), ([], len(futures)))
        self.finish(engine)

    def test_closed_while_in_flight(self) -> None:
        for shared in (True, False):
            engine = self.engine(self.nodes[0], 8 << 20, shared=shared)
            keys, objects = keys_of(f"close {shared}", 8), engine.objects([1 << 20] * 8)
            self.stored(engine, keys, objects)
            tasks = [engine.adapter.submit_load_task(keys, objects) for _ in range(30)]
            connector, completed = engine.connector, Completed(engine.connector)
            pending = dict(engine.adapter._pending_ops)
            engine.close()
            # Nobody writes any more: neither the node nor a thread of the plug-in.
            for obj in objects:
                obj.write(b"\xff" * obj.get_size())
            taken = [task for task in tasks if engine.adapter.query_load_result(task) is not None]
            completed.drain()
            # Each future has completed: its completion was taken by the adapter, or can be taken now.
            self.assertEqual(len(taken) + len(completed.by_id), len(tasks))
            self.assertLessEqual(set(completed.by_id), set(pending))
            for _, _, results in completed.by_id.values():
                self.assertEqual(len(results), len(keys))
            self.assertTrue(all(obj.read() == b"\xff" * obj.get_size() for obj in objects))
            connector.close()
            self.assertEqual(completed.wait(connector.submit_batch_exists(["a"]))[2], [False])
            self.assertEqual(engine.adapter.violations, [])

    def test_nothing_is_left_behind(self) -> None:
        def now() -> tuple[int, int]:
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        def use() -> None:
            engine = self.engine(self.nodes[0])
            self.stored(engine, keys_of("left", 2), engine.objects([64, 64]))
            self.finish(engine)
            self.doCleanups()

        def settles(before: tuple[int, int]) -> bool:
            # What earlier tests have left to the collector of garbage goes, too.
            gc.collect()
            return all(count <= earlier for count, earlier in zip(now(), before))

        use()
        gc.collect()
        before = now()
        for _ in range(3):
            use()
        wait_for(f"{now()} descriptors and threads are {before} again", lambda: settles(before))


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class FaultsTest(EngineTest):
    def nodes(self) -> tuple[Node, Node]:
        first = Node()
        self.addCleanup(first.remove)
        second = Node(first.discovery)
        self.addCleanup(second.remove)
        return first, second

    def test_a_node_that_is_not_there_at_the_start_then_killed_amid_operations_then_back(self) -> None:
        print(f"test_lmcache_nodes: MESHCACHE_TEST_SEED={SEED}", file=sys.stderr)
        first, second = self.nodes()
        second.kill()
        with self.assertLogs(logging.getLogger("lmcache.meshcache"), logging.WARNING) as logs:
            engine = self.engine(second, SLOTS * SLOT_BYTES, timeout=2.0)
            keys, objects = keys_of("absent", 2), engine.objects([100, 200])
            self.assertEqual((engine.lookup(keys), engine.load(keys, objects)), ([False] * 2, [False] * 2))
            self.assertEqual((engine.store(keys, objects), engine.adapter.delete(keys)), (False, [False] * 2))
        self.assertEqual(len([line for line in logs.output if "no node at" in line]), 1, logs.output)
        other = self.engine(first, SLOTS * SLOT_BYTES, timeout=2.0, shared=False)
        second.start()
        wait_for("the engine attaches", lambda: engine.connector.stats()["connected"])
        driver = Driver([engine, other], SEED)

        def disturb(number: int) -> None:
            if number % 100 == 50:
                second.kill()
            elif number % 100 == 90:
                second.start()
                wait_for("the engine attaches", lambda: engine.connector.stats()["connected"])

        driver.play(300, disturb)
        self.assertEqual(driver.wrong, [], f"seed {SEED}")
        self.assertGreater(driver.counts["hits"], 0, f"seed {SEED}: {driver.counts}")
        # It has attached anew, and serves.
        self.loaded(engine, keys, objects, [content("back", 100), content("back", 200)], store=True)
        self.assertGreaterEqual(engine.connector.stats()["reconnects"], 3)
        self.finish(engine, other)

    def frozen_amid_loads(self, engine: Engine, node: Node) -> None:
        """Freezes a node under loads. Memory of loads that have completed stays as it is, whatever the node does when it goes on."""
        keys, objects = keys_of("frozen", 8), engine.objects([1 << 20] * 8)
        for key, obj in zip(keys, objects):
            obj.write(content(str(key), 1 << 20))
        self.stored(engine, keys, objects)
        contents = [content(str(key), 1 << 20) for key in keys]
        places = [engine.objects([1 << 20] * 8, (8 + 8 * number) << 20) for number in range(3)]
        for place in places:
            for obj in place:
                obj.write(b"\xff" * (1 << 20))
        loads: dict[int, Any] = {}
        found: dict[int, Any] = {}

        def completed(task: int) -> Any:
            if found.get(task) is None:
                found[task] = engine.adapter.query_load_result(task)
            return found[task]

        def are_on_their_way() -> bool:
            if all([completed(task) is not None for task in loads]):
                # At first, and again where a busy machine let all deadlines pass.
                loads.clear()
                loads.update({engine.adapter.submit_load_task(keys, place): place for place in places})
            return any(place[0].read() != b"\xff" * (1 << 20) for place in places)

        wait_for("pages are on their way", are_on_their_way)
        node.freeze()
        started = time.monotonic()
        # Of these, no thread begins most in time.
        lookups = [engine.adapter.submit_lookup_and_lock_task(keys) for _ in range(20)]
        for task, place in loads.items():
            bitmap = wait_for("a load completes", lambda: completed(task))
            for obj, data, is_hit in zip(place, contents, support.bits(bitmap, 8)):
                if is_hit:
                    self.assertEqual(obj.read(), data)
                obj.write(b"\xff" * (1 << 20))
        for task in lookups:
            wait_for("a lookup completes", lambda: engine.adapter.query_lookup_and_lock_result(task))
        self.assertLess(time.monotonic() - started, engine.connector._settings.timeout + GRACE_SECONDS)
        node.thaw()
        self.loaded_after(engine, node, keys, places[0], contents)
        for place in places[1:]:
            self.assertTrue(all(obj.read() == b"\xff" * (1 << 20) for obj in place))
        self.finish(engine)

    def loaded_after(self, engine: Engine, node: Node, keys: Any, objects: Any, contents: list[bytes]) -> None:
        """The engine goes on: with the node, or, where it has ended the frozen node, with its successor."""
        has_ended = engine.connector.stats()["nodes_ended"] > 0
        if has_ended:
            wait_for("the node ends", node.has_ended)
            node.kill()
            node.start()
        self.loaded(engine, keys, objects, contents, store=has_ended)

    def test_lookups_of_a_frozen_node_are_misses_at_once_until_it_answers(self) -> None:
        node = self.nodes()[0]
        with self.assertLogs(logging.getLogger("lmcache.meshcache"), logging.WARNING) as logs:
            engine = self.engine(node, timeout=20.0)
            keys, page = keys_of("silent", 1), engine.objects([8])
            page[0].write(b"contents")
            self.stored(engine, keys, page)
            node.freeze()
            connector, completed = engine.connector, Completed(engine.connector)
            engine.adapter._stop.set()
            engine.adapter._demux_thread.join()
            self.assertEqual(completed.wait(connector.submit_batch_exists(["a"])), (True, "", [False]))
            wait_for("the node is silent", lambda: connector._silence.is_on)
            # None of these waits for the node: they have completed when the submit returns.
            futures = [connector.submit_batch_exists(["a"]) for _ in range(100)]
            futures.append(connector.submit_batch_get(["a"], [page[0].byte_array]))
            completed.drain()
            self.assertLessEqual(set(futures), set(completed.by_id))
            node.thaw()
            wait_for("the node answers again", lambda: not connector._silence.is_on)
            ok, _, _ = completed.wait(connector.submit_batch_set(["a"], [page[0].byte_array]))
            self.assertTrue(ok)
        late = [line for line in logs.output if "has not answered in time (exists of 1 pages)" in line]
        self.assertEqual(len(late), 1, logs.output)
        self.assertEqual(engine.adapter.violations, [])

    def test_frozen_amid_direct_loads(self) -> None:
        node = self.nodes()[0]
        self.frozen_amid_loads(self.engine(node, 32 << 20, timeout=1.0), node)

    def test_frozen_amid_staged_loads(self) -> None:
        node = self.nodes()[0]
        self.frozen_amid_loads(self.engine(node, 32 << 20, timeout=1.0, mode="staged"), node)

    def test_closed_while_the_node_is_frozen(self) -> None:
        node = self.nodes()[0]
        engine = self.engine(node, 8 << 20, timeout=1.0)
        keys, objects = keys_of("frozen", 8), engine.objects([1 << 20] * 8)
        self.stored(engine, keys, objects)
        node.freeze()
        count = 30
        for number in range(count):
            if number % 2:
                engine.adapter.submit_load_task(keys, objects)
            else:
                engine.adapter.submit_lookup_and_lock_task(keys)
        completed = Completed(engine.connector)
        started = time.monotonic()
        engine.close()
        self.assertLess(time.monotonic() - started, 1.0 + GRACE_SECONDS)
        for obj in objects:
            obj.write(b"\xff" * (1 << 20))
        completed.drain()
        self.assertGreaterEqual(set(completed.by_id), set(engine.adapter._pending_ops))
        node.thaw()
        node.kill()
        self.assertTrue(all(obj.read() == b"\xff" * (1 << 20) for obj in objects))
        self.assertEqual(engine.adapter.violations, [])


if __name__ == "__main__":
    unittest.main()
