"""A node that has stopped answering: everything is a miss at once, until it answers again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

#: A silent node is asked in turns that last so long, with a rest between them.
PING_SECONDS: Final = 0.5
REST_SECONDS: Final = 0.1


class Silence:
    """Asks a silent node again and again, in a thread of its own. Threads may share it."""

    def __init__(self, ping: Callable[[float], bool], ended: Callable[[], None]) -> None:
        """``ping`` says whether the node answers within that many seconds; it may raise. ``ended`` is called when it answers again."""
        self._ping = ping
        self._ended = ended
        self._has_begun = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meshcache-silence", daemon=True)
        self._thread.start()

    @property
    def is_on(self) -> bool:
        """Whether the node is silent."""
        return self._has_begun.is_set()

    def begin(self) -> None:
        """The node has not answered in time."""
        if not self._is_closed.is_set():
            self._has_begun.set()

    def close(self) -> None:
        """Ends the thread."""
        self._is_closed.set()
        self._has_begun.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._has_begun.wait()
            if self._is_closed.is_set():
                return
            if self._answers():
                self._has_begun.clear()
                if self._is_closed.is_set():
                    return
                self._ended()
            else:
                self._is_closed.wait(REST_SECONDS)

    def _answers(self) -> bool:
        try:
            return self._ping(PING_SECONDS)
        except Exception:
            # The client was closed, which ends this soon.
            return False
