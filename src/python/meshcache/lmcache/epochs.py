"""Epochs of the weights: pages of other weights lie in another key space, and no work goes from one into the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .._engines.weights import Weights, nobodys_fingerprint


class Epochs:
    """Lets work be done in the epoch in which it was submitted, or not at all. Threads may share it."""

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
        """What work that is submitted now carries."""
        return self._weights.epoch

    @property
    def fingerprint(self) -> str | None:
        """The weights of this epoch; None: the model's name says them."""
        return self._weights.fingerprint

    def begin(self, epoch: int) -> bool:
        """Whether work of this epoch may be done. If so, ``end`` must follow."""
        with self._lock:
            if epoch != self._open:
                return False
            self._under_way += 1
            return True

    def end(self, epoch: int) -> bool:
        """The work is done. Whether its results count: the epoch has not changed meanwhile."""
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle.notify_all()
            return epoch == self._open

    def reset(self) -> bool:
        """The weights are unknown from now on. Returns whether that has changed anything. Waits for work under way, which ends as misses."""
        return self._change(self._weights.reset)

    def told(self, version: str | None) -> bool:
        """These are the weights from now on. Returns whether they are others. Waits for work under way, which ends as misses."""
        return self._change(lambda: self._weights.told(version))

    def _change(self, change: Callable[[], bool]) -> bool:
        with self._changing:
            with self._lock:
                if not change():
                    return False
                self._open = None
            # What is under way ends as a miss. What has passed `begin` and not yet reached the node goes where nobody looks.
            self._use(nobodys_fingerprint())
            with self._lock:
                while self._under_way > 0:
                    self._idle.wait()
            self._use(self._weights.fingerprint)
            with self._lock:
                self._open = self._weights.epoch
            return True
