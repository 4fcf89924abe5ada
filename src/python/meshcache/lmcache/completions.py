"""Futures that have completed, and the eventfd that says so."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final

# By name: type checkers know these functions of Linux only in later versions than Python has them.
_eventfd: Final[Callable[[int, int], int]] = getattr(os, "eventfd")
_eventfd_read: Final[Callable[[int], int]] = getattr(os, "eventfd_read")
_eventfd_write: Final[Callable[[int, int], None]] = getattr(os, "eventfd_write")
_EVENTFD_FLAGS: Final[int] = getattr(os, "EFD_NONBLOCK") | getattr(os, "EFD_CLOEXEC")

#: Future, whether it succeeded, why not, one result a key.
Completion = tuple[int, bool, str, list[bool]]


class Completions:
    """The eventfd can be read from the first completion on until all have been taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._completed: list[Completion] = []
        #: Open for as long as this lives: its number must not be given to another file while LMCache polls it.
        self.descriptor = _eventfd(0, _EVENTFD_FLAGS)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.descriptor)

    def add(self, completion: Completion) -> None:
        """Adds one, and makes the eventfd readable."""
        with self._lock:
            self._completed.append(completion)
            if len(self._completed) == 1:
                _eventfd_write(self.descriptor, 1)

    def take(self) -> list[Completion]:
        """All of them, in the order in which they came; empties the eventfd."""
        with self._lock:
            completed, self._completed = self._completed, []
            if completed:
                with contextlib.suppress(BlockingIOError):
                    _eventfd_read(self.descriptor)
        return completed
