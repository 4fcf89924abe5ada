"""Copies of memory, and its first touch, that do not hold the interpreter's lock."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, Final, cast

from .memory import Memory

#: From this length on, the kernel is asked for huge pages: memory that is touched for the first time costs more than its copy otherwise.
_HUGE_BYTES: Final = 1 << 20
_MADV_HUGEPAGE: Final = 14
_MADV_POPULATE_READ: Final = 22

_make_bytes: Any = ctypes.pythonapi.PyBytes_FromStringAndSize
_make_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_make_bytes.restype = ctypes.py_object
_madvise: Any = None
with contextlib.suppress(OSError, AttributeError):
    _madvise = ctypes.CDLL(None).madvise
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def bytes_at(address: int, length: int) -> bytes:
    """A bytes object with what is at an address."""
    if length == 0:
        return b""
    # Made without a value, and written before anybody else has it, as the interpreter allows.
    made = cast(bytes, _make_bytes(None, length))
    target = Memory(made).address
    if length >= _HUGE_BYTES and _madvise is not None:
        # The whole pages of the memory, which malloc has just handed out.
        low = -(-target // mmap.PAGESIZE) * mmap.PAGESIZE
        high = (target + length) // mmap.PAGESIZE * mmap.PAGESIZE
        _madvise(low, high - low, _MADV_HUGEPAGE)
    ctypes.memmove(target, address, length)
    return made


def touch(address: int, length: int) -> None:
    """Has the system provide memory, of at least 1 byte, at the expense of this process."""
    low = address // mmap.PAGESIZE * mmap.PAGESIZE
    if _madvise is not None and _madvise(low, address + length - low, _MADV_POPULATE_READ) == 0:
        return
    # Before Linux 5.14: a byte of each page is read.
    view = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
    view[:: mmap.PAGESIZE].tobytes()
    view[-1:].tobytes()
