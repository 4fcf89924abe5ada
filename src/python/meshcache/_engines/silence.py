"""Handles a node that stops answering: only one call waits for it; then all are misses at once until it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ..client import Client

#: Timeout of a ping to a silent node, and pause between two pings.
PING_SECONDS: Final = 0.5
REST_SECONDS: Final = 0.05


class Silence:
    """Whether the node is silent. While it is, a thread keeps pinging it. Threads may share this object."""

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        """``ended`` is called by that thread when the node answers again, but not if the silence ends as it is gone."""
        self._ended = ended
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_on(self) -> bool:
        """Whether the node is silent."""
        return self._thread is not None

    def begin(self, client: Client) -> None:
        """Begins a silence, after the node of this client has let a call time out."""
        with self._lock:
            if self._thread is not None or self._is_closed.is_set():
                return
            self._thread = threading.Thread(target=self._wait, args=(client,), name="meshcache-silence", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread. Call it after closing the client."""
        self._is_closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _wait(self, client: Client) -> None:
        answers = False
        try:
            while client.is_connected and not (answers := client.ping(timeout=PING_SECONDS)):
                self._is_closed.wait(REST_SECONDS)
        except Exception:
            # The client was closed.
            pass
        with self._lock:
            self._thread = None
        if answers and not self._is_closed.is_set():
            self._ended()
