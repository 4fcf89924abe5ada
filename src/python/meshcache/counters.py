"""Counters of a client."""

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
    """Counters that many threads may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(NAMES, 0)
        # Pages asked for and pages found in lookups that the node has not counted itself.
        self._untold = (0, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Adds to one of NAMES."""
        with self._lock:
            self._values[name] += count

    def add_moved(self, names: tuple[str, str, str], done: int, failed: int, size: int) -> None:
        """Adds pages that were moved, pages that were not, and bytes, to these of NAMES."""
        done_name, failed_name, size_name = names
        with self._lock:
            values = self._values
            values[done_name] += done
            values[failed_name] += failed
            values[size_name] += size

    def add_lookup(self, asked: int, found: int, *, is_told: bool) -> None:
        """Adds a lookup of `asked` pages. `is_told` says whether the node has counted it."""
        with self._lock:
            self._values["lookups"] += asked
            self._values["found"] += found
        if not is_told:
            self.leave_untold(asked, found)

    def leave_untold(self, asked: int, found: int) -> None:
        """Adds lookups that must still be reported to the node."""
        with self._lock:
            self._untold = (self._untold[0] + asked, self._untold[1] + found)

    @property
    def has_untold(self) -> bool:
        """Whether there are lookups that must still be reported to the node."""
        return self._untold != (0, 0)

    def take_untold(self) -> tuple[int, int]:
        """Takes the lookups that the node has not counted. The caller reports them to it."""
        if not self.has_untold:
            return 0, 0
        with self._lock:
            untold, self._untold = self._untold, (0, 0)
        return untold

    def read(self) -> dict[str, int]:
        """A copy of all counters."""
        with self._lock:
            return dict(self._values)

    def after_fork(self) -> None:
        """Makes a new lock for the child process. The parent reports its own lookups to the node."""
        self._lock = threading.Lock()
        self._untold = (0, 0)
