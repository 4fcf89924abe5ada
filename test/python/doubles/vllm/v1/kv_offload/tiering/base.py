"""A double of the framework's module: the base class of tiers, and what is passed to and fro."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, ReqContext, RequestOffloadingContext, ScheduleEndContext


@dataclass
class TransferJob:
    job_id: int
    keys: Collection[bytes]
    chunk_ids: Any
    is_promotion: bool
    req_context: ReqContext


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Collection[bytes] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class SecondaryTierManager(ABC):
    medium: Any = None

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str) -> None:
        self._offloading_spec = offloading_spec
        self._primary_kv_view = primary_kv_view
        self.tier_type = tier_type
        self.locality: Any = None

    @abstractmethod
    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        ...

    @abstractmethod
    def submit_store(self, job_metadata: TransferJob) -> None:
        ...

    @abstractmethod
    def submit_load(self, job_metadata: TransferJob) -> None:
        ...

    @abstractmethod
    def get_finished_jobs(self) -> Iterable[JobResult]:
        ...

    def has_pending_work(self) -> bool:
        return False

    def take_events(self) -> Iterable[Any]:
        return ()

    def touch(self, keys: Collection[bytes], req_context: ReqContext) -> None:
        return

    @abstractmethod
    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        ...

    def on_request_finished(self, req_context: ReqContext) -> None:
        return

    def bind_parent(self, parent: Any) -> None:
        return

    def stop_executor(self) -> None:
        return

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        return

    @abstractmethod
    def drain_jobs(self) -> None:
        ...

    def shutdown(self) -> None:
        return

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {}

    def get_stats(self) -> Any:
        return None
