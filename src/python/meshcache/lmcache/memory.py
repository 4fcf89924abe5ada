"""Regions for the views that LMCache passes: one per shared memory file, and one for all other memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .. import Client, Region
from .._memory.memory import Memory

#: Region, offset and length, as the client takes them.
Piece = tuple[Region, int, int]

#: More than the addresses that a process can have.
_ALL_ADDRESSES: Final = 1 << 62


@dataclass(frozen=True)
class Extent:
    """A range of addresses in `/proc/self/maps` that is one shared mapping of a file, or private memory."""

    start: int
    end: int
    #: Device, inode and offset of a shared mapping, which identify its memory; None for private memory.
    file: tuple[bytes, bytes, int] | None
    is_writable: bool
    name: str
    #: The lines of `/proc/self/maps` for it.
    lines: bytes

    def holds(self, memory: Memory) -> bool:
        """Whether all of this memory is in the extent."""
        return self.start <= memory.address and memory.address + memory.length <= self.end


class PoolMemory:
    """Finds the region of a view.

    LMCache's L1 pool is registered as a whole with the first view into it, so that the node maps it once. A view does
    not keep that mapping alive, so each use first checks that the mapping is still the registered one. Private memory
    needs no such check, as only this process touches it, at the addresses of the views.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._shared: list[tuple[Extent, Region]] = []
        self._private: list[Extent] = []
        self._private_region: Region | None = None

    def pieces(self, memories: Sequence[Memory]) -> list[Piece]:
        """The piece for each of these memories, which must have at least 1 byte."""
        with self._lock:
            if all(self._is_private(memory) for memory in memories):
                return [self._private_piece(memory) for memory in memories]
            maps = _read_maps()
            dropped = self._drop_changed(maps)
            pieces = [self._piece(memory, maps) for memory in memories]
        for region in dropped:
            self._client.unregister(region)
        return pieces

    def _is_private(self, memory: Memory) -> bool:
        return any(extent.holds(memory) for extent in self._private)

    def _piece(self, memory: Memory, maps: bytes) -> Piece:
        for extent, region in self._shared:
            if extent.holds(memory):
                return region, memory.address - extent.start, memory.length
        if self._is_private(memory):
            return self._private_piece(memory)
        found = extent_at(maps, memory.address)
        if found is None or not found.holds(memory):
            return self._private_piece(memory)
        if found.file is None:
            # Earlier information about these addresses is out of date.
            self._private = [known for known in self._private if known.end <= found.start or found.end <= known.start]
            self._private.append(found)
            return self._private_piece(memory)
        buffer = (ctypes.c_char * (found.end - found.start)).from_address(found.start)
        region = self._client.register(buffer, writable=found.is_writable, name=found.name)
        self._shared.append((found, region))
        return region, memory.address - found.start, memory.length

    def _private_piece(self, memory: Memory) -> Piece:
        """A piece of the region of all private memory, in which offsets are addresses."""
        if self._private_region is None:
            everything = (ctypes.c_char * _ALL_ADDRESSES).from_address(0)
            self._private_region = self._client.register(everything, name="memory")
        return self._private_region, memory.address, memory.length

    def _drop_changed(self, maps: bytes) -> list[Region]:
        """Drops regions that are no longer mapped, or now map another file. Returns them; they are not used again."""
        kept: list[tuple[Extent, Region]] = []
        dropped: list[Region] = []
        for extent, region in self._shared:
            now = _now(extent, maps)
            if now is None:
                dropped.append(region)
            else:
                kept.append((now, region))
        self._shared = kept
        return dropped


def _now(extent: Extent, maps: bytes) -> Extent | None:
    """The extent as it is mapped now; None if it is gone, or not the same memory."""
    if maps.startswith(extent.lines) or b"\n" + extent.lines in maps:
        return extent
    # The kernel splits a mapping into several lines, e.g. when part of it is locked. It is still the same memory.
    now = extent_at(maps, extent.start)
    if now is not None and (now.start, now.end, now.file) == (extent.start, extent.end, extent.file):
        return now
    return None


def extent_at(maps: bytes, address: int) -> Extent | None:
    """The extent that contains an address, or None. Adjacent lines of one file, or of private memory, are joined."""
    run: list[bytes] = []
    start = end = 0
    file: tuple[bytes, bytes, int] | None = None
    for line in maps.splitlines(keepends=True):
        fields = line.split(None, 5)
        low, high = (int(part, 16) for part in fields[0].split(b"-"))
        is_shared = fields[1].endswith(b"s") and fields[4] != b"0"
        this = (fields[3], fields[4], int(fields[2], 16)) if is_shared else None
        follows = None if file is None else (file[0], file[1], file[2] + end - start)
        if run and low == end and this == follows:
            run.append(line)
        else:
            if end > address:
                break
            run, start, file = [line], low, this
        end = high
    if not start <= address < end:
        return None
    is_writable = all(b"w" in line.split(None, 2)[1] for line in run)
    path = [field.strip() for field in run[0].split(None, 5)[5:]]
    name = path[0].decode(errors="replace").rpartition("/")[2] if path else ""
    return Extent(start, end, file, is_writable, name, b"".join(run))


def _read_maps() -> bytes:
    """The memory map of this process. It is empty if it cannot be read, so that no memory counts as shared."""
    parts: list[bytes] = []
    try:
        with open("/proc/self/maps", "rb", buffering=0) as file:
            while part := file.read(1 << 20):
                parts.append(part)
    except OSError:
        return b""
    return b"".join(parts)
