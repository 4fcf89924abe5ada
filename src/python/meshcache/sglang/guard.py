"""What keeps SGLang's control threads alive: a thread that meets an exception ends, and is never started again."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from meshcache import Client
from meshcache._engines.complaints import Complaints

logger = logging.getLogger("meshcache.sglang")


class Deadline:
    """The end of one call, shared by all requests that it makes."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; 0 when there are none."""
        return max(0.0, self._end - time.monotonic())


#: A lookup stands between a request and its start: it waits no longer than this for the node.
LOOKUP_SECONDS: Final = 1.0
#: A node that has stopped answering is asked again and again whether it does, each time for so long.
_PROBE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.05


class Patience:
    """Waits once for a node that has stopped answering. From then on everything is a miss at once, until the node answers again."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Has the node stopped answering?"""
        return self._is_over

    def note(self, client: Client, deadline: Deadline, what: str) -> None:
        """A call has ended. If its time is over, the node is asked in the background whether it answers."""
        if deadline.left() > 0:
            return
        self._complaints.log(
            f"timeout {what}", f"{what}: the node has not answered in time, everything is a miss until it answers"
        )
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        threading.Thread(target=self._wait, args=(client,), name="meshcache-patience", daemon=True).start()

    def _wait(self, client: Client) -> None:
        try:
            # Without a node, everything is a miss at once.
            while client.is_connected and not client.ping(timeout=_PROBE_SECONDS):
                time.sleep(_PAUSE_SECONDS)
        except Exception as error:
            logger.debug("a node is no longer waited for: %s", error)
        self._is_over = False


Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(fallback: Callable[..., Any]) -> Callable[[Method], Method]:
    """A method that never raises. ``fallback`` takes its arguments and gives what says that nothing was found or done."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.complaints.log(
                    f"{method.__name__}: {type(error).__name__}", f"{method.__name__} failed: {error}", error
                )
                return fallback(*args, **kwargs)

        return call  # type: ignore[return-value]

    return wrap


def length(keys: Any) -> int:
    """How many there are; 0 for what has no length."""
    try:
        return len(keys)
    except TypeError:
        return 0


def misses(keys: Any = None, *_: Any, **__: Any) -> list[bool]:
    """A fallback: nothing was moved."""
    return [False] * length(keys)


def none_found(keys: Any = None, *_: Any, **__: Any) -> list[None]:
    """A fallback: nothing is there."""
    return [None] * length(keys)
