"""How the LMCache plug-in finds the file behind memory, and notices when it is another one."""

from __future__ import annotations

import ctypes
import mmap
import os
import unittest
from typing import Any

import lmcache_support  # noqa: F401  (finds the package)

from meshcache._memory.memory import Memory
from meshcache.lmcache.memory import PoolMemory, extent_at

PAGE = mmap.PAGESIZE

MAPS = b"""\
00400000-00500000 rw-p 00000000 00:00 0          [heap]
00500000-00600000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 rw-s 00000000 00:1b 7                          /dev/shm/lmcache_l1_pool_x
7f0000001000-7f0000003000 rw-s 00001000 00:1b 7                          /dev/shm/lmcache_l1_pool_x
7f0000003000-7f0000004000 rw-s 00000000 00:1b 8                          /dev/shm/other (deleted)
7f0000004000-7f0000005000 r--p 00000000 00:1b 8                          /dev/shm/other (deleted)
7f0000006000-7f0000007000 r--s 00002000 00:1b 9                          /x y
"""

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class Client:
    """Notes what is registered."""

    def __init__(self) -> None:
        self.registered: list[tuple[int, int, str]] = []
        self.unregistered = 0

    def register(self, memory: Any, *, writable: bool = True, name: str = "") -> Any:
        self.registered.append((ctypes.addressof(memory), ctypes.sizeof(memory), name))
        return len(self.registered)

    def unregister(self, region: Any) -> None:
        self.unregistered += 1


def file_of(size: int) -> int:
    """A descriptor of shared memory of its own."""
    descriptor = os.memfd_create("pool")
    os.ftruncate(descriptor, size)
    return descriptor


def view(address: int, size: int) -> Memory:
    return Memory(memoryview((ctypes.c_ubyte * size).from_address(address)))


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class ExtentTest(unittest.TestCase):
    def test_lines_of_one_mapping_are_one_extent(self) -> None:
        for address, start, end, file, writable, name in [
            (0x450000, 0x400000, 0x600000, None, True, "[heap]"),
            (0x7F0000000000, 0x7F0000000000, 0x7F0000003000, (b"00:1b", b"7", 0), True, "lmcache_l1_pool_x"),
            (0x7F0000002FFF, 0x7F0000000000, 0x7F0000003000, (b"00:1b", b"7", 0), True, "lmcache_l1_pool_x"),
            (0x7F0000003000, 0x7F0000003000, 0x7F0000004000, (b"00:1b", b"8", 0), True, "other (deleted)"),
            (0x7F0000004FFF, 0x7F0000004000, 0x7F0000005000, None, False, "other (deleted)"),
            (0x7F0000006000, 0x7F0000006000, 0x7F0000007000, (b"00:1b", b"9", 0x2000), False, "x y"),
        ]:
            extent = extent_at(MAPS, address)
            assert extent is not None
            self.assertEqual((extent.start, extent.end, extent.file), (start, end, file))
            self.assertEqual((extent.is_writable, extent.name), (writable, name))
            self.assertIn(extent.lines, MAPS)
        for address in (0, 0x3FFFFF, 0x7F0000005000, 0x7F0000007000, 1 << 63):
            self.assertIsNone(extent_at(MAPS, address))
        self.assertIsNone(extent_at(b"", 4096))


class PoolMemoryTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.memory = PoolMemory(self.client)  # type: ignore[arg-type]

    def test_a_shared_mapping_is_one_region(self) -> None:
        descriptor = file_of(16 * PAGE)
        pool = mmap.mmap(descriptor, 16 * PAGE)
        os.close(descriptor)
        base = address_of(pool)
        for _ in range(2):
            pieces = self.memory.pieces([view(base + 100, 50), view(base + 5 * PAGE, PAGE)])
            self.assertEqual(pieces, [(1, 100, 50), (1, 5 * PAGE, PAGE)])
        # The kernel cuts the mapping in three, as when a part of it is locked.
        self.assertEqual(libc.madvise(ctypes.c_void_p(base + 4 * PAGE), ctypes.c_size_t(PAGE), 10), 0)
        self.assertEqual(self.memory.pieces([view(base, 16 * PAGE)]), [(1, 0, 16 * PAGE)])
        self.assertEqual(self.client.registered, [(base, 16 * PAGE, "memfd:pool (deleted)")])
        self.assertEqual(self.client.unregistered, 0)

    def test_another_file_at_the_same_address_is_another_region(self) -> None:
        first, second = file_of(PAGE), file_of(PAGE)
        pool = mmap.mmap(first, PAGE)
        base = address_of(pool)
        self.assertEqual(self.memory.pieces([view(base, 10)]), [(1, 0, 10)])
        shared, fixed = mmap.MAP_SHARED, 0x10
        for descriptor, region in [(second, 2), (first, 3)]:
            found = libc.mmap(base, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, shared | fixed, descriptor, 0)
            self.assertEqual(found, base)
            self.assertEqual(self.memory.pieces([view(base, 10)]), [(region, 0, 10)])
            self.assertEqual(self.client.unregistered, region - 1)
        # And private memory, which only this process touches.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.assertEqual(libc.mmap(base, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, private | fixed, -1, 0), base)
        self.assertEqual(self.memory.pieces([view(base, 10)]), [(4, base, 10)])
        self.assertEqual(self.client.unregistered, 3)
        os.close(first)
        os.close(second)

    def test_private_memory_is_one_region_with_addresses_as_offsets(self) -> None:
        buffers = [bytearray(100), bytearray(1 << 20)]
        memories = [Memory(memoryview(buffer)) for buffer in buffers]
        for _ in range(2):
            pieces = self.memory.pieces(memories)
            self.assertEqual(pieces, [(1, memory.address, memory.length) for memory in memories])
        self.assertEqual(len(self.client.registered), 1)
        self.assertEqual(self.memory.pieces([]), [])

    def test_a_view_beyond_a_shared_mapping_is_private(self) -> None:
        """The end of one mapping and the start of its neighbour are no memory that a node could map."""
        descriptor = file_of(PAGE)
        private = mmap.mmap(-1, 4 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = address_of(private) + PAGE
        found = libc.mmap(base, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | 0x10, descriptor, 0)
        self.assertEqual(found, base)
        self.assertEqual(self.memory.pieces([view(base - 10, 20)]), [(1, base - 10, 20)])
        self.assertEqual(self.memory.pieces([view(base + 10, 20)]), [(2, 10, 20)])
        os.close(descriptor)


if __name__ == "__main__":
    unittest.main()
