"""Tracks whether requests, calls and vLLM's own caches belong to the present weights."""

from __future__ import annotations

import threading


class Epochs:
    """Counts changes after which earlier work must not be finished.

    Only the scheduler's thread uses the requests; threads that move chunks enter and leave. If weights change without a
    reset, vLLM continues to use its own caches, and requests mix KV of both weights. Nothing is therefore stored or
    found until the caches are clear.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number = 0
        self._calls = 0
        self._requests: dict[str, int] = {}
        #: Whether vLLM's caches may hold any KV, i.e. were used since they were last clear.
        self.is_used = False
        #: Whether vLLM's caches may hold KV of former weights.
        self.is_stale = False
        #: Whether the weights were told, and no request has begun since.
        self.is_told = False

    @property
    def number(self) -> int:
        """The present epoch."""
        return self._number

    # Requests

    def begin(self, request_id: str) -> None:
        """Called when a request begins, which fills vLLM's caches."""
        self._requests[request_id] = self._number
        self.use()

    def use(self) -> None:
        """Called when KV is computed, or read from vLLM's caches."""
        self.is_used = True
        self.is_told = False

    def end(self, request_id: str) -> None:
        """Called when a request has ended, and with it all its chunks."""
        self._requests.pop(request_id, None)

    def may_store(self, request_id: str) -> bool:
        """Whether all KV of a request was computed in this epoch."""
        return not self.is_stale and self._requests.get(request_id) == self._number

    def cleared(self, *, is_busy: bool) -> None:
        """Called when vLLM's caches are clear. ``is_busy``: there are requests, which restart and fill them."""
        self.is_used = is_busy
        self.is_stale = False

    # Calls of the client

    def enter(self, number: int) -> bool:
        """Begins a call; False if its epoch is over."""
        with self._condition:
            if number != self._number:
                return False
            self._calls += 1
            return True

    def leave(self) -> None:
        """Ends a call."""
        with self._condition:
            self._calls -= 1
            self._condition.notify_all()

    def advance(self) -> bool:
        """Begins the next epoch. Returns whether no call of an earlier one is in progress."""
        with self._condition:
            self._number += 1
            return self._calls == 0

    def wait(self, seconds: float) -> bool:
        """Waits until no call is in progress; False on a timeout."""
        with self._condition:
            return self._condition.wait_for(lambda: self._calls == 0, seconds)
