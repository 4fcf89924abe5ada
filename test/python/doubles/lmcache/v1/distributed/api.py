"""Keys of LMCache's server mode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ObjectKey:
    """One chunk of one object group, as one rank of one model has it."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""
