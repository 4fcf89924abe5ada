"""Which requests and calls belong to the present weights, and whether vLLM's own caches do."""

from __future__ import annotations

import threading


class Epochs:
    """Counts the changes after which what was begun before must not be finished.

    The scheduler's thread has the requests; threads that move chunks enter and leave. vLLM goes on using what its own caches hold when weights
    change without a reset: a request that reads from there has KV of both weights, so that nothing is stored or found until these are clear.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number = 0
        self._calls = 0
        self._requests: dict[str, int] = {}
        #: Whether vLLM's caches may hold KV that was computed since they were last clear.
        self.is_used = False
        #: Whether vLLM's caches may hold KV of other weights than the present ones.
        self.is_stale = False
        #: Whether the weights were told, and no request has begun since.
        self.is_told = False

    @property
    def number(self) -> int:
        """The present epoch."""
        return self._number

    # Requests

    def begin(self, request_id: str) -> None:
        """A request begins: vLLM's caches fill."""
        self._requests[request_id] = self._number
        self.use()

    def use(self) -> None:
        """Something is computed, or read from vLLM's caches."""
        self.is_used = True
        self.is_told = False

    def end(self, request_id: str) -> None:
        """A request has ended, and so have its chunks."""
        self._requests.pop(request_id, None)

    def may_store(self, request_id: str) -> bool:
        """Whether all KV of a request was computed in this epoch."""
        return not self.is_stale and self._requests.get(request_id) == self._number

    def cleared(self, *, is_busy: bool) -> None:
        """vLLM's caches are clear. ``is_busy``: there are requests, which begin anew and fill them."""
        self.is_used = is_busy
        self.is_stale = False

    # Calls of the client

    def enter(self, number: int) -> bool:
        """Begins a call, unless its epoch is over."""
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
        """Begins the next epoch. Whether no call of an earlier one is under way."""
        with self._condition:
            self._number += 1
            return self._calls == 0

    def wait(self, seconds: float) -> bool:
        """Waits until no call is under way; whether that is so."""
        with self._condition:
            return self._condition.wait_for(lambda: self._calls == 0, seconds)
