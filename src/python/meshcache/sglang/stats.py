"""Transfer statistics in the form in which SGLang collects them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from .framework import storage_metrics_class

#: Most calls that are remembered until the next collection.
MAX_SAMPLES = 4_096

GIB = 1 << 30


class TransferStats:
    """Pages and bandwidth of each call since the last collection. Nothing is kept if SGLang collects no metrics."""

    def __init__(self, enabled: bool) -> None:
        self._metrics = storage_metrics_class() if enabled else None
        self._lock = threading.Lock()
        self._read: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        self._written: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)

    def note(self, *, written: bool, pages: int, size: int, seconds: float) -> None:
        """Records a call that moved pages with ``size`` bytes in total."""
        if self._metrics is None or pages == 0:
            return
        sample = (pages, size / GIB / max(seconds, 1e-9))
        with self._lock:
            (self._written if written else self._read).append(sample)

    def collect(self) -> Any:
        """A ``StorageMetrics`` of the calls since the last collection; None if SGLang collects no metrics."""
        if self._metrics is None:
            return None
        with self._lock:
            read, written = list(self._read), list(self._written)
            self._read.clear()
            self._written.clear()
        metrics = self._metrics()
        metrics.prefetch_pgs.extend(pages for pages, _ in read)
        metrics.prefetch_bandwidth.extend(bandwidth for _, bandwidth in read)
        metrics.backup_pgs.extend(pages for pages, _ in written)
        metrics.backup_bandwidth.extend(bandwidth for _, bandwidth in written)
        return metrics
