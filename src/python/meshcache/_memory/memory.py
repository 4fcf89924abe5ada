"""The caller's memory: its address, and the file behind it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property

_PY_SSIZE_T = ctypes.c_ssize_t
#: Asks for the format of the items, and for memory that is contiguous in C order.
_FORMAT_AND_SHAPE = 0x4 | 0x8
#: Names of fields in the format of a buffer.
_FIELD_NAME = re.compile(r":[^:]*:")


def check_plain(format_: str, what: str) -> None:
    """Checks that the items of a buffer are data, and not addresses of objects. Raises TypeError."""
    if "O" in format_ and "O" in _FIELD_NAME.sub("", format_):
        raise TypeError(f"{what} must be plain data; this buffer has references to objects of this process")


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's stable interface."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", _PY_SSIZE_T),
        ("itemsize", _PY_SSIZE_T),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class Memory:
    """The bytes of an object with the buffer protocol, which may be read-only. Holds the buffer while it lives."""

    def __init__(self, owner: object) -> None:
        self._buffer = _PyBuffer()
        self._held = False
        try:
            try:
                _get_buffer(owner, ctypes.byref(self._buffer), _FORMAT_AND_SHAPE)
            except ValueError:
                # Some data, such as numpy's dates and its extensions, has no format.
                _get_buffer(owner, ctypes.byref(self._buffer), 0)
        except TypeError:
            raise TypeError(
                f"memory must support the buffer protocol, as bytearray does; got {type(owner).__name__}"
            ) from None
        except (BufferError, ValueError) as error:
            raise ValueError(f"memory must be contiguous, in C order: {error}") from None
        self._held = True
        check_plain((self._buffer.format or b"").decode(errors="replace"), "memory")
        self.address: int = self._buffer.buf or 0
        self.length: int = self._buffer.len
        self.readonly: bool = bool(self._buffer.readonly)

    @cached_property
    def view(self) -> memoryview:
        """The bytes, while this object lives. They can be written even if the owner's cannot."""
        return memoryview((ctypes.c_char * self.length).from_address(self.address)).cast("B")

    def __del__(self) -> None:
        if self._held:
            self._held = False
            _release_buffer(ctypes.byref(self._buffer))


@dataclass(frozen=True)
class Backing:
    """A descriptor of the file behind memory, owned by the holder of this object, and the memory's offset in it."""

    descriptor: int
    offset: int
    writable: bool


@dataclass(frozen=True)
class Mapping:
    """A part of a file that is mapped as shared memory."""

    device: int
    inode: int
    offset: int
    path: str
    first_range: str


def mapping_of(address: int, length: int) -> Mapping | None:
    """The mapping, if all of this memory is one contiguous shared mapping of a file; else None."""
    found: Mapping | None = None
    reached = address
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                fields = line.rstrip("\n").split(None, 5)
                start, end = (int(part, 16) for part in fields[0].split("-"))
                if end <= reached:
                    continue
                inode = int(fields[4])
                if start > reached or inode == 0 or fields[1][3] != "s":
                    return None
                major, minor = (int(part, 16) for part in fields[3].split(":"))
                device = os.makedev(major, minor)
                offset = int(fields[2], 16) + reached - start
                if found is None:
                    path = fields[5] if len(fields) > 5 else ""
                    found = Mapping(device, inode, offset, path, fields[0])
                elif (device, inode, offset) != (found.device, found.inode, found.offset + reached - address):
                    return None
                reached = end
                if reached >= address + length:
                    return found
    except (OSError, ValueError, IndexError):
        pass
    return None


def find_backing(memory: Memory) -> Backing | None:
    """A descriptor of the file behind memory; None for memory that is not a shared mapping of a regular file."""
    if memory.length == 0:
        return None
    mapping = mapping_of(memory.address, memory.length)
    if mapping is None:
        return None
    for name in _candidates(mapping):
        backing = _open_backing(name, mapping)
        if backing is not None:
            return backing
    return None


def _candidates(mapping: Mapping) -> list[str]:
    """Names under which the file may be opened again: descriptors of this process, its path, and the mapping itself."""
    names: list[str] = []
    try:
        for entry in os.listdir("/proc/self/fd"):
            try:
                state = os.fstat(int(entry))
            except OSError:
                continue
            if (state.st_dev, state.st_ino) == (mapping.device, mapping.inode):
                names.append(f"/proc/self/fd/{entry}")
    except OSError:
        pass
    if mapping.path.startswith("/") and not mapping.path.endswith(" (deleted)"):
        names.append(mapping.path)
    names.append(f"/proc/self/map_files/{mapping.first_range}")
    return names


def _open_backing(name: str, mapping: Mapping) -> Backing | None:
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            if not stat.S_ISREG(os.stat(name).st_mode):
                return None
            descriptor = os.open(name, flags | os.O_CLOEXEC)
        except OSError:
            continue
        state = os.fstat(descriptor)
        if (state.st_dev, state.st_ino) == (mapping.device, mapping.inode):
            return Backing(descriptor, mapping.offset, flags == os.O_RDWR)
        os.close(descriptor)
    return None


def is_writable(descriptor: int) -> bool:
    """Whether a descriptor was opened for both reading and writing."""
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
