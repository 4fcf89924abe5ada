"""Hooks for events of which SGLang does not notify its storage: cache resets, changes of weights, and version names."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from meshcache._engines.modules import imported

from . import framework, hints
from .changes import live
from .guard import logger
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

#: Classes that change weights. The first ones see the request; the last ones also catch calls by older references.
_UPDATERS: Final = (
    ("sglang.srt.managers.scheduler_components.weight_updater", "SchedulerWeightUpdaterManager"),
    ("sglang.srt.managers.tp_worker", "BaseTpWorker"),
    ("sglang.srt.model_executor.model_runner_components.weight_updater", "WeightUpdater"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner"),
)

#: Methods of the controller that make a storage. Releases without the second one make it only at the start.
_START, _ATTACH = "__init__", "attach_storage_backend"

#: Module that serves requests. Without it, nothing in this process changes weights.
_SCHEDULER: Final = "sglang.srt.managers.scheduler"

_REQUESTS: Final = "sglang.srt.managers.schedule_batch"

_lock = threading.Lock()


def install() -> str | None:
    """Installs all hooks for the engines of this process, and may be called again. Returns why that failed, or None."""
    with _lock:
        controller = getattr(imported("sglang.srt.managers.cache_controller"), "HiCacheController", None)
        if not _wrap(controller, "reset", _reset):
            return "HiCacheController has no reset"
        scheduler = sys.modules.get(_SCHEDULER)
        if scheduler is None:
            return None
        _wrap(getattr(scheduler, "Scheduler", None), "handle_update_weight_version", _version)
        return _follow_updates()


def follow_hints() -> bool:
    """Lets ``hints`` see the requests of this process, whose hints SGLang passes to no storage. May be called again.

    Without the functions that are expected, hints are ignored, and a warning says so if requests can have any.
    """
    scheduler = sys.modules.get(_SCHEDULER)
    if scheduler is None:
        return False
    owners = getattr(scheduler, "Scheduler", None), getattr(sys.modules.get(_REQUESTS), "Req", None)
    with _lock:
        is_done = (
            framework.names_pages()
            and _takes_request(vars(owners[0] or object).get("_prefetch_kvcache"))
            and _wrap(owners[1], "update_finish_state", _ending)
            and _wrap(owners[0], "_prefetch_kvcache", _beginning)
        )
    if not is_done and framework.carries_hints():
        logger.warning(
            "kv_hints of requests are ignored: this version of SGLang does not have the functions that meshcache follows"
        )
    return is_done


def _takes_request(function: Any) -> bool:
    """Whether a method's first argument is a request."""
    try:
        return list(inspect.signature(function).parameters)[1] == "req"
    except (IndexError, TypeError, ValueError):
        return False


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
    """Wraps a method defined in this class itself. True if it is now wrapped, or was before."""
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
        # A storage that SGLang has wrapped is not recognized, so all are notified then.
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
    """Whether this is the reset in the constructor of the controller's own tree, which drops nothing."""
    return any(attribute(owner, "cache_controller") is controller for _, owner in _calls_under_way("__init__"))


def attaching_controller() -> tuple[Any, bool]:
    """The controller that is making a storage in this thread, if any, and whether its engine is already running. At the
    start, the storage is made in the controller's constructor."""
    kind = getattr(imported("sglang.srt.managers.cache_controller"), "HiCacheController", None)
    calls = [] if kind is None else [call for call in _calls_under_way(_START, _ATTACH) if isinstance(call[1], kind)]
    return (calls[0][1] if calls else None), bool(calls) and _START not in (name for name, _ in calls)


def weights_can_change() -> bool:
    """Whether the weights of an engine in this process can change."""
    return _SCHEDULER in sys.modules


def _calls_under_way(*names: str) -> Iterator[tuple[str, Any]]:
    """Active calls of methods with these names in this thread, innermost first: their names and objects."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name
        # Other frames are not inspected, as reading their variables could keep objects alive.
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
            # Some weights may have changed, but no update is open that would end later.
            for changes in live():
                changes.update_begins()
                changes.update_ends(None, has_told=False)
            raise
        # SGLang rejects an update while another one is open, and changes nothing.
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


def _beginning(original: Any) -> Any:
    def _prefetch_kvcache(self: Any, req: Any, *arguments: Any, **named: Any) -> Any:
        hints.request_begins(req, attribute(self, "tree_cache"))
        return original(self, req, *arguments, **named)

    return _prefetch_kvcache


def _ending(original: Any) -> Any:
    def update_finish_state(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        if self.finished_reason is not None:
            hints.request_ends(self)
        return result

    return update_finish_state


def _told(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[bool, str | None]:
    """Whether a request could name the version of the weights, and the version that it named."""
    for value in (*arguments, *named.values()):
        if hasattr(value, "weight_version"):
            version = value.weight_version
            return True, None if version is None else str(version)
    return False, None


def _succeeded(result: Any) -> bool:
    """Whether a method of SGLang returned success, in an object with ``success`` or a tuple that begins with it."""
    if isinstance(result, tuple) and result:
        return bool(result[0])
    return bool(getattr(result, "success", True))
