"""The parts of SGLang that this package uses. Without SGLang, stand-ins keep it importable for tests and demos."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from meshcache._engines.identity import Unreadable
from meshcache._engines.modules import imported


@dataclass
class _Result:
    """Stands in for ``PoolTransferResult``."""

    kv_hit_pages: int
    extra_pool_hit_pages: dict[Any, int] = field(default_factory=dict)
    restorable_prefix_pages: list[int] | None = None


_hicache = imported("sglang.srt.mem_cache.hicache_storage")

#: Whether SGLang is installed. If not, there is no engine whose settings could be read.
IS_INSTALLED: Final[bool] = _hicache is not None

#: The base class that SGLang's backend factory requires.
HiCacheStorage: Any = getattr(_hicache, "HiCacheStorage", object)

_PoolTransferResult: Any = getattr(_hicache, "PoolTransferResult", _Result)

#: Accessors of SGLang's runtime context (0.5.18 and newer), each for a group of settings in effect.
_GROUPS = ("get_model", "get_serving", "get_spec", "get_lora")

#: The version of the weights that SGLang reports if it was not told one.
_UNNAMED_VERSION = "default"


def pool_transfer_result(kv_pages: int, found: dict[Any, int], restorable: list[int]) -> Any:
    """A ``PoolTransferResult``. SGLang without its field ``restorable_prefix_pages`` gets no list."""
    try:
        return _PoolTransferResult(kv_pages, found, restorable)
    except TypeError:
        return _PoolTransferResult(kv_pages, found)


def storage_metrics_class() -> Any:
    """SGLang's ``StorageMetrics``, the only type that its collector accepts; None if it cannot be imported."""
    module = imported("sglang.srt.observability.metrics_collector", "sglang.srt.metrics.collector")
    return getattr(module, "StorageMetrics", None)


def given(name: str) -> Any:
    """A server argument as given by the operator; None if this version of SGLang lacks it. Raises ``Unreadable``."""
    arguments = _server_arguments()
    return getattr(arguments, name) if name in _declared(arguments) else None


def in_effect(name: str) -> Any:
    """A server argument as SGLang uses it now. Raises ``Unreadable``."""
    context = imported("sglang.srt.runtime_context")
    if not hasattr(context, _GROUPS[0]):
        # Versions without groups change the arguments themselves.
        return given(name)
    for group in _GROUPS:
        settings = getattr(context, group)()
        if name in settings:
            return getattr(settings, name)
    raise Unreadable(f"SGLang has no setting {name}")


def in_effect_if_any(name: str) -> Any:
    """A server argument as SGLang uses it now; None if this version of SGLang lacks it. Raises ``Unreadable``."""
    return in_effect(name) if name in _declared(_server_arguments()) else None


def switch(name: str) -> Any:
    """SGLang's value of an environment variable; None if this version of SGLang lacks it."""
    variable = getattr(getattr(imported("sglang.srt.environ"), "envs", None), name, None)
    return None if variable is None else variable.get()


def weight_version() -> str | None:
    """The version of the weights that SGLang reports now; None if it was not told one, or it cannot be read."""
    if not IS_INSTALLED:
        return None
    try:
        version = in_effect("weight_version")
    except Exception:
        return None
    return None if not version or version == _UNNAMED_VERSION else str(version)


def carries_hints() -> bool:
    """Whether requests have a field for hints: from SGLang 0.5.23 on."""
    return imported("sglang.srt.managers.kv_hints") is not None


def hashes_have_namespaces() -> bool:
    """Whether the keys of pages depend on the request's adapter. They do not before SGLang 0.5.20."""
    return hasattr(imported("sglang.srt.mem_cache.utils"), "storage_namespace_seed")


def names_pages() -> bool:
    """Whether SGLang has the functions that ``page_keys`` needs: from 0.5.20 on."""
    utils, radix = imported("sglang.srt.mem_cache.utils"), imported("sglang.srt.mem_cache.radix_cache")
    return hasattr(utils, "get_storage_hash_str") and hasattr(radix, "RadixKey")


def page_keys(
    tokens: Any, extra_key: str | None, cache_salt: str | None, *, page_size: int, is_bigram: bool
) -> list[str]:
    """The keys of the whole pages of these tokens, by SGLang's own function."""
    utils, radix = imported("sglang.srt.mem_cache.utils"), imported("sglang.srt.mem_cache.radix_cache")
    path = radix.RadixKey(tokens, extra_key, is_bigram=is_bigram, cache_salt=cache_salt).page_aligned(page_size)
    return list(utils.get_storage_hash_str(path, None, page_size=page_size)) if len(path) > 0 else []


def _declared(arguments: Any) -> set[str]:
    declared = {part for kind in type(arguments).__mro__ for part in getattr(kind, "__annotations__", {})}
    return declared | set(getattr(type(arguments), "__struct_fields__", ()))


def _server_arguments() -> Any:
    context = imported("sglang.srt.runtime_context")
    read = getattr(context, "get_server_args", None)
    if read is None:
        read = getattr(imported("sglang.srt.server_args"), "get_global_server_args", None)
    if read is None:
        raise Unreadable(
            "this version of SGLang keeps its arguments where this version of meshcache does not find them"
        )
    arguments = read()
    if arguments is None:
        raise Unreadable("SGLang has not set its arguments in this process")
    return arguments
