"""What a node does wrong: it freezes, dies, closes, answers late, or answers nonsense. Nothing of it raises, nothing writes late."""

from __future__ import annotations

import mmap
import os
import random
import signal
import threading
import time
import unittest
import unittest.mock
from collections.abc import Callable
from typing import Any, TypeVar

from support import PATIENCE_SECONDS, NodeTest, shared_memory, wait_for
from meshcache import Client, Region, link

PAGE = 4096
MARK = b"\xee" * PAGE
Result = TypeVar("Result")


class InThread:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.error = error

    @property
    def is_under_way(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise AssertionError("the call does not end")
        if self.error is not None:
            raise self.error
        return self.result


class LateWrites(NodeTest):
    """Direct mode: memory is the caller's again when a call returns, whatever the node does."""

    def pool(self, client: Client) -> tuple[Region, mmap.mmap]:
        memory = shared_memory(PAGE)
        region = client.register(memory)
        self.assertEqual(region.mode, "direct")
        return region, memory

    def check_nothing_is_written(self, memory: mmap.mmap) -> None:
        """The memory is used for something else at once, and stays so for longer than the fake node's late writes go on."""
        memory[:] = MARK
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            self.assertEqual(memory[:], MARK)

    def test_a_request_whose_time_is_over_is_cancelled_and_answered(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=PATIENCE_SECONDS)
        region, memory = self.pool(client)
        self.assertEqual(
            client.get_into(["hold", "b"], [[(region, 0, 10)], [(region, 10, 10)]], timeout=0.1), [False] * 2
        )
        stats = client.stats()
        self.assertEqual((stats["fences"], stats["nodes_ended"], stats["connections_lost"]), (1, 0, 0))
        self.assertIsNone(node.process.poll())

    def test_calls_whose_time_is_over_leave_one_line_of_their_kind(self) -> None:
        self.node()
        client = self.client(fence_timeout=PATIENCE_SECONDS)
        region, _ = self.pool(client)
        for _ in range(2):
            self.assertEqual(
                client.get_into(["hold", "b"], [(region, 0, 10), (region, 10, 10)], timeout=0.1), [False] * 2
            )
            self.assertIsNone(client.get("hold", timeout=0.1))
        self.assertTrue(client.set("a", b"1"))
        late = [line for line in self.lines if "deadline" in line]
        self.assertEqual(len(late), 2, late)
        said = r"WARNING %s has taken \d+\.\d\d s and ran into its deadline of 0.1 s: the rest are misses"
        self.assertRegex(late[0], said % "get_into of 2 keys")
        self.assertRegex(late[1], said % "get_many of 1 key")

    def test_a_call_returns_after_the_last_write_of_a_slow_node(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=PATIENCE_SECONDS)
        region, memory = self.pool(client)
        self.assertEqual(client.get_into(["late-write=800"], [[(region, 0, PAGE)]], timeout=0.05), [False])
        self.check_nothing_is_written(memory)
        self.assertIsNone(node.process.poll())
        self.assertTrue(client.ping())

    def test_a_set_returns_after_its_request_too(self) -> None:
        self.node()
        client = self.client(fence_timeout=PATIENCE_SECONDS)
        region, memory = self.pool(client)
        self.assertEqual(client.set_from(["late-write=800"], [[(region, 0, PAGE)]], timeout=0.05), [False])
        self.check_nothing_is_written(memory)

    def test_a_frozen_node_is_ended(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=0.1)
        region, memory = self.pool(client)
        self.assertEqual(client.get_into(["freeze"], [[(region, 0, PAGE)]], timeout=0.1), [False])
        self.assertEqual(node.process.wait(PATIENCE_SECONDS), -signal.SIGKILL)
        self.wait_for_log("ERROR node fake-node")
        self.assertEqual(client.stats()["nodes_ended"], 1)
        self.check_nothing_is_written(memory)

    def test_a_frozen_node_that_must_not_be_ended_blocks_until_it_ends(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=0.1, mode="direct", end_frozen_node=False)
        region, memory = self.pool(client)
        call = InThread(lambda: client.get_into(["freeze"], [[(region, 0, PAGE)]], timeout=0.1))
        self.wait_for_log("calls in progress wait until it ends")
        self.assertTrue(call.is_under_way)
        self.assertIsNone(node.process.poll())
        node.kill()
        self.assertEqual(call.end(), [False])
        self.check_nothing_is_written(memory)

    def test_a_frozen_node_that_goes_on_unblocks_its_calls(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=0.1, mode="direct", end_frozen_node=False)
        region, _ = self.pool(client)
        call = InThread(lambda: client.get_into(["freeze"], [[(region, 0, PAGE)]], timeout=0.1))
        self.wait_for_log("calls in progress wait until it ends")
        node.process.send_signal(signal.SIGCONT)
        self.assertEqual(len(call.end()), 1)
        wait_for("service again", lambda: client.set("a", b"1", timeout=1))

    def test_a_node_that_dies_under_a_call_is_a_miss_at_once(self) -> None:
        node = self.node()
        client = self.client()
        region, memory = self.pool(client)
        self.assertEqual(client.get_into(["write-then-die=50"], [[(region, 0, PAGE)]]), [False])
        self.check_nothing_is_written(memory)
        self.assertEqual(node.process.wait(PATIENCE_SECONDS), -signal.SIGKILL)
        self.assertEqual(client.stats()["nodes_ended"], 0)

    def test_a_healthy_node_that_closes_the_connection_is_not_ended(self) -> None:
        node = self.node()
        client = self.client()
        region, memory = self.pool(client)
        self.assertEqual(client.get_into(["close-and-write=700"], [[(region, 0, PAGE)]]), [False])
        self.check_nothing_is_written(memory)
        self.assertIsNone(node.process.poll())
        wait_for("the client is back", lambda: client.is_connected)
        self.assertEqual(client.stats()["nodes_ended"], 0)

    def test_a_lost_connection_is_no_proof_after_a_restart_beside_the_frozen_node(self) -> None:
        first = self.node()
        client = self.client(fence_timeout=0.1, mode="direct", end_frozen_node=False)
        region, memory = self.pool(client)
        call = InThread(lambda: client.get_into(["freeze"], [[(region, 0, PAGE)]], timeout=0.1))
        self.wait_for_log("calls in progress wait until it ends")
        # Another node takes the path, while the first one is only stopped and still has the memory.
        self.node()
        wait_for("the client attaches to the other node", lambda: client.is_connected and client.set("a", b"1"))
        self.assertTrue(call.is_under_way)
        first.kill()
        self.assertEqual(call.end(), [False])

    def test_closing_the_client_ends_its_calls_and_not_the_node(self) -> None:
        node = self.node()
        client = self.client(fence_timeout=PATIENCE_SECONDS)
        region, _ = self.pool(client)
        calls = [InThread(lambda: client.get_into(["hold"], [[(region, 0, PAGE)]])) for _ in range(3)]
        wait_for("the calls are under way", lambda: client.stats()["requests"] >= 3)
        client.close()
        self.assertEqual([call.end() for call in calls], [[False]] * 3)
        self.assertIsNone(node.process.poll())

    def test_a_file_that_was_cut_short_is_not_touched_again(self) -> None:
        self.node()
        client = self.client()
        descriptor = os.memfd_create("pool")
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, PAGE)
        region = client.register_fd(descriptor, PAGE)
        os.ftruncate(descriptor, 0)
        self.assertEqual(client.get_into(["status=3"], [[(region, 0, 1)]]), [False])
        self.assertEqual(region.mode, "none")
        self.assertEqual(client.set_from(["a"], [[(region, 0, 1)]]), [False])

    def test_a_region_that_the_node_has_lost_is_registered_anew(self) -> None:
        self.node()
        client = self.client()
        region, _ = self.pool(client)
        self.assertEqual(client.get_into(["status=2"], [[(region, 0, 1)]]), [False])
        wait_for("it works again", lambda: client.set_from(["a"], [[(region, 0, 1)]]) == [True])


class Staged(NodeTest):
    """Staged mode: the client just does not copy."""

    def test_a_frozen_node_costs_the_deadline_and_lives(self) -> None:
        node = self.node()
        client = self.client(mode="staged", staging_bytes=PAGE)
        own = bytearray(PAGE)
        region = client.register(own)
        self.assertEqual(client.get_into(["freeze"], [[(region, 0, PAGE)]], timeout=0.1), [False])
        # The slot is not given to another request before the first one is answered.
        self.assertEqual(client.get_into(["a"], [[(region, 0, PAGE)]], timeout=0.1), [False])
        self.assertIsNone(node.process.poll())
        node.process.send_signal(signal.SIGCONT)
        wait_for("service again", lambda: client.set("a", bytes(PAGE), timeout=1))
        wait_for("the slot is free", lambda: client.get_into(["a"], [[(region, 0, PAGE)]], timeout=0.5) == [True])

    def test_an_answer_that_comes_late_is_not_copied_and_frees_its_slot(self) -> None:
        self.node()
        client = self.client(mode="staged", staging_bytes=PAGE)
        own = bytearray(MARK)
        region = client.register(own)
        for _ in range(5):
            self.assertEqual(client.get_into(["hold"], [[(region, 0, PAGE)]], timeout=0.05), [False])
            wait_for("the slot is free", lambda: client.set_from(["a"], [[(region, 0, PAGE)]]) == [True])
        self.assertEqual(bytes(own), MARK)

    def test_the_staging_memory_of_a_new_connection_is_new(self) -> None:
        self.node()
        client = self.client(mode="staged", staging_bytes=PAGE)
        region = client.register(bytearray(MARK))
        for _ in range(3):
            self.assertEqual(client.get_into(["close"], [[(region, 0, PAGE)]]), [False])
            wait_for("service again", lambda: client.set_from(["a"], [[(region, 0, PAGE)]]) == [True])


class Nonsense(NodeTest):
    def setUp(self) -> None:
        super().setUp()
        # Connections that do not last are made again ever more slowly.
        patch = unittest.mock.patch.object(link, "_LAST_DELAY_SECONDS", 0.01)
        patch.start()
        self.addCleanup(patch.stop)

    #: Keys that make the fake node answer nonsense, and whether the connection can go on.
    FAULTS = (
        ("raw=00000000050000006300000000000000", False),  # an answer to request 99
        ("raw=ffffffff050000000100000000000000", False),  # a body of 4 GiB
        ("raw=03000000050001000000000000000000626164", False),  # id 0: the node says that the header was wrong
        ("raw-and-close=0300", False),  # half a header
        ("half", False),
        ("close", False),
        ("status=1", True),
        ("status=4", True),
        ("status=5", True),
        ("status=7", True),
        ("status=8", True),
        ("status=999", True),
        ("body=", True),
        ("body=" + "01" * 50, True),
        ("body=ffffffff", True),
    )

    def test_wrong_answers_are_misses(self) -> None:
        self.node()
        for mode in ("bytes", "staged", "direct"):
            client = self.client(mode=mode, end_frozen_node=False) if mode != "direct" else self.client()
            memory = shared_memory(PAGE)
            region = client.register(memory)
            for fault, goes_on in self.FAULTS:
                calls: list[tuple[Callable[[], Any], Any]] = [
                    (
                        lambda: client.get_into([fault, "b"], [[(region, 0, 1)], [(region, 1, 1)]], timeout=1),
                        [False] * 2,
                    ),
                    (
                        lambda: client.set_from([fault, "b"], [[(region, 0, 1)], [(region, 1, 1)]], timeout=1),
                        [False] * 2,
                    ),
                    (lambda: client.get_many([fault, "b"], timeout=1), [None] * 2),
                    (lambda: client.set_many([fault, "b"], [b"1", b"2"], timeout=1), [False] * 2),
                    (lambda: client.exists_many([fault, "b", "c"], timeout=1), [False] * 3),
                    (lambda: client.exists_prefix([fault, "b"], timeout=1), 0),
                    (lambda: client.delete_many([fault, "b"], timeout=1), [False] * 2),
                    (lambda: client.stat([fault, "b"], timeout=1), [None] * 2),
                ]
                for index, (call, expected) in enumerate(calls):
                    if mode == "direct" and fault == "half":
                        # Not answered at all: such a node is taken to be frozen.
                        continue
                    if not goes_on and index % 3 > 0:
                        continue
                    wait_for("the client is back", lambda: client.is_connected)
                    with self.subTest(mode=mode, fault=fault, call=index):
                        self.assertEqual(call(), expected)
                if goes_on:
                    self.assertTrue(client.is_connected)
                wait_for("service again", lambda: client.set("good", b"1", timeout=1))
            client.close()

    def test_random_answers_are_misses(self) -> None:
        self.node()
        seed = random.randrange(1 << 32)
        source = random.Random(seed)
        client = self.client(timeout=0.5, mode="staged")
        memory = shared_memory(PAGE)
        region = client.register(memory)
        for _ in range(30):
            body = source.randbytes(source.randrange(60)).hex()
            key = f"{source.choice(('raw', 'body', 'raw-and-close'))}={body}"
            wait_for("the client is back", lambda: client.is_connected)
            with self.subTest(seed=seed, key=key):
                self.assertEqual(len(client.get_into([key, "b"], [[(region, 0, 1)], [(region, 1, 1)]])), 2)
                self.assertEqual(len(client.exists_many([key, "b"])), 2)
                self.assertIn(client.get(key), (None, b""))


class Life(NodeTest):
    def test_a_node_that_is_killed_and_started_again_serves_again(self) -> None:
        node = self.node()
        client = self.client()
        memory = shared_memory(PAGE)
        region = client.register(memory)
        for _ in range(3):
            self.assertEqual(client.set_from(["a"], [[(region, 0, PAGE)]]), [True])
            node.kill()
            wait_for("the end is noticed, without a call", lambda: not client.is_connected)
            self.assertEqual(client.get_into(["a"], [[(region, 0, PAGE)]]), [False])
            self.assertEqual((client.exists("a"), client.get("a"), client.mode), (False, None, "none"))
            node = self.node()
            wait_for("the client is back", lambda: client.is_connected)
            self.assertEqual((region.mode, client.exists("a")), ("direct", False))
        self.assertEqual(sum("WARNING lost node fake-node" in line for line in self.lines), 3)
        self.assertEqual(sum(line.startswith("INFO attached again") and "restarted" in line for line in self.lines), 3)
        self.assertEqual(client.stats()["reconnects"], 3)

    def test_a_node_that_takes_nothing_costs_the_deadline(self) -> None:
        self.node()
        client = self.client()
        self.assertEqual(client.exists_prefix(["deaf"], timeout=0.2), 0)
        began = time.monotonic()
        self.assertFalse(client.set("large", bytes(32 << 20), timeout=0.3))
        self.assertIsNone(client.get("a", timeout=0.3))
        # Far more than the deadlines, and far less than other time-outs here.
        self.assertLess(time.monotonic() - began, PATIENCE_SECONDS / 2)

    def test_calls_of_a_silent_node_cost_nothing_until_it_speaks(self) -> None:
        node = self.node()
        client = self.client(connect_timeout=0.5)
        self.assertEqual(client.exists_prefix(["freeze"], timeout=1.5), 0)
        calls = 0
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            self.assertFalse(client.exists("a"))
            calls += 1
        self.assertGreater(calls, 10)
        node.process.send_signal(signal.SIGCONT)
        wait_for("service again", lambda: client.set("a", b"1", timeout=1))

    def test_a_node_that_is_frozen_does_not_respond_and_one_that_is_at_work_does(self) -> None:
        node = self.node(capabilities=3)
        client = self.client()
        self.assertTrue(client.is_responsive)
        held = InThread(lambda: client.set("hold", b"1", timeout=1.0))
        began = time.monotonic()
        while time.monotonic() - began < 0.6:
            # One answer may be late on a busy machine, and comes then.
            wait_for("a node that is at work", lambda: client.is_responsive)
        self.assertFalse(held.end())
        frozen = InThread(lambda: client.exists_prefix(["freeze"], timeout=PATIENCE_SECONDS))
        wait_for("silence", lambda: not client.is_responsive)
        calls = 0
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            calls += not client.is_responsive
        self.assertGreater(calls, 10)
        node.process.send_signal(signal.SIGCONT)
        wait_for("service again", lambda: client.is_responsive)
        frozen.end()
        client.close()
        self.assertFalse(client.is_responsive)

    def test_threads_survive_a_node_that_comes_and_goes(self) -> None:
        node = self.node()
        client = self.client(timeout=2.0)
        memory = shared_memory(8 * PAGE)
        region = client.register(memory)
        stop = threading.Event()

        def work(index: int) -> int:
            calls = 0
            while not stop.is_set():
                piece = [[(region, index * PAGE, PAGE)]]
                if len(client.get_into(["a"], piece)) != 1 or len(client.set_from([f"k{index}"], piece)) != 1:
                    raise AssertionError("a list of another length")
                client.exists_prefix(["a", "b"])
                calls += 1
            return calls

        calls = [InThread(lambda index=index: work(index)) for index in range(8)]  # type: ignore[misc]
        for _ in range(5):
            wait_for("the client is back", lambda: client.is_connected)
            node.kill()
            node = self.node()
        stop.set()
        for call in calls:
            self.assertGreater(call.end(), 0)


if __name__ == "__main__":
    unittest.main()
