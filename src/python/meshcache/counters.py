"""What a client has done so far."""

from __future__ import annotations

import threading
from typing import Final

NAMES: Final = (
    "requests",
    "lookups",
    "found",
    "hits",
    "misses",
    "sets",
    "sets_failed",
    "errors",
    "timeouts",
    "fences",
    "nodes_ended",
    "connections_lost",
    "reconnects",
    "bytes_read_direct",
    "bytes_read_staged",
    "bytes_read_bytes",
    "bytes_written_direct",
    "bytes_written_staged",
    "bytes_written_bytes",
)


class Counters:
    """Numbers that many threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(NAMES, 0)
        # Of lookups that the node has not counted itself: pages that were asked for, and those that were found.
        self._untold = (0, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Adds to one of NAMES."""
        with self._lock:
            self._values[name] += count

    def add_all(self, counts: dict[str, int]) -> None:
        """Adds to several of NAMES."""
        with self._lock:
            for name, count in counts.items():
                self._values[name] += count

    def add_lookup(self, asked: int, found: int, *, is_told: bool) -> None:
        """Adds a lookup of so many pages. `is_told`: the node has counted it."""
        with self._lock:
            self._values["lookups"] += asked
            self._values["found"] += found
        if not is_told:
            self.leave_untold(asked, found)

    def leave_untold(self, asked: int, found: int) -> None:
        """Lookups that the node has to be told of."""
        with self._lock:
            self._untold = (self._untold[0] + asked, self._untold[1] + found)

    def take_untold(self) -> tuple[int, int]:
        """What the node has not counted, which the caller tells it now."""
        if self._untold == (0, 0):
            return 0, 0
        with self._lock:
            untold, self._untold = self._untold, (0, 0)
        return untold

    def read(self) -> dict[str, int]:
        """All of them, as they are now."""
        with self._lock:
            return dict(self._values)

    def after_fork(self) -> None:
        """In a child process: a lock that nobody holds. The parent tells the node of its lookups."""
        self._lock = threading.Lock()
        self._untold = (0, 0)
