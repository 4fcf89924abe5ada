"""Memory of the caller that pages are read into and written from."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from typing import Final

from .memory import Backing, Memory

#: Where regions without an address are, one after the other, when pieces are compared: above all real addresses.
_NO_ADDRESS: Final = 1 << 64
#: More than all addresses that a process can have.
_ALL_ADDRESSES: Final = 1 << 62


class Region:
    """What `Client.register` returns. A piece of a page is `(region, offset, length)`."""

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
        #: How pages of it move now: "direct", "staged", "bytes" or, without a node, "none".
        self.mode = "none"
        self.backing = backing
        self._memory = memory
        self._mapping: mmap.mmap | None = None
        #: Its address, or for a region without one a number that no address has.
        self.base = memory.address if memory is not None else _NO_ADDRESS * region_id

    def __repr__(self) -> str:
        return f"<Region {self.name or self.region_id}: {self.length} bytes, {self.mode}>"

    @property
    def registered(self) -> bool:
        """False after `Client.unregister`, and when its file was cut short."""
        return self.client_id != 0

    @property
    def file_offset(self) -> int:
        """Where in its file the region begins."""
        return 0 if self.backing is None else self.backing.offset

    @property
    def file_length(self) -> int:
        """Length of the region as the node knows it, from the start of the file on."""
        return self.file_offset + self.length

    def hold(self) -> Memory | None:
        """The memory, which stays valid for as long as the result is held. The file is mapped when nobody has done so."""
        if self._memory is None and self.backing is not None:
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if self.backing.writable else 0)
            with contextlib.suppress(OSError, ValueError):
                self._mapping = mmap.mmap(self.backing.descriptor, self.length, prot=protection)
                self._memory = Memory(self._mapping)
        return self._memory

    def is_cut_short(self) -> bool:
        """Whether the file has become shorter than the region: its memory must not be touched any more."""
        if self.backing is None:
            return False
        try:
            return os.fstat(self.backing.descriptor).st_size < self.file_length
        except OSError:
            return True

    def release(self) -> None:
        """Lets go of memory and descriptor."""
        self.client_id = 0
        self.mode = "none"
        self._memory = None
        self._mapping = None
        if self.backing is not None:
            os.close(self.backing.descriptor)
            self.backing = None


def process_memory(client_id: int, region_id: int) -> Region:
    """All memory of this process: what is at an address is at the same offset."""
    everything = (ctypes.c_char * _ALL_ADDRESSES).from_address(0)
    region = Region(client_id, region_id, "process", _ALL_ADDRESSES, True, Memory(everything), None)
    region.mode = "staged"
    return region
