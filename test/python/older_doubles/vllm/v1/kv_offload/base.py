"""A double of the framework's module in its first versions with tiers: lookups answer true, false, or None."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


def make_offload_key(block_hash: bytes, group_idx: int) -> bytes:
    return block_hash + group_idx.to_bytes(4, "big", signed=False)


@dataclass
class ReqContext:
    req_id: str
    kv_transfer_params: dict[str, Any] | None = None


class OffloadPolicy(Enum):
    BLOCK_LEVEL = "block_level"
    REQUEST_LEVEL = "request_level"


@dataclass
class RequestOffloadingContext:
    policy: OffloadPolicy = OffloadPolicy.BLOCK_LEVEL


class OffloadingSpec:
    def __init__(self, vllm_config: Any, kv_cache_config: Any) -> None:
        self.vllm_config = vllm_config
        self.kv_cache_config = kv_cache_config
        self.extra_config = vllm_config.kv_transfer_config.kv_connector_extra_config
        parallel = vllm_config.parallel_config
        factor = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
        self.gpu_block_size = tuple(
            group.kv_cache_spec.block_size * factor for group in kv_cache_config.kv_cache_groups
        )
        self.hash_block_size = vllm_config.cache_config.block_size * factor
        self.block_size_factor = 1
