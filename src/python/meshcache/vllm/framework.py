"""The parts of vLLM that this package uses. Without vLLM, stand-ins keep it importable for tests and tools."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshcache._engines.modules import imported

#: The name is below ``vllm``, so that its output appears in vLLM's own log.
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

#: Whether vLLM is installed. If not, there is no engine, and facts that only an engine has are "none".
IS_INSTALLED: bool = _tiering is not None

#: The base class that vLLM's tier factory requires.
SecondaryTierManager: Any = getattr(_tiering, "SecondaryTierManager", _Tier)

#: Arguments that vLLM itself passes to the constructor of a tier; all others come from the configuration.
CONSTRUCTOR_PARAMETERS: frozenset[str] = frozenset(inspect.signature(SecondaryTierManager.__init__).parameters)

_LookupResult: Any = getattr(_base, "LookupResult", None)
_JobResult: Any = getattr(_tiering, "JobResult", _Result)
_JOB_RESULT_FIELDS = frozenset(inspect.signature(_JobResult).parameters)
_RequestOffloadingContext: Any = getattr(_base, "RequestOffloadingContext", None)
_OffloadingEvent: Any = getattr(_base, "OffloadingEvent", None)
_Locality: Any = getattr(_base, "Locality", None)
_Medium: Any = getattr(_base, "Medium", None)

#: Answers of a lookup: members of an enumeration, or, in older versions, true, false, and None for "ask again".
HIT: Any = True if _LookupResult is None else _LookupResult.HIT
MISS: Any = False if _LookupResult is None else _LookupResult.MISS
RETRY: Any = None if _LookupResult is None else _LookupResult.RETRY

#: Medium of this tier for requests that select tiers by medium; None in versions without such a selection.
STORAGE: Any = getattr(_Medium, "STORAGE", None)

#: Source of hits in vLLM's metrics: a store with several media and hosts.
HIT_SOURCE: Any = getattr(
    getattr(imported("vllm.v1.metrics.cache_hit_source"), "CacheHitSource", None), "EXTERNAL_UNSPECIFIED", None
)


def lookup_result(is_there: bool | None) -> Any:
    """vLLM's answer to a lookup; ``is_there`` is None if it is not known yet."""
    if is_there is None:
        return RETRY
    return HIT if is_there else MISS


def job_result(
    job_id: int, success: bool, *, successful_keys: Sequence[Any] | None, size_bytes: int, seconds: float
) -> Any:
    """A ``JobResult`` with those of these fields that this version of vLLM has."""
    more = {
        "successful_keys": successful_keys,
        "transfer_bytes": size_bytes,
        "transfer_size": size_bytes,
        "transfer_time": seconds,
    }
    known = {name: value for name, value in more.items() if name in _JOB_RESULT_FIELDS}
    return _JobResult(job_id=job_id, success=success, **known)


def request_context() -> Any:
    """A ``RequestOffloadingContext`` without preferences: chunks are offloaded as they are computed."""
    return None if _RequestOffloadingContext is None else _RequestOffloadingContext()


def locality(name: str | None) -> Any:
    """vLLM's value for "LOCAL" or "REMOTE"; None if it has none."""
    return None if name is None or _Locality is None else _Locality(name)


def stored_event(keys: Sequence[Any], place: Any) -> Any | None:
    """An event that a tier has stored these chunks; None: this version takes no events from tiers."""
    if _OffloadingEvent is None or STORAGE is None:
        return None
    return _OffloadingEvent(keys=list(keys), medium=STORAGE, removed=False, locality=place)
