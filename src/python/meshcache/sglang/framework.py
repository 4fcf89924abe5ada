"""What this package takes from SGLang. Without SGLang, stand-ins keep it importable for tests and demos."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meshcache._engines.modules import imported


@dataclass
class _Result:
    """Stands in for ``PoolTransferResult``."""

    kv_hit_pages: int
    extra_pool_hit_pages: dict[Any, int] = field(default_factory=dict)
    restorable_prefix_pages: list[int] | None = None


_hicache = imported("sglang.srt.mem_cache.hicache_storage")

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
    module = imported("sglang.srt.observability.metrics_collector", "sglang.srt.metrics.collector")
    return getattr(module, "StorageMetrics", None)
