"""Finding the file behind memory."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import tempfile
import unittest

from support import shared_memory
from meshcache._memory.memory import Memory, find_backing, mapping_of

PAGE = mmap.PAGESIZE


class Backings(unittest.TestCase):
    def backing_bytes(self, memory: Memory) -> bytes:
        backing = find_backing(memory)
        assert backing is not None
        self.addCleanup(os.close, backing.descriptor)
        return os.pread(backing.descriptor, memory.length, backing.offset)

    def test_a_memfd_whose_descriptor_is_open(self) -> None:
        descriptor = os.memfd_create("pool")
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, 4 * PAGE)
        pool = mmap.mmap(descriptor, 2 * PAGE, offset=2 * PAGE)
        pool[5:8] = b"abc"
        memory = Memory(memoryview(pool)[5:8])
        backing = find_backing(memory)
        assert backing is not None
        self.addCleanup(os.close, backing.descriptor)
        self.assertEqual((backing.offset, backing.writable, memory.readonly), (2 * PAGE + 5, True, False))
        self.assertEqual(self.backing_bytes(memory), b"abc")
        # It is the same memory: what is written to the file is there.
        os.pwrite(backing.descriptor, b"xyz", backing.offset)
        self.assertEqual(pool[5:8], b"xyz")

    def test_read_only_views(self) -> None:
        pool = shared_memory(PAGE)
        pool[:3] = b"abc"
        memory = Memory(memoryview(pool).toreadonly()[:3])
        self.assertTrue(memory.readonly)
        self.assertEqual(self.backing_bytes(memory), b"abc")

    def test_a_file_with_a_name_and_no_descriptor(self) -> None:
        for folder in ("/dev/shm", None):
            with tempfile.NamedTemporaryFile(dir=folder) as file:
                file.truncate(PAGE)
                pool = mmap.mmap(file.fileno(), PAGE)
                os.pwrite(file.fileno(), b"named", 7)
                path = file.name
                os.link(path, f"{path}.kept")
            self.addCleanup(os.unlink, f"{path}.kept")
            os.rename(f"{path}.kept", path)
            self.addCleanup(os.rename, path, f"{path}.kept")
            found = mapping_of(Memory(pool).address, PAGE)
            assert found is not None
            if os.stat(path).st_dev != found.device:
                self.skipTest("this file system shows one device in the maps and another one in stat")
            self.assertEqual(self.backing_bytes(Memory(memoryview(pool)[7:12])), b"named")

    def test_mappings_that_the_kernel_shows_in_parts_are_one(self) -> None:
        pool = shared_memory(4 * PAGE)
        memory = Memory(pool)
        libc = ctypes.CDLL(None, use_errno=True)
        self.assertEqual(
            libc.mprotect(ctypes.c_void_p(memory.address + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ), 0
        )
        pool[0:1] = b"a"
        pool[3 * PAGE : 3 * PAGE + 1] = b"b"
        data = self.backing_bytes(memory)
        self.assertEqual((data[0], data[3 * PAGE]), (ord("a"), ord("b")))

    def test_private_and_anonymous_memory_has_none(self) -> None:
        descriptor = os.memfd_create("pool")
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, PAGE)
        private = mmap.mmap(descriptor, PAGE, flags=mmap.MAP_PRIVATE)
        for owner in (private, bytearray(PAGE), b"bytes", array.array("d", [0.0] * 512)):
            self.assertIsNone(find_backing(Memory(owner)))

    def test_the_buffer_is_held_and_let_go_of(self) -> None:
        owner = bytearray(8)
        memory = Memory(owner)
        with self.assertRaises(BufferError):
            owner.append(1)
        del memory
        owner.append(1)

    def test_what_is_no_memory_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "buffer protocol, .*got str"):
            Memory("text")
        with self.assertRaisesRegex(ValueError, "contiguous"):
            Memory(memoryview(bytearray(8))[::2])


if __name__ == "__main__":
    unittest.main()
