"""A double of the framework's module in its first versions: the base class of tiers, and what is passed to and fro."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from vllm.v1.kv_offload.base import ReqContext, RequestOffloadingContext


@dataclass
class JobMetadata:
    job_id: int
    keys: Collection[bytes]
    block_ids: Any
    is_promotion: bool
    req_context: ReqContext


@dataclass
class JobResult:
    job_id: int
    success: bool


class SecondaryTierManager(ABC):
    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str) -> None:
        self._offloading_spec = offloading_spec
        self._primary_kv_view = primary_kv_view
        self.tier_type = tier_type

    @abstractmethod
    def lookup(self, key: bytes, req_context: ReqContext) -> bool | None:
        ...

    @abstractmethod
    def submit_store(self, job_metadata: JobMetadata) -> None:
        ...

    @abstractmethod
    def submit_load(self, job_metadata: JobMetadata) -> None:
        ...

    @abstractmethod
    def get_finished(self) -> Iterable[JobResult]:
        ...

    def touch(self, keys: Collection[bytes], req_context: ReqContext) -> None:
        return

    def get_request_offloading_context(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def request_finished(self, req_context: ReqContext) -> None:
        return

    def shutdown(self) -> None:
        return
