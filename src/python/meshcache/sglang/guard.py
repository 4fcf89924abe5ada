"""Keeps exceptions from SGLang's control threads, which would end and never be restarted."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

logger = logging.getLogger("meshcache.sglang")


class Deadline:
    """The deadline of one call, shared by all its requests."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 if there are none."""
        return max(0.0, self._end - time.monotonic())


#: Longest wait of a lookup for the node, because it delays the start of a request.
LOOKUP_SECONDS: Final = 1.0

Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(fallback: Callable[..., Any]) -> Callable[[Method], Method]:
    """Decorates a method so that it never raises. ``fallback`` takes its arguments and makes the result on failure."""

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
    """Number of elements; 0 for an object without a length."""
    try:
        return len(keys)
    except TypeError:
        return 0


def misses(keys: Any = None, *_: Any, **__: Any) -> list[bool]:
    """Fallback result: nothing was moved."""
    return [False] * length(keys)


def none_found(keys: Any = None, *_: Any, **__: Any) -> list[None]:
    """Fallback result: nothing exists."""
    return [None] * length(keys)
