"""Copies and first touches of memory that do not hold the interpreter lock (GIL), but for small copies."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, Final, cast

from .memory import Memory

#: A copy of so few bytes takes less time than giving the interpreter lock back for it.
_SMALL_BYTES: Final = 1 << 14
#: A copy of so few bytes also takes less time than finding the addresses of both memories, which a copy without the
#: lock needs.
_HELD_MAX_BYTES: Final = 1 << 16
#: From this length on, memory has whole huge pages wherever it begins, and they are requested.
_HUGE_BYTES: Final = 1 << 22
_MADV_HUGEPAGE: Final = 14
_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23

_make_bytes: Any = ctypes.pythonapi.PyBytes_FromStringAndSize
_make_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_make_bytes.restype = ctypes.py_object
_madvise: Any = None
with contextlib.suppress(OSError, AttributeError):
    _madvise = ctypes.CDLL(None).madvise
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def address_of(view: memoryview) -> int:
    """The address of a view of contiguous bytes."""
    return Memory(view).address if view.readonly else ctypes.addressof(ctypes.c_char.from_buffer(view))


def copy(target: memoryview, source: memoryview) -> None:
    """Copies bytes to memory of the same length."""
    length = len(source)
    if length <= _HELD_MAX_BYTES:
        target[:] = source
    else:
        ctypes.memmove(address_of(target), address_of(source), length)


def bytes_of(view: memoryview) -> bytes:
    """A bytes object with a copy of these bytes."""
    length = len(view)
    if length <= _SMALL_BYTES:
        return bytes(view)
    # CPython allows writing to a bytes object that was created without a value, before any other code has it.
    made = cast(bytes, _make_bytes(None, length))
    target = Memory(made).address
    if _madvise is not None:
        # The range has the whole pages of the memory, which malloc has just allocated. Touching them one by one would
        # cost more than the copy. Linux before 5.14 lacks the second advice, and does that.
        low = -(-target // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (target + length) // mmap.PAGESIZE * mmap.PAGESIZE - low
        if length >= _HUGE_BYTES:
            _madvise(low, size, _MADV_HUGEPAGE)
        _madvise(low, size, _MADV_POPULATE_WRITE)
    ctypes.memmove(target, address_of(view), length)
    return made


def touch(address: int, length: int) -> None:
    """Touches memory, of at least 1 byte, so that the kernel allocates it and charges it to this process."""
    low = address // mmap.PAGESIZE * mmap.PAGESIZE
    if _madvise is not None and _madvise(low, address + length - low, _MADV_POPULATE_READ) == 0:
        return
    # Linux before 5.14 lacks that advice, so a byte of each page is read.
    view = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
    view[:: mmap.PAGESIZE].tobytes()
    view[-1:].tobytes()
