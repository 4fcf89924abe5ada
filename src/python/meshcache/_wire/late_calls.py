"""Logs calls that run into their deadline; otherwise, an engine's log would show only misses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from .._engines.complaints import Complaints
from ..settings import Settings

if TYPE_CHECKING:
    from ..client import Client

#: A call has run into its deadline after nine tenths of its time, because the node itself ends requests then.
_SHARE: Final = 0.9

_Method = TypeVar("_Method", bound=Callable[..., Any])


class LateCalls:
    """Logs at most one WARNING in 30 seconds for each kind of call, with the number of keys and the time."""

    def __init__(self, settings: Settings) -> None:
        self._timeout = settings.timeout
        #: Seconds from which on a call without a timeout of its own is late.
        self.late_seconds = _SHARE * settings.timeout
        self._complaints = Complaints(settings.logger)

    def check(self, name: str, keys: int | None, timeout: float | None, seconds: float) -> None:
        """Logs the call if it has used up its time."""
        allowed = self._timeout if timeout is None else timeout
        if seconds < _SHARE * allowed:
            return
        of = "" if keys is None else f" of {keys} key{'' if keys == 1 else 's'}"
        rest = "the rest are not set" if name.startswith("set") else "the rest are misses"
        self._complaints.log(
            name, f"{name}{of} has taken {seconds:.2f} s and ran into its deadline of {allowed:g} s: {rest}"
        )


def watched(method: _Method) -> _Method:
    """Reports calls of a client method to `LateCalls`. Its first argument, if any, is keys; `timeout` is a keyword."""
    name = method.__name__

    @functools.wraps(method)
    def call(client: Client, *args: Any, **arguments: Any) -> Any:
        began = monotonic()
        result = method(client, *args, **arguments)
        seconds = monotonic() - began
        timeout = arguments.get("timeout")
        if timeout is not None or seconds >= client._late_calls.late_seconds:
            keys = args[0] if args else None
            client._late_calls.check(name, len(keys) if hasattr(keys, "__len__") else None, timeout, seconds)
        return result

    return cast(_Method, call)
