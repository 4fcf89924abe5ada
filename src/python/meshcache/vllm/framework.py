"""What this package takes from vLLM. Without vLLM, stand-ins keep it importable for tests and tools."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshcache._engines.modules import imported

#: A name below ``vllm``, so that its lines appear in vLLM's own log.
logger = logging.getLogger("vllm.meshcache")


class _Tier:
    """Stands in for ``SecondaryTierManager``."""

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str) -> None:
        self.tier_type = tier_type


@dataclass
class _Result:
    """Stands in for ``JobResult``."""

    job_id: int
    success: bool
    successful_keys: Sequence[Any] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


_base = imported("vllm.v1.kv_offload.base")
_tiering = imported("vllm.v1.kv_offload.tiering.base")

#: Whether there is a vLLM. Without one there is no engine, so that facts that only an engine has are "none".
IS_INSTALLED: bool = _tiering is not None

#: The base class that vLLM's tier factory demands.
SecondaryTierManager: Any = getattr(_tiering, "SecondaryTierManager", _Tier)

#: What vLLM itself passes to the constructor of a tier; everything else comes from the configuration.
CONSTRUCTOR_PARAMETERS: frozenset[str] = frozenset(inspect.signature(SecondaryTierManager.__init__).parameters)

_LookupResult: Any = getattr(_base, "LookupResult", None)
_JobResult: Any = getattr(_tiering, "JobResult", _Result)
_JOB_RESULT_FIELDS = frozenset(inspect.signature(_JobResult).parameters)
_RequestOffloadingContext: Any = getattr(_base, "RequestOffloadingContext", None)
_OffloadingEvent: Any = getattr(_base, "OffloadingEvent", None)
_Locality: Any = getattr(_base, "Locality", None)
_Medium: Any = getattr(_base, "Medium", None)

#: Answers of a lookup: an enumeration, or in older versions true, false, and None for "ask again".
HIT: Any = True if _LookupResult is None else _LookupResult.HIT
MISS: Any = False if _LookupResult is None else _LookupResult.MISS
RETRY: Any = None if _LookupResult is None else _LookupResult.RETRY

#: What requests that choose tiers by medium call this one. Versions without an enumeration have no such choice.
STORAGE: Any = getattr(_Medium, "STORAGE", None)

#: Where vLLM's metrics say that hits are from: a store of several media and hosts.
HIT_SOURCE: Any = getattr(
    getattr(imported("vllm.v1.metrics.cache_hit_source"), "CacheHitSource", None), "EXTERNAL_UNSPECIFIED", None
)


def lookup_result(is_there: bool | None) -> Any:
    """What a lookup answers; None: it is not known yet."""
    if is_there is None:
        return RETRY
    return HIT if is_there else MISS


def job_result(
    job_id: int, success: bool, *, successful_keys: Sequence[Any] | None, size_bytes: int, seconds: float
) -> Any:
    """A ``JobResult`` with the fields that this version of vLLM has beside ``job_id`` and ``success``."""
    more = {
        "successful_keys": successful_keys,
        "transfer_bytes": size_bytes,
        "transfer_size": size_bytes,
        "transfer_time": seconds,
    }
    known = {name: value for name, value in more.items() if name in _JOB_RESULT_FIELDS}
    return _JobResult(job_id=job_id, success=success, **known)


def request_context() -> Any:
    """A ``RequestOffloadingContext`` without wishes: chunks are offloaded as they are computed."""
    return None if _RequestOffloadingContext is None else _RequestOffloadingContext()


def locality(name: str | None) -> Any:
    """vLLM's name for "LOCAL" or "REMOTE"; None where it has none."""
    return None if name is None or _Locality is None else _Locality(name)


def stored_event(keys: Sequence[Any], place: Any) -> Any | None:
    """The event that says that a tier has these chunks; None: this version takes no events of tiers."""
    if _OffloadingEvent is None or STORAGE is None:
        return None
    return _OffloadingEvent(keys=list(keys), medium=STORAGE, removed=False, locality=place)
