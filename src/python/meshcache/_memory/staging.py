"""Staging memory: a memfd of the node that both sides map."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from typing import Final

#: Slots begin at multiples of this, so that copies do not share cache lines.
_ALIGNMENT: Final = 64


class Slot:
    """Staging memory from `offset` on. It is allocated while there are references to this object."""

    __slots__ = ("__weakref__", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset


class Turn:
    """A place in the line of those who wait for staging memory. It is kept while there are references to this object."""

    __slots__ = ("__weakref__", "_wake")

    def __init__(self) -> None:
        self._wake = threading.Lock()
        self._wake.acquire()

    def wait(self, seconds: float) -> None:
        """Waits until there may be room for the first in line; at most `seconds`."""
        self._wake.acquire(timeout=max(0.0, seconds))

    def call(self) -> None:
        """Ends the wait. Repeated calls count as one."""
        with contextlib.suppress(RuntimeError):
            self._wake.release()


class Staging:
    """Allocates slots of staging memory, first fit: first come, first served when there is no room for all.

    A slot becomes free when it is no longer referenced, so none is lost, wherever an exception ends a call.
    """

    def __init__(self, descriptor: int, length: int) -> None:
        """Maps `length` bytes of a descriptor and closes it. Raises OSError and ValueError."""
        try:
            self._map = mmap.mmap(descriptor, length)
        finally:
            os.close(descriptor)
        self.view = memoryview(self._map)
        self.length = length
        self._lock = threading.Lock()
        #: Start and end of each slot. A reference removes itself when its slot is gone, which no signal can interrupt.
        self._taken: dict[weakref.ref[Slot], tuple[int, int]] = {}
        #: Those who wait, in their order. A reference removes itself in the same way.
        self._line: dict[weakref.ref[Turn], None] = {}
        self._closed = False

    def line_up(self) -> Turn:
        """Takes a place at the end of the line."""
        turn = Turn()
        with self._lock:
            self._line[weakref.ref(turn, self._line.pop)] = None
        return turn

    def call_first(self) -> None:
        """Has the first in line try again. To be called when a slot has become free, or the first has left."""
        turn = self._first()
        if turn is not None:
            turn.call()

    def _first(self) -> Turn | None:
        for place in list(self._line):
            turn = place()
            if turn is not None:
                return turn
        return None

    def allocate(self, size: int, turn: Turn | None = None) -> Slot | None:
        """Allocates a slot; None if there is no room now, or others are before this turn in line."""
        size = max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
        with self._lock:
            if self._line and self._first() is not turn:
                return None
            begin = 0
            for low, high in sorted(self._taken.values()):
                if low - begin >= size:
                    break
                begin = high
            else:
                if self.length - begin < size:
                    return None
            if self._closed:
                return None
            slot = Slot(begin)
            self._taken[weakref.ref(slot, self._taken.pop)] = (begin, begin + size)
            return slot

    @property
    def free_bytes(self) -> int:
        """Bytes that are not in any slot."""
        return self.length - sum(high - low for low, high in list(self._taken.values()))

    @property
    def closed(self) -> bool:
        """Whether no more slots are allocated."""
        return self._closed

    def close(self) -> None:
        """Stops allocation after the connection is lost. The memory is unmapped when its last user is gone."""
        self._closed = True
        self.call_first()
