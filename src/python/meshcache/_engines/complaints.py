"""Rate limiting for warnings of adapters that may recur with every request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

#: A kind of warning is logged at most once in this time.
REPEAT_SECONDS: Final = 30.0


class Complaints:
    """Logs each kind of warning at most once in REPEAT_SECONDS, with a count of those left out."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def log(self, kind: str, text: str, error: Any = None) -> None:
        """Logs a text unless its kind was logged recently. ``error`` adds a traceback."""
        now = self._clock()
        with self._lock:
            at, unsaid = self._seen.get(kind, (now - REPEAT_SECONDS, 0))
            if now - at < REPEAT_SECONDS:
                self._seen[kind] = (at, unsaid + 1)
                return
            self._seen[kind] = (now, 0)
        more = f" ({unsaid} more of this kind)" if unsaid else ""
        self._logger.warning("%s%s", text, more, exc_info=error)
