"""What keeps SGLang's control threads alive: a thread that meets an exception ends, and is never started again."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

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
