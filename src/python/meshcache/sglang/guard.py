"""What keeps SGLang's control threads alive: a thread that meets an exception ends, and is never started again."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

logger = logging.getLogger("meshcache.sglang")


class Deadline:
    """The end of one call, shared by all requests that it makes."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; 0 when there are none."""
        return max(0.0, self._end - time.monotonic())


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
