"""What a client has done so far."""

from __future__ import annotations

import threading
from typing import Final

NAMES: Final = (
    "requests",
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

    def add(self, name: str, count: int = 1) -> None:
        """Adds to one of NAMES."""
        with self._lock:
            self._values[name] += count

    def add_all(self, counts: dict[str, int]) -> None:
        """Adds to several of NAMES."""
        with self._lock:
            for name, count in counts.items():
                self._values[name] += count

    def read(self) -> dict[str, int]:
        """All of them, as they are now."""
        with self._lock:
            return dict(self._values)

    def after_fork(self) -> None:
        """In a child process: a lock that nobody holds."""
        self._lock = threading.Lock()
