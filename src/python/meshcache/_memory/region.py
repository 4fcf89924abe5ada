"""The caller's memory that pages are read into and written from."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from typing import Final

from .memory import Backing, Memory

#: Distance of the stand-in addresses of regions without an address. They are above all real addresses.
_NO_ADDRESS: Final = 1 << 64
#: More than the addresses that a process can have.
_ALL_ADDRESSES: Final = 1 << 62


class Region:
    """Registered memory, returned by `Client.register`. A piece of a page is `(region, offset, length)`."""

    __slots__ = (
        "_mapping",
        "_memory",
        "backing",
        "base",
        "client_id",
        "length",
        "mode",
        "name",
        "region_id",
        "writable",
    )

    def __init__(
        self,
        client_id: int,
        region_id: int,
        name: str,
        length: int,
        writable: bool,
        memory: Memory | None,
        backing: Backing | None,
    ) -> None:
        self.client_id = client_id
        self.region_id = region_id
        self.name = name
        self.length = length
        #: Whether GET may write into it.
        self.writable = writable
        #: How its pages move now: "direct", "staged", "bytes" or, without a node, "none".
        self.mode = "none"
        self.backing = backing
        self._memory = memory
        self._mapping: mmap.mmap | None = None
        #: Address of the region, or, if it has none, a unique number above all addresses.
        self.base = memory.address if memory is not None else _NO_ADDRESS * region_id

    def __repr__(self) -> str:
        return f"<Region {self.name or self.region_id}: {self.length} bytes, {self.mode}>"

    @property
    def registered(self) -> bool:
        """False after the region was released, e.g. by `Client.unregister`."""
        return self.client_id != 0

    @property
    def file_offset(self) -> int:
        """Offset of the region in its file."""
        return 0 if self.backing is None else self.backing.offset

    @property
    def file_length(self) -> int:
        """Length from the start of the file to the end of the region, as the node registers it."""
        return self.file_offset + self.length

    def hold(self) -> Memory | None:
        """The memory, which is valid while the caller holds the result. Maps the file if necessary; None on failure."""
        if self._memory is None and self.backing is not None:
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if self.backing.writable else 0)
            with contextlib.suppress(OSError, ValueError):
                self._mapping = mmap.mmap(self.backing.descriptor, self.length, prot=protection)
                self._memory = Memory(self._mapping)
        return self._memory

    def is_cut_short(self) -> bool:
        """Whether the file has become shorter than the region. If so, the memory must no longer be touched."""
        if self.backing is None:
            return False
        try:
            return os.fstat(self.backing.descriptor).st_size < self.file_length
        except OSError:
            return True

    def release(self) -> None:
        """Releases memory and descriptor."""
        self.client_id = 0
        self.mode = "none"
        self._memory = None
        self._mapping = None
        if self.backing is not None:
            os.close(self.backing.descriptor)
            self.backing = None


def process_memory(client_id: int, region_id: int) -> Region:
    """All memory of this process as a region, in which offsets are addresses."""
    everything = (ctypes.c_char * _ALL_ADDRESSES).from_address(0)
    region = Region(client_id, region_id, "process", _ALL_ADDRESSES, True, Memory(everything), None)
    region.mode = "staged"
    return region
