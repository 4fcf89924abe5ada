"""Events of SGLang that it tells its storage nothing of: its own cache is dropped, weights change, their version is named."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from meshcache._engines.modules import imported

from .changes import live
from .memory import attribute

#: Marks a function that has been wrapped.
_MARK: Final = "_meshcache_hook"

_UPDATES: Final = (
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
    "load_weights_from_distributed",
)

#: Where weights are changed. The first ones know what the request says; the last ones are called whatever has kept a reference to the first.
_UPDATERS: Final = (
    ("sglang.srt.managers.scheduler_components.weight_updater", "SchedulerWeightUpdaterManager"),
    ("sglang.srt.managers.tp_worker", "BaseTpWorker"),
    ("sglang.srt.model_executor.model_runner_components.weight_updater", "WeightUpdater"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner"),
)

#: The controller's methods in which a storage is made. Releases without the second one make it at the start only.
_START, _ATTACH = "__init__", "attach_storage_backend"

#: Where requests are served. Without this module, nothing in this process changes weights.
_SCHEDULER: Final = "sglang.srt.managers.scheduler"

_lock = threading.Lock()


def install() -> str | None:
    """From now on, all engines of this process are told what happens. May be called again. Returns why this is not possible; None: it is."""
    with _lock:
        controller = getattr(imported("sglang.srt.managers.cache_controller"), "HiCacheController", None)
        if not _wrap(controller, "reset", _reset):
            return "HiCacheController has no reset"
        scheduler = sys.modules.get(_SCHEDULER)
        if scheduler is None:
            return None
        _wrap(getattr(scheduler, "Scheduler", None), "handle_update_weight_version", _version)
        return _follow_updates()


def _follow_updates() -> str | None:
    found: set[str] = set()
    for module, name in _UPDATERS:
        kind = getattr(sys.modules.get(module), name, None)
        found.update(method for method in _UPDATES if _wrap(kind, method, _update))
        _wrap(kind, "begin_weight_update", _session_begins)
        _wrap(kind, "end_weight_update", _session_ends)
    missing = {"update_weights_from_disk", "update_weights_from_tensor", "update_weights_from_ipc"} - found
    if missing:
        return f"this version of SGLang does not have {', '.join(sorted(missing))} where meshcache looks for them"
    return None


def _wrap(kind: Any, name: str, wrapper: Callable[[Any], Any]) -> bool:
    """Wraps a method that this very class has. True: it is wrapped now, or was before."""
    original = None if kind is None else vars(kind).get(name)
    if not callable(original):
        return False
    if not getattr(original, _MARK, False):
        wrapped = functools.wraps(original)(wrapper(original))
        setattr(wrapped, _MARK, True)
        setattr(kind, name, wrapped)
    return True


def _reset(original: Any) -> Any:
    def reset(self: Any, *arguments: Any, **named: Any) -> Any:
        storage = attribute(self, "storage_backend")
        # A storage that SGLang has wrapped is none of ours: all are told then.
        followers = [changes for changes in live() if changes.is_of(storage)] or live()
        if _is_being_made(self):
            followers = []
        for changes in followers:
            changes.reset_begins()
        try:
            return original(self, *arguments, **named)
        finally:
            for changes in followers:
                changes.reset_ends()

    return reset


def _is_being_made(controller: Any) -> bool:
    """Is this the reset at the end of the constructor of the controller's own tree? That one drops nothing."""
    return any(attribute(owner, "cache_controller") is controller for _, owner in _calls_under_way("__init__"))


def attaching_controller() -> tuple[Any, bool]:
    """The controller that is making a storage in this thread, if any, and whether its engine runs already: one that starts makes it in its constructor."""
    kind = getattr(imported("sglang.srt.managers.cache_controller"), "HiCacheController", None)
    calls = [] if kind is None else [call for call in _calls_under_way(_START, _ATTACH) if isinstance(call[1], kind)]
    return (calls[0][1] if calls else None), bool(calls) and _START not in (name for name, _ in calls)


def weights_can_change() -> bool:
    """Has this process what changes the weights of an engine?"""
    return _SCHEDULER in sys.modules


def _calls_under_way(*names: str) -> Iterator[tuple[str, Any]]:
    """The methods of these names that are being called in this thread, innermost first: their names, and their objects."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name
        # Looking at the variables of other frames could keep what they hold alive.
        owner = frame.f_locals.get("self") if name in names else None
        if owner is not None:
            yield name, owner
        frame = frame.f_back


def _update(original: Any) -> Any:
    def update(self: Any, *arguments: Any, **named: Any) -> Any:
        followers = live()
        for changes in followers:
            changes.update_begins()
        has_told, version = False, None
        try:
            result = original(self, *arguments, **named)
            has_told, version = _told(arguments, named)
            if not _succeeded(result):
                version = None
            return result
        finally:
            for changes in followers:
                changes.update_ends(version, has_told=has_told)

    return update


def _session_begins(original: Any) -> Any:
    def begin(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            result = original(self, *arguments, **named)
        except BaseException:
            # Some weights may have been changed, and no update is open that could end.
            for changes in live():
                changes.update_begins()
                changes.update_ends(None, has_told=False)
            raise
        # SGLang rejects an update while another one is open, and then changes nothing.
        if _succeeded(result):
            for changes in live():
                changes.opened(id(self))
        return result

    return begin


def _session_ends(original: Any) -> Any:
    def end(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        if _succeeded(result):
            for changes in live():
                changes.closed(id(self))
        return result

    return end


def _version(original: Any) -> Any:
    def handle(self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, request, *arguments, **named)
        version = getattr(request, "new_version", None)
        if version is not None:
            for changes in live():
                changes.tell(str(version))
        return result

    return handle


def _told(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[bool, str | None]:
    """Whether a request could have named the version of the weights, and which it named."""
    for value in (*arguments, *named.values()):
        if hasattr(value, "weight_version"):
            version = value.weight_version
            return True, None if version is None else str(version)
    return False, None


def _succeeded(result: Any) -> bool:
    """What SGLang's methods return says so: an object with ``success``, or a tuple that begins with it."""
    if isinstance(result, tuple) and result:
        return bool(result[0])
    return bool(getattr(result, "success", True))
