"""The client with a fake node: every method, in every mode."""

from __future__ import annotations

import array
import ctypes
import gc
import logging
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
import time
import unittest
from typing import Any
from unittest import mock

from support import PATIENCE_SECONDS, ROOT, NodeTest, shared_memory, wait_for
from meshcache import Client, ClosedError, Error, Namespace, NotAvailable, Region, RegionError
from meshcache._wire import protocol
from meshcache._wire.connection import Connection
from meshcache._wire.deadline import EndableDeadline, Ending

PAGE = 4096
#: A buffer whose items are addresses of objects, as numpy's arrays of objects have.
OBJECTS = (ctypes.py_object * 2)("a", "b")

#: Options of the fake node, settings of the client, and how pages go then.
WAYS: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"capabilities": 3}, {}, "direct"),
    ({"capabilities": 4}, {}, "direct"),
    ({"capabilities": 7}, {"mode": "direct", "end_frozen_node": False}, "direct"),
    ({"capabilities": 3}, {"end_frozen_node": False}, "staged"),
    ({"capabilities": 3}, {"mode": "staged", "staging_bytes": 8 * PAGE}, "staged"),
    ({"capabilities": 2, "max_staging_bytes": 5 * PAGE}, {}, "staged"),
    ({"capabilities": 2, "max_keys": 3}, {}, "staged"),
    ({"capabilities": 3, "max_keys": 3, "max_in_flight": 2}, {}, "direct"),
    ({"capabilities": 3, "max_body_bytes": 150}, {}, "direct"),
    ({"capabilities": 0}, {}, "bytes"),
    ({"capabilities": 7}, {"mode": "bytes"}, "bytes"),
    # What was asked for is not to be had: another way, and not none.
    ({"capabilities": 0}, {"mode": "staged"}, "bytes"),
    ({"capabilities": 4}, {"mode": "staged"}, "bytes"),
    ({"capabilities": 2}, {"mode": "direct"}, "staged"),
    ({"capabilities": 0, "max_body_bytes": 3 * PAGE, "max_in_flight": 2}, {}, "bytes"),
    # The one that has made the socket is not the node: it must not be ended, so memory is not given to it.
    ({"capabilities": 3, "process_id": 1}, {}, "staged"),
)


class Pages(NodeTest):
    def test_pages_go_into_and_out_of_regions_in_every_mode(self) -> None:
        for options, settings, mode in WAYS:
            with self.subTest(options=options, settings=settings):
                self.round_trip(options, settings, mode)

    def test_the_forms_that_calls_may_have(self) -> None:
        self.node(capabilities=3)
        client = Client(self.path, namespace={"model_name": "m", "tag": "t"}, timeout=5.0)
        self.addCleanup(client.close)
        memory = shared_memory(4 * PAGE)
        fd = os.memfd_create("forms")
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, 4 * PAGE)
        region = client.register(memory)
        for other in (client.register((fd, 4 * PAGE)), client.register(fd, PAGE)):
            self.assertEqual(other.mode, "direct")
        memory[:PAGE] = b"a" * PAGE
        self.assertEqual(client.set_from(["a", "b"], [(region, 0, PAGE), (region, 0, 8)]), [True, True])
        self.assertEqual(client.get_into(["a"], [(region, PAGE, PAGE)]), [True])
        self.assertEqual(memory[PAGE : 2 * PAGE], b"a" * PAGE)
        self.assertEqual(client.exists(["a", "b", "c"]), 2)
        self.assertIs(client.exists("a"), True)
        self.assertEqual(client.delete(["a", "b"]), [True, True])
        self.assertEqual(client.exists(["a"]), 0)
        # Keys that are bytes are other keys.
        self.assertTrue(client.set(b"k", b"bytes") and client.set("k", b"text"))
        self.assertEqual((client.get(b"k"), client.get("k")), (b"bytes", b"text"))
        self.assertEqual((client.exists([b"k", b"l"]), client.exists([b"l"])), (1, 0))
        for wrong in (["a", b"b"], [b"a", "b"], [1]):
            with self.assertRaises(TypeError):
                client.exists(wrong)  # type: ignore[arg-type]
        for piece in (None, ("x", 0, 1), (None, 0, 1), 7):
            with self.assertRaises(TypeError):
                client.get_into(["a"], [[piece]] if isinstance(piece, tuple) else [piece])  # type: ignore[list-item]
        for namespace in ({"modle": "m"}, {"model": "m", "model_name": "m"}, "m"):
            with self.assertRaises(TypeError):
                Client(self.path, namespace=namespace)  # type: ignore[arg-type]
        self.assertEqual(Namespace.of({"model_name": "m", "is_mla_model": True}), Namespace(model="m", is_mla=True))

    def test_memory_that_the_node_does_not_pay_for_is_touched_by_this_process(self) -> None:
        self.node(capabilities=3)
        client = self.client()
        fd = os.memfd_create("absent")
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, 64 * PAGE)
        memory = mmap.mmap(fd, 64 * PAGE)
        region = client.register(memory)
        self.assertEqual(region.mode, "direct")
        self.assertEqual(
            client.set_from(["absent", "b"], [(region, 100, 3 * PAGE), (region, 9 * PAGE, 8)]), [True, True]
        )
        self.assertEqual(client.get_into(["absent"], [(region, 32 * PAGE, 3 * PAGE)]), [True])
        stats = client.stats()
        self.assertEqual((stats["bytes_written_direct"], stats["bytes_read_direct"]), (3 * PAGE + 8, 3 * PAGE))
        self.assertEqual((stats["sets"], stats["sets_failed"], stats["hits"], stats["misses"]), (2, 0, 1, 0))
        # Once: memory that the system takes away again is a miss. The node has touched none of this.
        before = os.fstat(fd).st_blocks * 512
        self.assertEqual(client.get_into(["status=9"], [(region, 48 * PAGE, 3 * PAGE)]), [False])
        self.assertGreaterEqual(os.fstat(fd).st_blocks * 512, before + 3 * PAGE)

    def test_a_mode_that_is_not_possible_is_told_also_without_regions(self) -> None:
        self.node(capabilities=0)
        client = self.client(mode="staged")
        self.assertTrue(client.set("a", b"1"))
        self.assertEqual(client.mode, "bytes")
        said = "WARNING pages go bytes, and not staged as asked for: the node gives no staging memory, which needs its native addon"
        self.assertIn(said, self.lines)

    def test_a_client_that_was_not_made_ends_in_silence(self) -> None:
        said: list[Any] = []
        with mock.patch.object(sys, "unraisablehook", said.append):
            with self.assertRaises(TypeError):
                Client(sock="x")  # type: ignore[call-arg]
            gc.collect()
        self.assertEqual(said, [])

    def test_staging_memory_that_can_be_cut_short_is_not_touched(self) -> None:
        self.node(capabilities=2, seal_staging=False)
        client = self.client()
        region = client.register(shared_memory(PAGE))
        self.assertEqual((region.mode, client.mode), ("bytes", "bytes"))
        self.assertTrue(client.set("a", b"x" * 100))
        self.assertEqual(client.get("a"), b"x" * 100)

    def test_the_log_says_how_pages_of_a_region_go(self) -> None:
        for mode, capabilities, line in (
            ("auto", 3, "INFO region pool: pages go direct"),
            ("auto", 0, "INFO region pool: pages go bytes: the node cannot map or open memory of clients"),
            (
                "staged",
                4,
                "WARNING region pool: pages go bytes, and not staged as asked for: the node gives no staging memory, which needs its native addon",
            ),
            (
                "direct",
                2,
                "WARNING region pool: pages go staged, and not direct as asked for: the node cannot map or open memory of clients",
            ),
        ):
            with self.subTest(mode=mode, capabilities=capabilities):
                self.lines.clear()
                node = self.node(capabilities=capabilities)
                client = self.client(mode=mode)
                # Nothing is registered yet: how pages will go is not known, and not claimed; only what is not possible.
                attached, *impossible = self.lines
                self.assertEqual(attached, f"INFO attached to node fake-node at {self.path}")
                self.assertEqual(len(impossible), 1 if mode == "staged" else 0)
                self.lines.clear()
                client.register(shared_memory(PAGE), name="pool")
                self.assertEqual(self.lines, [line])
                client.close()
                node.kill()

    def round_trip(self, options: dict[str, Any], settings: dict[str, Any], mode: str) -> None:
        node = self.node(**options)
        client = self.client(**settings)
        memory = shared_memory(64 * PAGE)
        pool = client.register(memory, name="pool")
        self.assertEqual((client.mode, pool.mode, client.node_id), (mode, mode, "fake-node"))
        seed = random.randrange(1 << 32)
        source = random.Random(seed)
        contents = [source.randbytes(PAGE + 100) for _ in range(20)]
        keys = [f"key-{index}" for index in range(20)]
        pages = []
        for index, content in enumerate(contents):
            memory[index * PAGE : (index + 1) * PAGE] = content[:PAGE]
            memory[40 * PAGE + index * 100 : 40 * PAGE + (index + 1) * 100] = content[PAGE:]
            pages.append([(pool, index * PAGE, PAGE), (pool, 40 * PAGE + index * 100, 100)])
        self.assertEqual(client.set_from(keys, pages), [True] * 20)
        for key, content in zip(keys, contents):
            self.assertEqual(
                client.get(key), content if len(content) <= options.get("max_body_bytes", 1 << 26) else None
            )
        memory[:] = bytes(len(memory))
        wanted = [*keys[:7], "not there", *keys[7:]]
        pages.insert(7, [(pool, 50 * PAGE, PAGE), (pool, 51 * PAGE, 100)])
        self.assertEqual(client.get_into(wanted, pages), [True] * 7 + [False] + [True] * 13, f"seed {seed}")
        for index, content in enumerate(contents):
            self.assertEqual(memory[index * PAGE : (index + 1) * PAGE], content[:PAGE])
            self.assertEqual(memory[40 * PAGE + index * 100 : 40 * PAGE + (index + 1) * 100], content[PAGE:])
        # Of another length than the region's page.
        self.assertEqual(client.get_into(keys[:1], [[(pool, 0, PAGE)]]), [False])
        stats = client.stats()
        self.assertEqual((stats["mode"], stats["hits"] >= 20, stats["sets"]), (mode, True, 20))
        self.assertEqual(stats[f"bytes_written_{mode}"], 20 * (PAGE + 100))
        client.unregister(pool)
        with self.assertRaises(RegionError):
            client.get_into(keys[:1], [[(pool, 0, PAGE)]])
        client.close()
        node.kill()

    def test_memory_without_a_file_is_staged_beside_memory_with_one(self) -> None:
        self.node()
        client = self.client()
        shared, own = shared_memory(PAGE), bytearray(PAGE)
        first, second = client.register(shared), client.register(own)
        self.assertEqual((first.mode, second.mode), ("direct", "staged"))
        shared[:] = b"s" * PAGE
        own[:] = b"o" * PAGE
        self.assertEqual(client.set_from(["both"], [[(first, 0, 10), (second, 0, 20)]]), [True])
        self.assertEqual(client.get("both"), b"s" * 10 + b"o" * 20)
        self.assertEqual(client.get_into(["both"], [[(second, 0, 10), (first, 0, 20)]]), [True])
        self.assertEqual((bytes(own[:10]), shared[:20]), (b"s" * 10, b"o" * 20))

    def test_pages_of_different_counts_of_pieces_go_in_one_call(self) -> None:
        self.node()
        client = self.client()
        memory = shared_memory(PAGE)
        memory[:9] = b"123456789"
        pool = client.register(memory)
        pages = [[(pool, 0, 1)], [(pool, 1, 2), (pool, 3, 1)], [(pool, 4, 5)]]
        self.assertEqual(client.set_from(["a", "b", "c"], pages), [True] * 3)
        self.assertEqual(client.get_many(["a", "b", "c", "d"]), [b"1", b"234", b"56789", None])
        memory[:] = bytes(PAGE)
        self.assertEqual(client.get_into(["a", "b", "c"], pages), [True] * 3)
        self.assertEqual(memory[:9], b"123456789")

    def test_hints_are_told_to_nodes_that_know_them(self) -> None:
        ways = ((11, {}), (10, {"staging_bytes": 8 * PAGE}), (8, {}), (3, {}), (0, {}))
        for capabilities, settings in ways:
            with self.subTest(capabilities=capabilities):
                node = self.node(capabilities=capabilities, max_keys=2, shows_told=True)
                client = self.client(**settings)
                memory = shared_memory(4 * PAGE)
                region = client.register(memory)
                keys = ["a", "b", "c"]
                pieces = [(region, 100 * index, 100) for index in range(3)]
                self.assertEqual(client.set_from(keys, pieces, hint="closed"), [True] * 3)
                self.assertEqual(client.get_into(keys, pieces, hint=1), [True] * 3)
                self.assertEqual(len(client.get_many(keys)), 3)
                self.assertIsNotNone(client.get("a", hint="open"))
                self.assertEqual(client.set_many({"x": b"1", "y": b"2"}, hint=3), [True] * 2)
                self.assertTrue(client.set("z", b"3", hint=0))
                expected = [(2, 2, False), (1, 2, True), (2, 1, False), (1, 1, True), (2, 0, False), (1, 0, True)]
                expected += [(1, 1, False), (2, 3, False), (1, 0, False)]
                if not capabilities & 8:
                    expected = [(keys, 0, False) for keys, _, _ in expected]
                # One answer may overtake another; requests do not.
                self.assertEqual([tuple(told) for told in client.stats()["node"]["told"]], expected)
                client.close()
                node.kill()

    def test_hints_that_are_none_are_refused(self) -> None:
        self.node()
        client = self.client()
        for wrong in ("over", 4, -1, True, None, 1.0, ["open"]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, '"open", "closed", 0, 1, 2 or 3'):
                client.get("a", hint=wrong)  # type: ignore[arg-type]
            with self.assertRaisesRegex(ValueError, "hint"):
                client.set("a", b"1", hint=wrong)  # type: ignore[arg-type]
            with self.assertRaisesRegex(ValueError, "hint"):
                client.get_into([], [], hint=wrong)  # type: ignore[arg-type]
        self.assertIsNone(client.get("a"))

    def test_expiries_are_told_to_nodes_that_know_them_and_to_no_others(self) -> None:
        for capabilities in (27, 26, 24, 16):
            with self.subTest(capabilities=capabilities):
                node = self.node(capabilities=capabilities, max_keys=2, shows_told=True)
                client = self.client()
                region = client.register(shared_memory(PAGE))
                pieces = [(region, 100 * index, 100) for index in range(3)]
                self.assertEqual(client.set_from(["a", "b", "c"], pieces, expires_in=1.5), [True] * 3)
                self.assertEqual(client.set_many({"x": b"1"}, expires_in=10 * 31_557_600), [True])
                self.assertTrue(client.set("y", b"1", expires_in=1e-9))
                self.assertTrue(client.set("z", b"1"))
                expected = [1500, 1500, 315_576_000_000, 1, None]
                self.assertEqual(client.stats()["node"]["expiries"], expected)
                client.close()
                node.kill()
        for capabilities in (11, 0):
            node = self.node(capabilities=capabilities, shows_told=True)
            client = self.client()
            region = client.register(shared_memory(PAGE))
            with self.assertRaisesRegex(NotAvailable, "expires_in needs a node whose pages can expire"):
                client.set("a", b"1", expires_in=1)
            with self.assertRaisesRegex(NotAvailable, "expires_in needs a node"):
                client.set_from(["a"], [(region, 0, 100)], expires_in=1)
            self.assertIsNone(client.get("a"))
            client.close()
            node.kill()

    def test_expiries_that_are_none_are_refused(self) -> None:
        self.node()
        client = self.client()
        for wrong in (0, -1, 315_576_001, float("nan"), float("inf")):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "above 0 and at most 315576000 seconds"):
                client.set("a", b"1", expires_in=wrong)
        for wrong in ("5", True, [1]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, "a number of seconds or None"):
                client.set("a", b"1", expires_in=wrong)  # type: ignore[arg-type]
        self.assertIsNone(client.get("a"))

    def test_priorities_are_told_to_nodes_that_know_them_and_to_no_others(self) -> None:
        for capabilities, knows in ((128 | 27, True), (128 | 3, True), (128 | 24, True), (27, False), (0, False)):
            with self.subTest(capabilities=capabilities):
                node = self.node(capabilities=capabilities, max_keys=2, shows_told=True)
                client = self.client()
                region = client.register(shared_memory(PAGE))
                pieces = [(region, 100 * index, 100) for index in range(3)]
                self.assertEqual(client.set_from(["a", "b", "c"], pieces, priority="high"), [True] * 3)
                self.assertEqual(client.set_many({"x": b"1"}, priority="low"), [True])
                self.assertTrue(client.set("y", b"1", priority="high"))
                self.assertTrue(client.set("z", b"1", priority="normal"))
                self.assertTrue(client.set("z", b"1"))
                expected = ["high", "high", "low", "high", None, None]
                self.assertEqual(client.stats()["node"]["priorities"], expected if knows else [None] * 6)
                client.close()
                node.kill()

    def test_priorities_that_are_none_are_refused(self) -> None:
        self.node()
        client = self.client()
        region = client.register(shared_memory(PAGE))
        for wrong in ("urgent", "High", "", 1, None, ["high"]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, 'priority must be "low", "normal"'):
                client.set("a", b"1", priority=wrong)  # type: ignore[arg-type]
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "priority must be"):
                client.set_from(["a"], [(region, 0, 100)], priority=wrong)  # type: ignore[arg-type]
        self.assertIsNone(client.get("a"))

    def test_pins(self) -> None:
        self.node(capabilities=3 | 32, max_keys=2)
        client = self.client()
        self.assertEqual(client.set_many({"a": b"1", "b": b"2", "c": b"3"}), [True] * 3)
        self.assertEqual(client.pin(["a", "none", "b", "c"], 1.5), [True, False, True, True])
        self.assertEqual(client.pin([b"a"], 1), [False])
        self.assertEqual(client.unpin(["a", "none", "c"], timeout=5), [True, False, True])
        self.assertEqual(client.unpin(["a"]), [False])
        self.assertEqual(client.pin([], 1), [])
        with self.assertRaisesRegex(ValueError, "refused"):
            client.pin(["a"], 601)
        for wrong in (0, -1, float("nan")):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "seconds must be above 0"):
                client.pin(["a"], wrong)
        with self.assertRaisesRegex(TypeError, "seconds must be a number"):
            client.pin(["a"], "1")  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "sequence of strings"):
            client.pin("a", 1)
        self.assertEqual(client.pin(["status=8"], 1), [False])

    def test_pins_of_an_older_node_raise(self) -> None:
        self.node()
        client = self.client()
        with self.assertRaisesRegex(NotAvailable, "node fake-node has version 0.0.0, which cannot pin pages"):
            client.pin(["a"], 1)
        with self.assertRaises(NotAvailable):
            client.unpin(["a"])
        self.assertTrue(client.set("a", b"1"))

    def test_regions_by_descriptor(self) -> None:
        for capabilities, mode in ((3, "direct"), (2, "staged"), (0, "bytes")):
            node = self.node(capabilities=capabilities)
            client = self.client()
            descriptor = os.memfd_create("pool")
            os.ftruncate(descriptor, 4 * PAGE)
            mapped = mmap.mmap(descriptor, 4 * PAGE)
            with self.assertRaisesRegex(TypeError, "length"):
                client.register(descriptor)
            regions = [
                client.register(descriptor, length=4 * PAGE),
                client.register_fd(descriptor, 3 * PAGE),
                client.register_fd(descriptor, 2 * PAGE, memory=mapped),
            ]
            os.close(descriptor)
            for region in regions:
                self.assertEqual(region.mode, mode)
                mapped[:3] = b"abc"
                self.assertEqual(client.set_from(["k"], [[(region, 0, 3)]]), [True])
                self.assertEqual(client.get_into(["k"], [[(region, PAGE, 3)]]), [True])
                self.assertEqual(mapped[PAGE : PAGE + 3], b"abc")
                mapped[:] = bytes(4 * PAGE)
            client.close()
            node.kill()

    def test_pages_as_bytes(self) -> None:
        self.node(max_body_bytes=1000)
        client = self.client(mode="bytes")
        self.assertTrue(client.set("a", b"abc"))
        self.assertTrue(client.set("b", array.array("H", [1, 2]), named=False, pool="other"))
        self.assertFalse(client.set("empty", b""))
        self.assertEqual((client.get("a"), client.get("a", pool="other"), client.get("empty")), (b"abc", None, None))
        self.assertEqual(client.get("b", pool="other"), bytes(array.array("H", [1, 2])))
        many = {f"k{index}": bytes((index,)) * 300 for index in range(10)}
        self.assertEqual(client.set_many(many), [True] * 10)
        # They do not fit into one answer.
        self.assertEqual(client.get_many([*many, "no"]), [*many.values(), None])
        self.assertEqual(client.set_many(["x", "too long"], [b"1", bytes(1000)]), [True, False])
        self.assertEqual((client.set_many([], []), client.set_many({}), client.get_many([])), ([], [], []))

    def test_requests_and_answers_that_both_fill_the_socket(self) -> None:
        # The fake node takes no request before its answers are taken.
        self.node(max_body_bytes=160_000)
        client = self.client(timeout=PATIENCE_SECONDS / 2, mode="bytes")
        keys = [f"{index:050000}" for index in range(40)]
        self.assertEqual(client.set_many(keys, [bytes(50_000)] * 40), [True] * 40)
        self.assertEqual(client.get_many(keys), [bytes(50_000)] * 40)

    def test_a_path_that_no_socket_can_have_is_refused(self) -> None:
        self.client().close()
        with self.assertRaisesRegex(ValueError, "at most 103 bytes; this one has 104"):
            Client("/" + "x" * 103)
        Client("/" + "x" * 102, logger=self.log).close()

    def test_keys(self) -> None:
        self.node(max_keys=3)
        client = self.client(namespace=Namespace(model="m", tp_rank=1, tp_size=2))
        keys = [f"k{index}" for index in range(10)]
        client.set_many(keys[:7], [b"1"] * 7)
        client.set(keys[8], b"1")
        self.assertEqual(client.exists_prefix(keys), 7)
        self.assertEqual(client.exists_many(keys), [True] * 7 + [False, True, False])
        self.assertEqual(
            (client.exists("k0"), client.exists("k7"), client.exists("k0", pool="p")), (True, False, False)
        )
        client.set_many(["a-k", "a-v", "b-k"], [b"1"] * 3)
        self.assertEqual(client.exists_many(["a", "b"], suffixes=["-k", "-v"]), [True, False])
        self.assertEqual(client.exists_prefix(["a", "b"], suffixes=["-k"]), 2)
        self.assertEqual(client.delete_many(keys[:5]), [True] * 5)
        self.assertEqual((client.delete("k5"), client.exists_prefix(keys)), (True, 0))
        holders = [{"node_id": "fake-node", "tier": "memory"}]
        self.assertEqual(client.stat(["a-k", "no"]), [{"length": 1, "holders": holders}, None])
        self.assertTrue(client.ping())
        self.assertTrue(client.clear())
        self.assertTrue(client.clear(["draft"]))
        self.assertEqual(client.stats()["node"], {"pages": 0})
        self.assertEqual((client.exists_prefix([]), client.exists_many([]), client.stat([])), (0, [], []))

    def test_requests_beyond_those_in_flight_go_in_their_order(self) -> None:
        ours, node = socket.socketpair()
        connection = Connection(ours, lambda: None)
        deadline = time.monotonic() + PATIENCE_SECONDS
        types = [protocol.PING, protocol.EXISTS, protocol.STATS, protocol.CLEAR]
        answered: list[int] = []

        def ask(type_: int) -> None:
            call = connection.submit(type_, b"", deadline)
            if call is not None and connection.wait(call, deadline):
                answered.append(type_)

        threads = [threading.Thread(target=ask, args=(type_,)) for type_ in types]
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait_for(f"{count} requests", lambda: len(connection._pending) + len(connection._room) == count)
        for type_ in types:
            _, arrived, _, request_id, _ = protocol.HEADER.unpack(node.recv(protocol.HEADER.size))
            self.assertEqual(arrived, type_)
            node.sendall(protocol.HEADER.pack(0, type_, 0, request_id, 0))
        for thread in threads:
            thread.join()
        self.assertCountEqual(answered, types)
        connection.fail("the test is over")
        connection.discard()
        node.close()

    def test_only_a_call_whose_time_is_over_counts_as_a_timeout(self) -> None:
        ours, node = socket.socketpair()
        connection = Connection(ours, lambda: None)
        client = self.client()
        attachment = mock.Mock(connection=connection)
        connection.set_limits(2, 0)
        ended = EndableDeadline(PATIENCE_SECONDS, Ending())
        for deadline, timeouts in ((ended, 0), (time.monotonic() + 0.01, 1)):
            call = connection.submit(protocol.PING, b"", deadline)
            assert call is not None
            ended.ending.end()
            self.assertFalse(client._requests.wait(attachment, call, deadline))
            self.assertEqual(client.stats()["timeouts"], timeouts)
        connection.fail("the test is over")
        connection.discard()
        node.close()

    def test_many_threads_at_once(self) -> None:
        self.node(max_in_flight=4)
        client = self.client()
        memory = shared_memory(16 * PAGE)
        pool = client.register(memory)
        own = client.register(bytearray(16 * PAGE))
        failures: list[str] = []

        def work(thread: int) -> None:
            source = random.Random(thread)
            for turn in range(60):
                content = source.randbytes(PAGE)
                key = f"{thread}-{turn % 5}"
                region = (pool, own)[turn % 2]
                data = memoryview(memory if turn % 2 == 0 else bytes(0))
                if region is pool:
                    data[thread * PAGE : (thread + 1) * PAGE] = content
                    good = client.set_from([key], [[(pool, thread * PAGE, PAGE)]]) == [True]
                else:
                    good = client.set(key, content)
                if not good or client.get(key) != content:
                    failures.append(f"get {key}")
                if client.get_into([key], [[(region, thread * PAGE, PAGE)]]) != [True]:
                    failures.append(f"get_into {key}")
                if region is pool and data[thread * PAGE : (thread + 1) * PAGE] != content:
                    failures.append(f"content {key}")
                if client.exists_many([key, "no"]) != [True, False]:
                    failures.append(f"exists {key}")

        threads = [threading.Thread(target=work, args=(index,)) for index in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(client.stats()["timeouts"], 0)


class Mistakes(NodeTest):
    def test_mistakes_of_the_caller_raise(self) -> None:
        self.node()
        for client in (self.client(), Client(f"{self.path}.none", connect_timeout=0.1, logger=self.log)):
            self.addCleanup(client.close)
            memory = shared_memory(PAGE)
            pool = client.register(memory)
            read_only = client.register(bytes(PAGE))
            second = client.register(memory)
            self.assertFalse(read_only.writable)
            other = Client(f"{self.path}.none", connect_timeout=0.1, logger=self.log)
            self.addCleanup(other.close)
            foreign = other.register(bytearray(PAGE))
            get = client.get_into
            wrong: list[tuple[type[Exception], str, Any]] = [
                (TypeError, "sequence of strings", lambda: client.exists_many("key")),
                (TypeError, "must be strings", lambda: client.exists_many(["a", b"key"])),  # type: ignore[list-item]
                (ValueError, "65536 bytes is too long", lambda: client.get("k" * 65536)),
                (ValueError, "1 keys need as many pages", lambda: get(["a"], [])),
                (ValueError, "1 to 255 pieces, got 0", lambda: get(["a"], [[]])),
                (RegionError, "does not lie in", lambda: get(["a"], [[(pool, 1, PAGE)]])),
                (RegionError, "does not lie in", lambda: get(["a"], [[(pool, -1, 1)]])),
                (RegionError, "at least 1 byte", lambda: get(["a"], [[(pool, 0, 0)]])),
                (RegionError, "overlap", lambda: get(["a"], [[(pool, 0, 10), (pool, 9, 10)]])),
                (RegionError, "overlap", lambda: get(["a", "b"], [[(pool, 0, 10)], [(second, 9, 10)]])),
                (RegionError, "overlap", lambda: get(["a", "b"], [[(pool, 0, 9)], [(pool, 20, 1), (pool, 8, 10)]])),
                (RegionError, "for reading only", lambda: get(["a"], [[(read_only, 0, 10)]])),
                (RegionError, "not registered with this client", lambda: get(["a"], [[(foreign, 0, 10)]])),
                (TypeError, "region, offset, length", lambda: get(["a"], [[("pool", 0, 1)]])),  # type: ignore[list-item]
                (TypeError, "", lambda: get(["a"], [[(pool, 0.5, 1)]])),  # type: ignore[list-item]
                (TypeError, "buffer protocol", lambda: client.set("a", "text")),
                (TypeError, "buffer protocol", lambda: client.register("text")),
                (ValueError, "read-only", lambda: client.register(b"text", writable=True)),
                (ValueError, "at least 1 byte", lambda: client.register(b"")),
                (TypeError, "references to objects", lambda: client.set("a", OBJECTS)),
                (TypeError, "references to objects", lambda: client.register(OBJECTS)),
                (ValueError, "32,768 bytes is too long", lambda: client.get(b"k" * 32_768)),
                (TypeError, "named must be", lambda: client.set("a", b"b", named="no")),  # type: ignore[arg-type]
                (ValueError, "not an open descriptor", lambda: client.register_fd(10**6, 1)),
                (ValueError, "not an open descriptor", lambda: client.register((10**6, 1))),
                (TypeError, "timeout", lambda: client.get("a", timeout="1")),  # type: ignore[arg-type]
                (ValueError, "timeout", lambda: client.get("a", timeout=-1)),
                (TypeError, "pool", lambda: client.get("a", pool=None)),  # type: ignore[arg-type]
                (RegionError, "not registered", lambda: client.unregister(foreign)),
            ]
            for kind, text, call in wrong:
                with self.subTest(text), self.assertRaisesRegex(kind, text):
                    call()
            self.assertTrue(issubclass(RegionError, Error) and issubclass(RegionError, ValueError))

    def test_settings_are_checked(self) -> None:
        for settings, kind in (
            ({"mode": "fast"}, ValueError),
            ({"timeout": 0}, ValueError),
            ({"timeout": "1"}, TypeError),
            ({"name": "with space"}, ValueError),
            ({"name": "n" * 65}, ValueError),
            ({"namespace": "m"}, TypeError),
            ({"staging_bytes": 1}, ValueError),
            ({"logger": "log"}, TypeError),
            ({"namespace": {"model": "m" * 50_000, "tag": "t" * 10_001}}, ValueError),
            ({"namespace": {"model": "\ud800"}}, ValueError),
        ):
            with self.subTest(settings=settings), self.assertRaises(kind):
                Client(self.path, **settings)  # type: ignore[arg-type]
        for ranks in ({"tp_rank": 1}, {"tp_size": 0}, {"pp_rank": -1}):
            with self.subTest(ranks=ranks), self.assertRaises(ValueError):
                Namespace(**ranks)  # type: ignore[arg-type]
        for fingerprint in (" ", "a b", "a\n", "\u00fc", "f" * 129):
            with self.subTest(fingerprint=fingerprint), self.assertRaisesRegex(
                ValueError, "fingerprint must be 1 to 128"
            ):
                Namespace(fingerprint=fingerprint)

    def test_a_closed_client_says_so(self) -> None:
        self.node()
        client = self.client()
        client.register(bytearray(8))
        with client as same:
            self.assertIs(same, client)
        client.close()
        for call in (lambda: client.get("a"), client.ping, lambda: client.register(bytearray(1))):
            with self.assertRaises(ClosedError):
                call()
        self.assertEqual((client.is_connected, client.mode, client.node_id), (False, "none", None))


class Life(NodeTest):
    def test_a_node_that_is_not_there_is_misses_until_it_comes(self) -> None:
        with self.assertRaisesRegex(NotAvailable, "node.sock: .*; start one with: meshcache node$"):
            Client(self.path, required=True, logger=logging.getLogger("meshcache.unused"))
        client = self.client(connect_timeout=1.0)
        pool = client.register(shared_memory(PAGE))
        self.assertEqual((client.get("a"), client.set("a", b"1"), client.exists_prefix(["a"])), (None, False, 0))
        self.assertEqual(client.get_into(["a"], [[(pool, 0, 1)]]), [False])
        self.assertEqual((client.ping(), client.stats()["node"], client.mode), (False, None, "none"))
        self.node()
        wait_for("the client attaches", lambda: client.is_connected)
        self.assertEqual(pool.mode, "direct")
        self.assertEqual(client.set_from(["a"], [[(pool, 0, 1)]]), [True])
        problems = [line for line in self.lines if "no node at" in line]
        self.assertTrue(0 < len(problems) == len(set(problems)), problems)

    def test_a_socket_at_the_default_path_that_another_user_may_have_made_is_none(self) -> None:
        place = os.path.dirname(self.path)
        folder = os.path.join(place, "meshcache")
        os.mkdir(folder, 0o700)
        self.path = os.path.join(folder, "node.sock")
        self.node()
        use = {"timeout": PATIENCE_SECONDS, "connect_timeout": PATIENCE_SECONDS, "logger": self.log}
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": place, "MESHCACHE_SOCKET": ""}):
            os.chmod(place, 0o1777)
            with Client(required=True, **use) as client:
                self.assertTrue(client.is_connected)
            for mode in (0o777, 0o1777, 0o720, 0o702):
                os.chmod(folder, mode)
                with self.assertRaisesRegex(NotAvailable, "node.sock: other users may write into .*/meshcache; "):
                    Client(required=True, **use)
            os.chmod(folder, 0o755)
            if os.geteuid() == 0:
                os.chown(folder, 54_321, 54_321)
                with self.assertRaisesRegex(NotAvailable, "meshcache belongs to user 54321, not to user 0; "):
                    Client(required=True, **use)
                os.chown(folder, 0, 0)
            os.rename(folder, f"{folder}-moved")
            os.symlink(f"{folder}-moved", folder)
            with self.assertRaisesRegex(
                NotAvailable, "meshcache is not a folder; remove it, or name a socket in another folder"
            ):
                Client(required=True, **use)
            with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": os.path.join(self.path, "no folder")}):
                with self.assertRaisesRegex(NotAvailable, "Not a directory"):
                    Client(required=True, **use)
            # Nobody else may write into its place: whatever is there is the user's own.
            os.chmod(place, 0o755)
            Client(required=True, **use).close()

    def test_a_node_that_refuses_is_none(self) -> None:
        self.node(refuse_hello=True)
        client = self.client()
        self.assertFalse(client.is_connected)
        self.wait_for_log("status 6")
        with self.assertRaisesRegex(NotAvailable, r"node\.sock: the node refuses: .*\(status 6\)$"):
            Client(self.path, required=True, logger=logging.getLogger("meshcache.unused"))

    def test_a_child_process_does_not_use_the_connection_of_its_parent(self) -> None:
        self.node()
        client = self.client()
        memory = shared_memory(PAGE)
        pool = client.register(memory)
        client.set("a", b"1")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            result = b"failed"
            try:
                memory[:1] = b"c"
                good = client.set_from(["from child"], [[(pool, 0, 1)]]) == [True] and client.get("a") == b"1"
                result = b"good" if good and pool.mode == "direct" else b"bad"
                client.close()
            finally:
                os.write(write, result)
                os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(os.read(read, 100), b"good")
        os.close(read)
        os.close(write)
        self.assertEqual((client.get("from child"), client.get("a")), (b"c", b"1"))
        self.assertEqual(client.stats()["connections_lost"], 0)

    def test_the_interpreter_ends_with_a_client_that_is_open(self) -> None:
        self.node()
        program = (
            "import sys, threading, meshcache\n"
            f"client = meshcache.Client({self.path!r})\n"
            "assert client.set('a', b'1')\n"
            "held = bytearray(8); region = client.register(held)\n"
            "threading.Thread(target=lambda: client.get('hold', timeout=1000), daemon=True).start()\n"
            f"other = meshcache.Client({self.path + '.none'!r}, connect_timeout=0.1)\n"
            "print('done')\n"
        )
        path = os.environ.get("MESHCACHE_PYTHON_PATH", str(ROOT / "src" / "python"))
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        self.assertEqual((done.stdout, done.returncode), ("done\n", 0), done.stderr)

    def test_a_client_that_nobody_holds_ends(self) -> None:
        self.node()
        client = Client(self.path, logger=self.log)
        own = bytearray(8)
        client.register(own)
        before = threading.active_count()
        del client
        wait_for("its thread ends", lambda: threading.active_count() < before)
        wait_for("its memory is free", lambda: is_free(own))


def is_free(memory: bytearray) -> bool:
    try:
        memory.append(0)
    except BufferError:
        return False
    return True


class Regions(unittest.TestCase):
    def test_a_region_says_what_it_is(self) -> None:
        region = Region(1, 2, "pool", 10, True, None, None)
        self.assertEqual(repr(region), "<Region pool: 10 bytes, none>")
        self.assertTrue(region.registered)


if __name__ == "__main__":
    unittest.main()
