"""What this package takes from SGLang. Without SGLang, stand-ins keep it importable for tests and demos."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any


def _imported(*names: str) -> Any:
    """The first of these modules that can be imported; None when there is none."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


@dataclass
class _Result:
    """Stands in for ``PoolTransferResult``."""

    kv_hit_pages: int
    extra_pool_hit_pages: dict[Any, int] = field(default_factory=dict)
    restorable_prefix_pages: list[int] | None = None


_hicache = _imported("sglang.srt.mem_cache.hicache_storage")

#: The base class that SGLang's backend factory demands.
HiCacheStorage: Any = getattr(_hicache, "HiCacheStorage", object)

_PoolTransferResult: Any = getattr(_hicache, "PoolTransferResult", _Result)


def pool_transfer_result(kv_pages: int, found: dict[Any, int], restorable: list[int]) -> Any:
    """A ``PoolTransferResult``. SGLang before ``restorable_prefix_pages`` has two fields and gets no list."""
    try:
        return _PoolTransferResult(kv_pages, found, restorable)
    except TypeError:
        return _PoolTransferResult(kv_pages, found)


def storage_metrics_class() -> Any:
    """SGLang's ``StorageMetrics``, the only type that its collector accepts; None when it cannot be imported."""
    module = _imported("sglang.srt.observability.metrics_collector", "sglang.srt.metrics.collector")
    return getattr(module, "StorageMetrics", None)
