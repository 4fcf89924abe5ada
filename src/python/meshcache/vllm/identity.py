"""What the chunks of an engine are kept under, so that engines of different configurations share none."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from meshcache import Namespace

from .framework import logger

#: Facts that may differ between engines whose chunks are the same. Every other field of the configuration counts, also those of
#: versions to come: a field too many costs hits, a field too few would mix chunks.
IGNORED_FIELDS = frozenset(
    {
        "data_parallel_index",
        "data_parallel_rank",
        "data_parallel_rank_local",
        "data_parallel_size",
        "enable_kv_cache_events",
        "engine_id",
        "extra_config",
        "num_cpu_blocks",
        "num_cpu_chunks",
    }
)

#: Attributes of the specification itself that say how chunks are laid out. Not all versions have each.
_SPEC_FACTS = (
    "block_size_factor",
    "blocks_per_chunk",
    "gpu_block_size",
    "hash_block_size",
    "replicated_layout",
    "storage_format",
    "tokens_per_block",
    "tokens_per_hash",
)

#: The same of versions whose specification has the whole configuration of vLLM.
_PARALLEL_FACTS = (
    "rank",
    "world_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
)

_ABSENT = object()


def namespace(spec: Any, chunk_bytes: int, tag: str | None) -> Namespace:
    """The namespace of an engine's chunks. Data-parallel replicas share it: they compute the same chunks from the same tokens.

    A chunk has the parts of all workers of its engine, so that the sizes of tensor and pipeline parallelism count. The
    layout's text ends with a digest of the whole specification. Raises ``ValueError`` when the specification lacks a fact.
    """
    if getattr(spec, "config", None) is not None:
        model, dtype = _needed(spec, "config.model.name"), _needed(spec, "config.model.dtype")
        tp_size, pp_size = _size(spec, "config.parallel.tp_size"), _size(spec, "config.parallel.pp_size")
        for name in ("config.groups", "config.cache.tokens_per_hash", "config.cache.blocks_per_chunk"):
            _needed(spec, name)
        facts: dict[str, Any] = {"config": spec.config}
    else:
        model, dtype = _needed(spec, "vllm_config.model_config.model"), _cache_dtype(spec)
        parallel = "vllm_config.parallel_config"
        tp_size = _size(spec, f"{parallel}.tensor_parallel_size")
        pp_size = _size(spec, f"{parallel}.pipeline_parallel_size")
        for name in ("hash_block_size", "gpu_block_size"):
            _needed(spec, name)
        facts = {name: getattr(spec.vllm_config.parallel_config, name, None) for name in _PARALLEL_FACTS}
        facts["groups"] = _needed(spec, "kv_cache_config.kv_cache_groups")
    if not model and tag is None:
        raise ValueError(
            "the server has no model name, so that its chunks could be taken for those of another model: "
            'set "tag" in the tier\'s configuration'
        )
    facts["spec"] = {name: getattr(spec, name, None) for name in _SPEC_FACTS}
    return Namespace(
        model=str(model) or None,
        dtype=str(dtype).removeprefix("torch."),
        layout=f"vllm bytes={chunk_bytes} {_digest(facts)}",
        tag=tag,
        tp_size=tp_size,
        pp_size=pp_size,
        computed=True,
    )


def _digest(facts: Any) -> str:
    text = json.dumps(canonical(facts), sort_keys=True, separators=(",", ":"))
    unnamed = re.search(r"<[^<>]* at 0x[0-9a-f]+>", text)
    if unnamed is not None:
        # Its address is another one in every process: no chunks are better than wrong ones.
        logger.warning(
            "the offloading specification has %s, which has no text: no other engine shares chunks", unnamed[0]
        )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def canonical(value: Any) -> Any:
    """A value as JSON has it: the same in every process for equal values with a text, and without the fields that do not count."""
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum):
        return value
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name, None) for field in fields(value)}
        return {"": type(value).__name__, **_without_ignored(named)}
    if isinstance(value, Mapping):
        return _without_ignored({str(name): part for name, part in value.items()})
    if isinstance(value, (list, tuple)):
        return [canonical(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return str(value)


def _without_ignored(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: canonical(part) for name, part in parts.items() if name not in IGNORED_FIELDS}


def _cache_dtype(spec: Any) -> Any:
    dtype = _needed(spec, "vllm_config.cache_config.cache_dtype")
    return _needed(spec, "vllm_config.model_config.dtype") if dtype == "auto" else dtype


def _size(spec: Any, path: str) -> int:
    size = _needed(spec, path)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"the offloading specification has {path} = {size!r}; it must be an integer, 1 or more")
    return size


def _needed(spec: Any, path: str) -> Any:
    value = spec
    for name in path.split("."):
        value = getattr(value, name, _ABSENT)
        if value is _ABSENT or value is None:
            raise ValueError(
                f"the offloading specification {type(spec).__name__} has no {path}, so that its chunks could be taken for "
                "those of another engine: use the TieringOffloadingSpec of vLLM 0.25 or newer"
            )
    return value
