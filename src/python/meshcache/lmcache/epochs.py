"""Epochs of the weights. Each has its own key space, and no work crosses from one into another."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .._engines.weights import Weights, nobodys_fingerprint


class Epochs:
    """Ensures that work is done in the epoch in which it was submitted, or not at all. Threads may share it."""

    def __init__(self, weights: Weights, use: Callable[[str | None], None]) -> None:
        """``use`` switches the client to the pages of a fingerprint."""
        self._weights = weights
        self._use = use
        self._changing = threading.Lock()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._under_way = 0
        #: The epoch whose work may begin; None while the client switches to another one.
        self._open: int | None = weights.epoch

    @property
    def now(self) -> int:
        """The epoch of work that is submitted now."""
        return self._weights.epoch

    @property
    def fingerprint(self) -> str | None:
        """The weights of this epoch; None: the model's name identifies them."""
        return self._weights.fingerprint

    def begin(self, epoch: int) -> bool:
        """Begins work of an epoch. False if it must not be done; otherwise ``end`` must follow."""
        with self._lock:
            if epoch != self._open:
                return False
            self._under_way += 1
            return True

    def end(self, epoch: int) -> bool:
        """Ends work. Returns whether its results count, i.e. the epoch has not changed meanwhile."""
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle.notify_all()
            return epoch == self._open

    def reset(self) -> bool:
        """Makes the weights unknown. Returns whether that changed them. Waits for work in progress to end as misses."""
        return self._change(self._weights.reset)

    def told(self, version: str | None) -> bool:
        """Sets the weights. Returns whether they have changed. Waits for work in progress, which ends as misses."""
        return self._change(lambda: self._weights.told(version))

    def _change(self, change: Callable[[], bool]) -> bool:
        with self._changing:
            with self._lock:
                if not change():
                    return False
                self._open = None
            # Work in progress ends as misses. Work that reaches the node later uses a key space that nobody reads.
            self._use(nobodys_fingerprint())
            with self._lock:
                while self._under_way > 0:
                    self._idle.wait()
            self._use(self._weights.fingerprint)
            with self._lock:
                self._open = self._weights.epoch
            return True
