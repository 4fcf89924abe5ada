"""Calls that a signal handler ends with an exception, wherever they are: nothing of the client is lost with them."""

from __future__ import annotations

import os
import random
import signal
import time
import unittest
import unittest.mock
from collections.abc import Callable

from support import NodeTest, wait_for
from meshcache import Client, link
from meshcache._memory.copies import copy
from meshcache._memory.staging import Staging

PAGE = 1 << 18
PAGES = 64
ROUNDS = 120


class Interrupted(Exception):
    """What the signal handler raises."""


def interrupt(number: int, frame: object) -> None:
    raise Interrupted


class InterruptedCalls(NodeTest):
    def setUp(self) -> None:
        super().setUp()
        # The client attaches again without long pauses, however often a connection is lost.
        for name in ("_FIRST_DELAY_SECONDS", "_LAST_DELAY_SECONDS"):
            patch = unittest.mock.patch.object(link, name, 0.002)
            patch.start()
            self.addCleanup(patch.stop)
        earlier = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, earlier)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def interrupted(self, call: Callable[[], object], seconds: float) -> bool:
        """Whether the call was interrupted: it may be over before."""
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            return True
        return False

    def assert_serves(self, client: Client, call: Callable[[], list[bool]], seed: int) -> None:
        """The client soon moves all pages again, and its staging memory is free then."""

        def is_free() -> bool:
            attachment = client._link.current()
            staging = attachment.staging if attachment is not None else None
            client.ping()
            return staging is not None and staging.free_bytes == staging.length

        wait_for(f"pages of a staged call, seed {seed}", lambda: all(call()))
        wait_for(f"free staging memory, seed {seed}", is_free)

    def test_staged_calls_at_any_moment(self) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random_ = random.Random(seed)
        self.node(capabilities=2)
        client = self.client(mode="staged", staging_bytes=8 * PAGE, required=True)
        region = client.register(bytearray(PAGE * PAGES))
        keys = [f"key-{index}" for index in range(PAGES)]
        pages = [[(region, index * PAGE, PAGE)] for index in range(PAGES)]

        def write() -> list[bool]:
            return client.set_from(keys, pages)

        def read() -> list[bool]:
            return client.get_into(keys, pages)

        for call in (write, read):
            self.assert_serves(client, call, seed)
            began = time.monotonic()
            call()
            lasts = time.monotonic() - began
            count = 0
            for _ in range(ROUNDS):
                # An interruption may cost the connection; without one there is nothing to interrupt.
                wait_for(f"a connection, seed {seed}", lambda: client.ping())
                count += self.interrupted(call, random_.uniform(1e-5, lasts))
            self.assertGreater(count, 0)
            self.assert_serves(client, call, seed)

    def test_copies_into_slots(self) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random_ = random.Random(seed)
        self.node(capabilities=2)
        client = self.client(mode="staged", staging_bytes=8 * 4096, required=True)
        region = client.register(bytearray(4096 * PAGES))
        keys = [f"key-{index}" for index in range(PAGES)]
        pages = [[(region, index * 4096, 4096)] for index in range(PAGES)]
        for call in (client.set_from, client.get_into):
            for _ in range(20):
                effects = [unittest.mock.DEFAULT] * random_.randrange(PAGES) + [Interrupted()]
                with unittest.mock.patch("meshcache._moves.staged.copy", wraps=copy, side_effect=effects):
                    self.assertRaises(Interrupted, call, keys, pages)
            self.assertEqual(call(keys, pages), [True] * PAGES, f"seed {seed}")
        self.assertEqual(client.stats()["connections_lost"], 0)
        self.assert_serves(client, lambda: client.get_into(keys, pages), seed)


class Slots(unittest.TestCase):
    def test_a_slot_is_free_when_nobody_refers_to_it(self) -> None:
        descriptor = os.memfd_create("staging")
        os.ftruncate(descriptor, 4096)
        staging = Staging(descriptor, 4096)
        slots = [staging.allocate(1000) for _ in range(4)]
        self.assertEqual([slot and slot.offset for slot in slots], [0, 1024, 2048, 3072])
        self.assertEqual((staging.allocate(1), staging.free_bytes), (None, 0))
        slots[1] = slots[2] = None
        self.assertEqual(staging.free_bytes, 2048)
        self.assertIsNone(staging.allocate(2049))
        slots[1] = staging.allocate(2048)
        self.assertEqual(slots[1] and slots[1].offset, 1024)
        slots.clear()
        self.assertEqual(staging.free_bytes, 4096)
        staging.close()
        self.assertIsNone(staging.allocate(1))

    def test_nobody_is_served_before_those_who_wait(self) -> None:
        descriptor = os.memfd_create("staging")
        os.ftruncate(descriptor, 4096)
        staging = Staging(descriptor, 4096)
        slots = [staging.allocate(2048), staging.allocate(1024)]
        first, second = staging.line_up(), staging.line_up()
        self.assertIsNone(staging.allocate(4096, first))
        # There is room, but not for the first in line.
        self.assertEqual((staging.allocate(64), staging.allocate(64, second)), (None, None))
        slots.clear()
        staging.call_first()
        started = time.monotonic()
        first.wait(30)
        self.assertLess(time.monotonic() - started, 20)
        self.assertIsNone(staging.allocate(64, second))
        slots = [staging.allocate(4000, first)]
        self.assertIsNotNone(slots[0])
        del first
        self.assertIsNotNone(staging.allocate(64, second))
        self.assertIsNone(staging.allocate(64))
        del second
        self.assertIsNotNone(staging.allocate(64))


if __name__ == "__main__":
    unittest.main()
