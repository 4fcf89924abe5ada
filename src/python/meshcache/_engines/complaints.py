"""Warnings of adapters that may come with every request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

#: The same complaint is logged once in this time.
REPEAT_SECONDS: Final = 30.0


class Complaints:
    """Warnings that may come with every request: each kind is logged once in a while, with a count of the rest."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def log(self, kind: str, text: str, error: Any = None) -> None:
        """Logs a text unless its kind has been logged lately. ``error`` adds a traceback."""
        now = self._clock()
        with self._lock:
            at, unsaid = self._seen.get(kind, (now - REPEAT_SECONDS, 0))
            if now - at < REPEAT_SECONDS:
                self._seen[kind] = (at, unsaid + 1)
                return
            self._seen[kind] = (now, 0)
        more = f" ({unsaid} more of this kind)" if unsaid else ""
        self._logger.warning("%s%s", text, more, exc_info=error)
