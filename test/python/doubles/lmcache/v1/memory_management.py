"""L1 memory: a pool in a file of shared memory, or private memory, and objects in it."""

from __future__ import annotations

import ctypes
import mmap
import os


class L1Pool:
    """The pool of `lmcache server --shm-name NAME --no-l1-use-lazy`; without a name, memory that is not shared."""

    def __init__(self, size: int, shm_name: str = "") -> None:
        self.path = f"/dev/shm/lmcache_l1_pool_{shm_name}" if shm_name else ""
        if self.path:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            os.ftruncate(descriptor, size)
            self.memory = mmap.mmap(descriptor, size)
            os.close(descriptor)
        else:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def allocate(self, offset: int, size: int) -> TensorMemoryObj:
        """An object at an offset, which the caller manages."""
        assert 0 <= offset and offset + size <= len(self.memory)
        return TensorMemoryObj(self, offset, size)

    def close(self) -> None:
        """Removes the file. Who has mapped it keeps it."""
        if self.path:
            os.unlink(self.path)
            self.path = ""


class TensorMemoryObj:
    """Some bytes of a pool, as a tensor has them: an address and a size, which keep nothing alive."""

    def __init__(self, pool: L1Pool, offset: int, size: int) -> None:
        self._pool, self._offset, self._size = pool, offset, size

    def get_size(self) -> int:
        return self._size

    @property
    def byte_array(self) -> memoryview:
        return memoryview((ctypes.c_ubyte * self._size).from_address(self._pool.address + self._offset))

    def write(self, content: bytes) -> None:
        self._pool.memory[self._offset : self._offset + self._size] = content

    def read(self) -> bytes:
        return self._pool.memory[self._offset : self._offset + self._size]
