"""Completed futures, and the eventfd that signals them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final

# Linux functions are looked up by name, because type checkers know these only for later Python versions.
_eventfd: Final[Callable[[int, int], int]] = getattr(os, "eventfd")
_eventfd_read: Final[Callable[[int], int]] = getattr(os, "eventfd_read")
_eventfd_write: Final[Callable[[int, int], None]] = getattr(os, "eventfd_write")
_EVENTFD_FLAGS: Final[int] = getattr(os, "EFD_NONBLOCK") | getattr(os, "EFD_CLOEXEC")

#: ID of the future, whether it succeeded, why not, and one result per key.
Completion = tuple[int, bool, str, list[bool]]


class Completions:
    """Completed futures. The eventfd is readable while there are any that were not taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._completed: list[Completion] = []
        #: Open while this object lives, so that its number is not reused for another file while LMCache polls it.
        self.descriptor = _eventfd(0, _EVENTFD_FLAGS)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.descriptor)

    def add(self, completion: Completion) -> None:
        """Adds a completion, and makes the eventfd readable."""
        with self._lock:
            self._completed.append(completion)
            if len(self._completed) == 1:
                _eventfd_write(self.descriptor, 1)

    def take(self) -> list[Completion]:
        """Takes all completions in the order in which they were added, and clears the eventfd."""
        with self._lock:
            completed, self._completed = self._completed, []
            if completed:
                with contextlib.suppress(BlockingIOError):
                    _eventfd_read(self.descriptor)
        return completed
