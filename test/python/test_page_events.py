"""Page events of clients: of a fake node, and of real ones."""

from __future__ import annotations

import os
import random
import threading
import unittest
from collections.abc import Callable

import sglang_node
from sglang_node import Node
from support import NodeTest, wait_for

from meshcache import Client, ClosedError, NotAvailable, PageChange, PageEvent, PageEventStream, PageList
from meshcache.events import kv_event_batch, kv_events

#: With MESHCACHE_TEST_SEED a run is repeated.
SEED = int(os.environ.get("MESHCACHE_TEST_SEED", random.randrange(1 << 32)))

HAS_EVENTS = {"capabilities": 64 | 3}


class Follower:
    """Keeps a list from a stream, in a thread of its own."""

    def __init__(self, stream: PageEventStream) -> None:
        self.stream = stream
        self.list = PageList()
        self.kinds: list[str] = []
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        for event in self.stream:
            self.list.take(event)
            self.kinds.append(event.kind)

    def end(self) -> None:
        self.stream.close()
        self.thread.join(10)

    @property
    def keys(self) -> set[tuple[str, str | bytes]]:
        return set(self.list.pages)


class OfAFakeNode(NodeTest):
    def test_a_list_comes_in_parts_with_strings_bytes_and_pools(self) -> None:
        self.node(**HAS_EVENTS)
        client = self.client()
        client.set_many(["a", "b"], [b"1", b"2"])
        client.set(b"\0\xff", b"3")
        client.set("m", b"4", pool="mamba")
        client.set("n", b"5", pool="another")
        events = client.page_events(pools=["kv", "mamba"])
        self.assertEqual(next(events), PageEvent("reset"))
        listed = next(events)
        self.assertEqual(listed.kind, "listed")
        self.assertEqual(
            set(listed.changes),
            {
                PageChange("a", "kv", "memory"),
                PageChange("b", "kv", "memory"),
                PageChange(b"\0\xff", "kv", "memory"),
                PageChange("m", "mamba", "memory"),
            },
        )
        self.assertEqual(next(events), PageEvent("complete", position="fake-1"))

    def test_a_stream_ends_when_it_or_its_client_is_closed_while_a_thread_waits(self) -> None:
        for close in (lambda client, stream: stream.close(), lambda client, stream: client.close()):
            node = self.node(**HAS_EVENTS)
            client = self.client()
            follower = Follower(client.page_events())
            wait_for("the list is whole", lambda: follower.list.is_complete)
            close(client, follower.stream)
            follower.thread.join(10)
            self.assertFalse(follower.thread.is_alive())
            self.assertEqual(list(follower.stream), [])
            node.kill()
        with self.assertRaises(ClosedError):
            client.page_events()

    def test_without_a_node_it_waits_for_one(self) -> None:
        client = self.client(connect_timeout=0.2)
        follower = Follower(client.page_events())
        self.wait_for_log("no page events from")
        self.node(**HAS_EVENTS)
        wait_for("the list is whole", lambda: follower.list.is_complete)
        self.assertTrue(follower.stream.is_connected)
        follower.end()
        self.assertFalse(follower.stream.is_connected)

    def test_a_node_without_page_events_is_named(self) -> None:
        self.node()
        with self.assertRaisesRegex(NotAvailable, "fake-node has version 0.0.0, which has no page events"):
            next(self.client().page_events())

    def test_arguments_that_cannot_be(self) -> None:
        client = self.client(connect_timeout=0.1)
        with self.assertRaises(TypeError):
            client.page_events(7)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            client.page_events(pools="kv")
        for pools in ([], [str(number) for number in range(9)]):
            with self.assertRaisesRegex(ValueError, "must name 1 to 8 pools"):
                client.page_events(pools=pools)

    def test_a_child_process_goes_on_with_a_connection_of_its_own(self) -> None:
        self.node(**HAS_EVENTS)
        events = self.client().page_events()
        self.assertEqual(next(events).kind, "reset")
        child = os.fork()
        if child == 0:
            os._exit(0 if next(events).kind == "reset" and next(events).kind == "complete" else 1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        self.assertEqual(next(events).kind, "complete")


class AsKvEvents(unittest.TestCase):
    def test_each_kind_has_its_form(self) -> None:
        changes = (
            PageChange("a", "kv", "memory"),
            PageChange(b"b", "kv", "memory"),
            PageChange("c", "kv", "disk"),
            PageChange("d", "kv", None),
        )
        unknown = {"parent_block_hash": None, "token_ids": [], "block_size": 0, "lora_id": None}
        events = [
            {"type": "BlockStored", "block_hashes": ["a", b"b"], **unknown, "medium": "CPU"},
            {"type": "BlockStored", "block_hashes": ["c"], **unknown, "medium": "DISK"},
            {"type": "BlockRemoved", "block_hashes": ["d"], "medium": None},
        ]
        self.assertEqual(kv_events(PageEvent("changed", changes, "x-1", 12.5)), events)
        self.assertEqual(kv_event_batch(PageEvent("changed", changes, "x-1", 12.5), 3), (12.5, events, 3))
        self.assertEqual(kv_events(PageEvent("reset")), [{"type": "AllBlocksCleared"}])
        self.assertEqual(kv_event_batch(PageEvent("complete", position="x-1")), (0.0, [], None))


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class OfRealNodes(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.addCleanup(self.node.remove)

    def client(self, node: Node, tag: str = "events") -> Client:
        client = Client(node.client_socket, namespace={"tag": tag}, timeout=60.0)
        self.addCleanup(client.close)
        return client

    def test_a_list_is_kept_through_a_lost_connection_and_a_restart(self) -> None:
        client = self.client(self.node)
        self.assertTrue(client.set("a", b"1"))
        self.assertTrue(client.set(b"a", b"2"))
        self.assertTrue(self.client(self.node, "another namespace").set("b", b"3"))
        follower = Follower(client.page_events())
        self.addCleanup(follower.end)
        wait_for("both are listed", lambda: follower.keys == {("kv", "a"), ("kv", b"a")})
        wait_for("the list is whole", lambda: follower.list.is_complete)
        # A stream that has lost its connection goes on after its position.
        connection = follower.stream._connection
        assert connection is not None
        connection.fail("cut by the test")
        self.assertEqual(client.delete(["a"]), [True])
        wait_for("one is gone", lambda: follower.keys == {("kv", b"a")})
        self.assertEqual(follower.kinds.count("reset"), 1)
        self.node.kill()
        self.node.start()
        wait_for("the node is back", lambda: client.set("c", b"4"))
        wait_for("the list is that of the new start", lambda: follower.keys == {("kv", "c")})
        self.assertEqual(follower.kinds.count("reset"), 2)

    def test_a_later_program_goes_on_after_a_position_or_knows_that_it_cannot(self) -> None:
        client = self.client(self.node)
        client.set("a", b"1")
        first = Follower(client.page_events())
        wait_for("the list is whole", lambda: first.list.is_complete)
        first.end()
        client.set("b", b"2")
        later = Follower(self.client(self.node).page_events(first.list.position))
        wait_for("what was missed has come", lambda: ("kv", "b") in later.keys)
        later.end()
        self.assertEqual(later.kinds, ["changed"])
        lost = Follower(client.page_events("0-1"))
        wait_for("there is a list", lambda: lost.keys == {("kv", "a"), ("kv", "b")})
        lost.end()
        self.assertEqual(lost.kinds[0], "reset")

    def test_a_node_that_closes_is_told_by_its_own_words(self) -> None:
        # Cause: the last words of a node that closes were reported as a violation of the protocol.
        client = self.client(self.node)
        attachment = client._link.current()
        assert attachment is not None
        assert self.node._process is not None
        self.node._process.terminate()
        wait_for("the node is lost", lambda: attachment.connection.closed)
        self.assertEqual(attachment.connection.reason, "the node is closing")

    def test_random_calls_of_threads_while_the_stream_is_cut(self) -> None:
        chance = random.Random(SEED)
        client = self.client(self.node)
        follower = Follower(client.page_events())
        self.addCleanup(follower.end)

        def work(seed: int) -> None:
            own = random.Random(seed)
            for step in range(150):
                key = f"key {own.randrange(40)}"
                if own.random() < 0.7:
                    client.set(key, bytes(own.randrange(1, 5000)))
                else:
                    client.delete(key)

        threads = [threading.Thread(target=work, args=(chance.randrange(1 << 32),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            connection = follower.stream._connection
            if connection is not None:
                connection.fail("cut by the test")
            threads[0].join(chance.random() / 5)
        for thread in threads:
            thread.join()
        keys = [f"key {number}" for number in range(40)]
        expected: Callable[[], set[tuple[str, str | bytes]]] = lambda: {
            ("kv", key) for key, there in zip(keys, client.exists_many(keys)) if there
        }
        wait_for(f"the list is that of the node (seed {SEED})", lambda: follower.keys == expected())


if __name__ == "__main__":
    unittest.main()
