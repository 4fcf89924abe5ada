"""Pages as objects: through staging memory where the node gives any, else on the socket, in slices."""

from __future__ import annotations

import random
import struct
import threading
import unittest
from typing import Any

from support import NodeTest, wait_for
from meshcache import Client, RegionError
from meshcache._memory.copies import bytes_of, copy
from meshcache._memory.memory import Memory
from meshcache._wire.protocol import ASK_AGAIN, MISS
from meshcache._moves.slices import Limits, Slices

PAGE = 4096
#: Takes descriptors, gives staging memory and reads into it: a node of today.
WHOLE = 3 | 1024
#: Options of the fake node, settings of the client, and how objects are set and read then.
WAYS: tuple[tuple[dict[str, Any], dict[str, Any], str, str], ...] = (
    ({"capabilities": WHOLE}, {}, "staged", "staged"),
    ({"capabilities": WHOLE}, {"mode": "direct"}, "staged", "staged"),
    ({"capabilities": WHOLE, "max_keys": 3, "max_in_flight": 2}, {"staging_bytes": 8 * PAGE}, "staged", "staged"),
    ({"capabilities": WHOLE, "max_body_bytes": 3 * PAGE}, {"mode": "staged"}, "staged", "staged"),
    # A node that does not know how to read pages of any length into staging memory.
    ({"capabilities": 3}, {}, "staged", "bytes"),
    ({"capabilities": 0}, {}, "bytes", "bytes"),
    ({"capabilities": WHOLE}, {"mode": "bytes"}, "bytes", "bytes"),
    ({"capabilities": 0, "max_body_bytes": 3 * PAGE, "max_in_flight": 2}, {}, "bytes", "bytes"),
)


def page(index: int, size: int) -> bytes:
    return struct.pack("<I", index) * (size // 4) + bytes(size % 4)


def moved(client: Client) -> dict[str, int]:
    """Bytes moved so far, by name; those that are none are left out."""
    return {name: count for name, count in client.stats().items() if name.startswith("bytes_") and count > 0}


class Objects(NodeTest):
    def test_objects_go_the_best_way_there_is(self) -> None:
        for options, settings, setting, getting in WAYS:
            with self.subTest(options=options, settings=settings):
                node = self.node(**options)
                client = self.client(**settings)
                pages = {f"k{index}": page(index, size) for index, size in enumerate([1, PAGE, 7, PAGE - 1, 3000] * 8)}
                self.assertEqual(client.set_many(pages), [True] * len(pages))
                self.assertEqual(client.get_many([*pages, "no", "k1"]), [*pages.values(), None, pages["k1"]])
                self.assertEqual(client.set("view", memoryview(bytearray(b"abc"))), True)
                self.assertEqual(client.get("view"), b"abc")
                size = sum(map(len, pages.values()))
                expected = {f"bytes_written_{setting}": size + 3, f"bytes_read_{getting}": size + PAGE + 3}
                self.assertEqual(moved(client), expected)
                counts = client.stats()
                names = ("sets", "sets_failed", "hits", "misses")
                self.assertEqual([counts[name] for name in names], [len(pages) + 1, 0, len(pages) + 2, 1])
                client.close()
                node.kill()

    def test_what_staging_memory_cannot_hold_goes_on_the_socket(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client(staging_bytes=2 * PAGE)
        pages = {"short": b"s", "exact": page(1, 2 * PAGE), "long": page(2, 2 * PAGE + 1), "last": b"l"}
        self.assertEqual(client.set_many({"none": b""} | pages), [False] + [True] * 4)
        self.assertEqual(client.get_many(["none", *pages]), [None, *pages.values()])
        expected = {
            "bytes_written_staged": 2 * PAGE + 2,
            "bytes_written_bytes": 2 * PAGE + 1,
            "bytes_read_staged": 2 * PAGE + 2,
            "bytes_read_bytes": 2 * PAGE + 1,
        }
        self.assertEqual(moved(client), expected)

    def test_regions_are_cut_as_objects_are(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client(mode="staged", staging_bytes=2 * PAGE)
        memory = bytearray(page(5, 8 * PAGE))
        region = client.register(memory)
        pieces = [[(region, 0, PAGE)], [(region, PAGE, 3 * PAGE)], [(region, 4 * PAGE, 1)]]
        self.assertEqual(client.set_from(["a", "b", "c"], pieces), [True] * 3)
        before = bytes(memory)
        memory[:] = bytes(8 * PAGE)
        self.assertEqual(client.get_into(["a", "b", "c"], pieces), [True] * 3)
        self.assertEqual(memory[: 4 * PAGE + 1], before[: 4 * PAGE + 1])
        moved_by_way = {"bytes_written_staged": PAGE + 1, "bytes_written_bytes": 3 * PAGE}
        self.assertEqual({name: moved(client)[name] for name in moved_by_way}, moved_by_way)

    def test_memory_of_the_process_need_not_be_registered(self) -> None:
        for options, settings, way, _ in WAYS:
            with self.subTest(options=options, settings=settings):
                node = self.node(**options)
                client = self.client(**settings)
                source, target = bytearray(page(3, PAGE)), bytearray(PAGE)
                start, end = Memory(source).address, Memory(target).address
                process = client.process_memory
                parts = [[(process, start, 1), (process, start + 1, PAGE - 1)]]
                self.assertEqual(client.set_from(["a"], parts), [True])
                self.assertEqual(client.get_into(["a"], [[(process, end, PAGE)]]), [True])
                self.assertEqual(target, source)
                self.assertEqual(client.get_into(["a"], [[(process, end, PAGE - 1)]]), [False])
                self.assertEqual(moved(client), {f"bytes_written_{way}": PAGE, f"bytes_read_{way}": PAGE})
                self.assertEqual(client.stats()["regions"], [])
                with self.assertRaises(RegionError):
                    client.unregister(process)
                client.close()
                self.assertEqual(target, source)
                node.kill()

    def test_pages_that_change_their_length_are_read(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client(staging_bytes=16 * PAGE)
        seed = random.SystemRandom().randrange(1 << 30)
        print("seed", seed)
        source = random.Random(seed)
        for _ in range(20):
            pages = {f"k{i}": page(i, source.choice([1, 100, PAGE, 5 * PAGE, 16 * PAGE])) for i in range(30)}
            self.assertEqual(client.set_many(pages), [True] * 30)
            self.assertEqual(client.get_many(list(pages)), list(pages.values()))

    def test_a_batch_of_any_size_is_moved(self) -> None:
        for mode in ("bytes", "auto"):
            with self.subTest(mode):
                node = self.node(capabilities=WHOLE, max_in_flight=3)
                client = self.client(mode=mode)
                # More than one body and all staging memory may have.
                pages = [page(index, 1 << 20) for index in range(96)]
                keys = [f"k{index}" for index in range(96)]
                self.assertEqual(client.set_many(keys, pages), [True] * 96)
                self.assertEqual(client.get_many(keys), pages)
                client.close()
                node.kill()

    def test_a_slice_that_is_not_answered_in_time_is_false_and_the_others_are_not(self) -> None:
        for mode in ("bytes", "auto"):
            with self.subTest(mode):
                node = self.node(capabilities=WHOLE, max_keys=2)
                client = self.client(mode=mode)
                keys = ["a", "b", "hold", "c", "d", "e"]
                self.assertEqual(client.set_many(keys[:2] + keys[3:], [b"1"] * 5), [True] * 5)
                flags = client.set_many(keys, [b"2"] * 6, timeout=0.9)
                self.assertEqual(flags[:4], [True, True, False, False])
                # The node may have been taken for silent meanwhile.
                wait_for("an answer", client.ping)
                self.assertEqual(client.get_many(keys, timeout=0.9)[:4], [b"2", b"2", None, None])
                client.close()
                node.kill()

    def test_a_place_outside_of_the_room_is_a_miss(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client()
        self.assertTrue(client.set("a", b"1"))
        for wrong in (struct.pack("<II", 0, 1 << 31), struct.pack("<II", 1 << 30, 1), b"", bytes(16)):
            self.assertIsNone(client.get(f"body={wrong.hex()}"))
        self.assertIsNone(client.get(f"body={struct.pack('<II', MISS, 5).hex()}"))
        # It says for ever that there is no room: it is believed so often, and no more.
        self.assertIsNone(client.get(f"body={struct.pack('<II', ASK_AGAIN, 8).hex()}"))
        self.assertEqual(client.get("a"), b"1")

    def test_threads_share_staging_memory(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client(staging_bytes=4 * PAGE)
        wrong: list[int] = []

        def work(thread: int) -> None:
            for turn in range(20):
                keys = [f"{thread}-{turn}-{index}" for index in range(8)]
                pages = [page(thread * 1000 + index, PAGE) for index in range(8)]
                if client.set_many(keys, pages) != [True] * 8 or client.get_many(keys) != pages:
                    wrong.append(thread)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        staging = client._link.current()
        assert staging is not None and staging.staging is not None
        self.assertEqual(staging.staging.free_bytes, 4 * PAGE)

    def test_an_answer_that_comes_late_changes_no_object(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client(staging_bytes=PAGE)
        self.assertTrue(client.set("a", page(1, PAGE)))
        for _ in range(5):
            self.assertIsNone(client.get("hold", timeout=0.05))
            wait_for("the slot is free", lambda: client.get("a") == page(1, PAGE))

    def test_a_new_connection_has_new_staging_memory(self) -> None:
        self.node(capabilities=WHOLE)
        client = self.client()
        for turn in range(3):
            self.assertIsNone(client.get("close"))
            wait_for("service again", lambda: client.set(f"k{turn}", b"1") is True)
            self.assertEqual(client.get(f"k{turn}"), b"1")
        self.assertEqual(moved(client), {"bytes_written_staged": 3, "bytes_read_staged": 3})


class Parts(unittest.TestCase):
    def test_slices_are_bounded_by_keys_body_and_bytes(self) -> None:
        keys = [f"{index:04}" for index in range(10)]
        wide = Limits(100, 1 << 20, 1 << 20)

        def cut(slices: Slices, limits: Limits) -> list[tuple[list[int], int]]:
            parts = []
            while not slices.is_empty:
                parts.append(slices.next(limits))
            return parts

        sizes = [5, 1, 1, 3, 9, 1, 1, 1, 1, 1]
        self.assertEqual(cut(Slices(keys, sizes), wide), [(list(range(10)), 24)])
        self.assertEqual(
            cut(Slices(keys, sizes), Limits(100, 1 << 20, 5)),
            [([0], 5), ([1, 2, 3], 5), ([4], 9), ([5, 6, 7, 8, 9], 5)],
        )
        self.assertEqual([len(part) for part, _ in cut(Slices(keys, sizes), Limits(4, 1 << 20, 99))], [4, 4, 2])
        self.assertEqual([len(part) for part, _ in cut(Slices(keys, sizes), Limits(99, 1024 + 70, 99))], [2] * 5)

    def test_what_had_no_room_is_asked_for_next_and_not_for_ever(self) -> None:
        slices = Slices(["a", "b", "c", "d"], guess=10)
        limits = Limits(100, 1 << 20, 20)
        self.assertEqual(slices.next(limits), ([0, 1], 20))
        slices.ask_again([0, 1], [15, 30])
        self.assertEqual([slices.next(limits) for _ in range(3)], [([0], 15), ([1], 30), ([2, 3], 20)])
        for _ in range(10):
            slices.ask_again([1], [30])
            indices, _ = slices.next(limits)
            if not indices:
                break
        self.assertTrue(slices.is_empty)
        self.assertEqual(slices.next(limits), ([], 0))

    def test_copies_of_memory_are_whole(self) -> None:
        for size in (0, 1, 4095, 1 << 20, (1 << 20) + 3, 5 << 20):
            data = random.Random(size).randbytes(size)
            made = bytes_of(memoryview(data))
            self.assertEqual(made, data)
            self.assertIsInstance(made, bytes)
            self.assertEqual(hash(made), hash(data))

    def test_copies_between_memories_are_whole(self) -> None:
        for size in (1, 4096, 1 << 16, (1 << 16) + 1, 1 << 20):
            data = random.Random(size).randbytes(size)
            for source in (data, bytearray(data)):
                target = bytearray(size + 2)
                copy(memoryview(target)[1:-1], memoryview(source))
                self.assertEqual(target, b"\0" + data + b"\0")
                # No view of either memory is left, so its length may change.
                target.append(0)


if __name__ == "__main__":
    unittest.main()
