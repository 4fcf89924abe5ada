"""Staging memory: a memfd of the node that both sides map."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from time import monotonic
from typing import Final

#: Slots begin at multiples of this, so that copies do not share cache lines.
_ALIGNMENT: Final = 64


class Staging:
    """Hands out slots of staging memory, first fit. A slot is free again when its request is answered, or the connection is lost."""

    def __init__(self, descriptor: int, length: int) -> None:
        """Maps `length` bytes of a descriptor and closes it. Raises OSError and ValueError."""
        try:
            self._map = mmap.mmap(descriptor, length)
        finally:
            os.close(descriptor)
        self._pin = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._pin)
        self.length = length
        self._freed = threading.Condition(threading.Lock())
        self._holes: list[tuple[int, int]] = [(0, length)]
        self._closed = False

    def allocate(self, size: int, deadline: float) -> int | None:
        """Offset of a slot, waited for until the deadline (0: not at all); None when there is none."""
        size = _aligned(size)
        with self._freed:
            while not self._closed and size <= self.length:
                for index, (offset, length) in enumerate(self._holes):
                    if length >= size:
                        if length == size:
                            del self._holes[index]
                        else:
                            self._holes[index] = (offset + size, length - size)
                        return offset
                left = deadline - monotonic()
                if left <= 0:
                    return None
                self._freed.wait(left)
        return None

    def free(self, offset: int, size: int) -> None:
        """Gives a slot back, with the size that it was asked for with."""
        end = offset + _aligned(size)
        with self._freed:
            index = 0
            while index < len(self._holes) and self._holes[index][0] < offset:
                index += 1
            if index < len(self._holes) and self._holes[index][0] == end:
                end += self._holes.pop(index)[1]
            if index > 0 and sum(self._holes[index - 1]) == offset:
                index -= 1
                offset = self._holes.pop(index)[0]
            self._holes.insert(index, (offset, end - offset))
            self._freed.notify_all()

    @property
    def free_bytes(self) -> int:
        """Bytes that are in no slot."""
        with self._freed:
            return sum(length for _, length in self._holes)

    def close(self) -> None:
        """The connection is lost: nobody gets a slot any more. The mapping goes with the last one who uses it."""
        with self._freed:
            self._closed = True
            self._freed.notify_all()


def _aligned(size: int) -> int:
    return max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
