"""Hooks for information that vLLM does not pass to tiers: configuration, and changes of weights, caches and adapters.

A hook wraps a method of one of vLLM's classes. Each is installed once per process, when the first tier is made, and
does nothing in engines without a meshcache tier.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from meshcache._engines.modules import imported

from .adapters import Adapters
from .framework import logger

#: Method name for ``LLM.collective_rpc`` that no worker has. It tells the tier the version of the weights.
TELL: Final = "meshcache_set_fingerprint"

#: Methods of workers that do not change weights. All others may.
_HARMLESS: Final = re.compile(
    r"(get|is|has|list|check|compute|report|describe|profile|start_profile|stop_profile|save|synchronize|execute_dummy|measure|determine|"
    r"init_weight_transfer|shutdown_weight_transfer)(_.*)?|pin_lora|reset_mm_cache|reset_encoder_cache"
)
#: Methods of workers that free the memory of weights and restore it.
_SLEEP: Final = frozenset({"sleep", "wake_up"})
_MARK: Final = "_meshcache_hook"


class Listener(Protocol):
    """A tier, as the hooks see it."""

    def bind(self, vllm_config: Any, kv_cache_config: Any = None) -> None:
        """Called when the engine's configuration, and the layout of its caches, are known."""

    def reset_begins(self) -> bool:
        """Called before vLLM's cache is dropped. Returns whether the pool in host memory must be dropped as well."""

    def reset_ended(self, *, is_clear: bool, is_busy: bool) -> None:
        """Called after vLLM's caches were dropped, or that failed (not ``is_clear``). ``is_busy``: requests go on."""

    def weights_change(self, how: str, *, is_sleep: bool = False) -> None:
        """Called before the weights may change. ``is_sleep``: the call only frees or restores their memory."""

    def set_fingerprint(self, fingerprint: str | None) -> None:
        """Called with the version of the weights; None: the model's name alone identifies them."""


#: The adapters of this process, which has one engine.
adapters: Final = Adapters()
_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
#: ``VllmConfig`` and ``KVCacheConfig`` of the connectors that are being made, innermost last.
_building: list[tuple[Any, Any]] = []


def listen(listener: Listener) -> None:
    """Notifies a listener while it lives."""
    _listeners.add(listener)


def unlisten(listener: Listener) -> None:
    """Stops notifying a listener."""
    _listeners.discard(listener)


def listeners() -> list[Any]:
    """All tiers of this process."""
    return list(_listeners)


def install() -> list[str]:
    """Installs all hooks. Returns the names of those that this version of vLLM does not support."""
    scheduler = getattr(imported("vllm.v1.core.sched.scheduler"), "Scheduler", None)
    engine = getattr(imported("vllm.v1.engine.core"), "EngineCore", None)
    hashes = imported("vllm.v1.core.kv_cache_utils")
    install_config_hook()
    for name in ("get_kv_connector", "add_request"):
        _wrap(scheduler, name, _binding)
    _wrap(engine, "set_weight_version", _telling)
    found = {
        "resets": _wrap(scheduler, "reset_prefix_cache", _resetting),
        "weight_changes": _wrap(engine, "collective_rpc", _calling_workers),
        "adapters": _wrap(hashes, "_gen_lora_extra_hash_keys", _marking)
        and _wrap(engine, "add_lora", _loading)
        and _wrap(engine, "remove_lora", _removing),
    }
    return [name for name, is_followed in found.items() if not is_followed]


def install_config_hook() -> None:
    """Lets tiers that vLLM makes from now on find its configuration immediately."""
    module = imported("vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector")
    _wrap(getattr(module, "OffloadingConnector", None), "__init__", _building_connector)


def config_of(spec: Any) -> Any:
    """The ``VllmConfig`` of an offloading specification; None: it cannot be found now."""
    own = getattr(spec, "vllm_config", None)
    if own is not None:
        return own
    current = getattr(imported("vllm.config"), "get_current_vllm_config_or_none", None)
    candidates = [*(config for config, _ in reversed(_building)), current() if current is not None else None]
    extra_config = getattr(spec, "extra_config", None)
    for config in candidates:
        transfer = getattr(config, "kv_transfer_config", None)
        if transfer is not None and transfer.kv_connector_extra_config == extra_config:
            return config
    return None


def kv_cache_config_of(vllm_config: Any) -> Any:
    """The ``KVCacheConfig`` of the connector that is being made with this configuration; None: not found now."""
    return next((own for config, own in reversed(_building) if config is vllm_config), None)


def _wrap(owner: Any, name: str, hook: Callable[[Any], Any]) -> bool:
    """Wraps a method with a hook, once. Returns whether it is wrapped."""
    method = getattr(owner, name, None)
    if owner is None or method is None:
        return False
    if not hasattr(method, _MARK):
        wrapper = functools.wraps(method)(hook(method))
        setattr(wrapper, _MARK, True)
        setattr(owner, name, wrapper)
    return hasattr(getattr(owner, name), _MARK)


def _tiers_of(scheduler: Any) -> list[Any]:
    """The tiers of an engine, or all tiers of the process if the engine's own cannot be determined."""
    living = listeners()
    connector = getattr(scheduler, "connector", None)
    if connector is None or not living:
        return []
    found = [tier for part in _parts_of(connector) for tier in _tiers_in(part, living)]
    return found or living


def _parts_of(connector: Any) -> list[Any]:
    """The connectors in a ``MultiConnector``; any other connector alone."""
    return list(getattr(connector, "_connectors", None) or [connector])


def _tiers_in(connector: Any, living: list[Any]) -> list[Any]:
    manager = getattr(getattr(connector, "connector_scheduler", None), "manager", None)
    return [tier for tier in getattr(manager, "secondary_tiers", ()) if any(tier is own for own in living)]


def _building_connector(init: Any) -> Any:
    def __init__(self: Any, vllm_config: Any, *arguments: Any, **options: Any) -> None:
        # In newer versions, the further arguments are a role and the KVCacheConfig.
        _building.append((vllm_config, options.get("kv_cache_config", arguments[1] if len(arguments) > 1 else None)))
        try:
            init(self, vllm_config, *arguments, **options)
        finally:
            _building.pop()

    return __init__


def _binding(method: Any) -> Any:
    """Binds tiers to the configuration of the complete engine, in case they were made before hooks were installed."""

    def bound(self: Any, *arguments: Any, **options: Any) -> Any:
        for tier in _tiers_of(self):
            tier.bind(self.vllm_config, getattr(self, "kv_cache_config", None))
        return method(self, *arguments, **options)

    return bound


def _resetting(reset: Any) -> Any:
    def reset_prefix_cache(self: Any, reset_running_requests: bool = False, reset_connector: bool = False) -> Any:
        tiers = [tier for tier in _tiers_of(self) if tier.reset_begins()]
        if not tiers:
            return reset(self, reset_running_requests, reset_connector)
        is_clear = False
        try:
            result = reset(self, reset_running_requests, reset_connector)
            # The pool in host memory contains copies of the GPU's cache, with KV of the same weights.
            is_clear = bool(result) and (reset_connector or _reset_pools(self))
        finally:
            for tier in tiers:
                tier.reset_ended(is_clear=is_clear, is_busy=bool(self.has_unfinished_requests()))
        return result

    return reset_prefix_cache


def _reset_pools(scheduler: Any) -> bool:
    """Drops the pools in host memory above meshcache tiers only, as other connectors may share theirs with engines."""
    parts, living = _parts_of(scheduler.connector), listeners()
    own = [part for part in parts if _tiers_in(part, living)]
    try:
        if not own or len(own) == len(parts):
            return bool(scheduler.reset_connector_cache())
        return all([part.reset_cache() is not False for part in own])
    except Exception:
        logger.exception("vLLM's pool in host memory could not be cleared: nothing is shared until a reset succeeds")
        return False


def _calling_workers(call: Any) -> Any:
    def collective_rpc(self: Any, method: Any, *arguments: Any, **options: Any) -> Any:
        tiers = _tiers_of(getattr(self, "scheduler", None))
        if method == TELL:
            _tell(tiers, *_arguments_of(*arguments, **options))
            return [None]
        name = method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)
        if not isinstance(method, str) or not _HARMLESS.fullmatch(method):
            for tier in tiers:
                tier.weights_change(name, is_sleep=isinstance(method, str) and method in _SLEEP)
        return call(self, method, *arguments, **options)

    return collective_rpc


def _arguments_of(timeout: Any = None, args: Any = (), kwargs: Any = None) -> tuple[Any, ...]:
    return (*args, *(kwargs or {}).values())


def _tell(tiers: list[Any], fingerprint: Any = None, *more: Any) -> None:
    if more or not (fingerprint is None or isinstance(fingerprint, str)):
        raise ValueError(f"{TELL} takes one string, the version of the weights, or None; got {(fingerprint, *more)!r}")
    for tier in tiers:
        tier.set_fingerprint(fingerprint)


def _telling(method: Any) -> Any:
    def set_weight_version(self: Any, weight_version: Any, *arguments: Any, **options: Any) -> Any:
        result = method(self, weight_version, *arguments, **options)
        _tell(_tiers_of(getattr(self, "scheduler", None)), str(weight_version))
        return result

    return set_weight_version


def _marking(method: Any) -> Any:
    """Adds a digest of the adapter's files to the keys of requests with an adapter."""

    def _gen_lora_extra_hash_keys(request: Any) -> Any:
        keys = method(request)
        if not keys or not listeners():
            return keys
        mark = adapters.mark(request)
        first = keys[0]
        # Newer versions have a tuple, of which only the name, which stays, is published.
        return [(*first, mark), *keys[1:]] if isinstance(first, tuple) else [*keys, mark]

    return _gen_lora_extra_hash_keys


def _loading(method: Any) -> Any:
    def add_lora(self: Any, lora_request: Any, *arguments: Any, **options: Any) -> Any:
        adapters.loads(lora_request)
        result = method(self, lora_request, *arguments, **options)
        adapters.loaded(lora_request)
        return result

    return add_lora


def _removing(method: Any) -> Any:
    def remove_lora(self: Any, lora_id: int, *arguments: Any, **options: Any) -> Any:
        result = method(self, lora_id, *arguments, **options)
        adapters.removed(lora_id)
        return result

    return remove_lora
