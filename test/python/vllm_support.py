"""What the tests of the vLLM tier share: both generations of the framework's names, specifications, keys and contents."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "test", "python")
for _path in (os.path.join(ROOT, "src", "python"), os.path.join(HERE, "doubles")):
    if _path not in sys.path:
        sys.path.insert(0, _path)

# Misses and failures are what many of the tests are about.
logging.getLogger("vllm.meshcache").setLevel(logging.CRITICAL)
os.environ.setdefault("PYTHONHASHSEED", "0")

NEWER, OLDER = "newer", "older"
GENERATIONS = (NEWER, OLDER)


class Generation:
    """One generation of the framework: its modules, and the tier as it was imported beside them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base = importlib.import_module("vllm.v1.kv_offload.base")
        self.tiering = importlib.import_module("vllm.v1.kv_offload.tiering.base")
        self.tier: Any = importlib.import_module("meshcache.vllm").MeshCacheTier
        result = getattr(self.base, "LookupResult", None)
        self.hit, self.miss, self.retry = (
            (True, False, None) if result is None else (result.HIT, result.MISS, result.RETRY)
        )

    def job(self, job_id: int, keys: Any, slots: Any, is_load: bool, context: Any) -> Any:
        """What is submitted."""
        if self.name == NEWER:
            return self.tiering.TransferJob(job_id, keys, slots, is_load, context)
        return self.tiering.JobMetadata(job_id, keys, slots, is_load, context)

    def make_tier(self, params: dict[str, Any], view: memoryview, spec: Any) -> Any:
        """A tier as the framework's factory makes it."""
        config = {"type": "MeshCacheTier", "module_path": "meshcache.vllm", **params}
        if self.name == NEWER:
            factory = importlib.import_module("vllm.v1.kv_offload.tiering.factory").SecondaryTierFactory
            with importlib.import_module("vllm.config").set_current_vllm_config(vllm_config(spec)):
                return factory.create_secondary_tier(config, view, spec)
        return self.tier(offloading_spec=spec, primary_kv_view=view, tier_type="MeshCacheTier", **params)


def sharing_globals(names: Generation) -> dict[str, Any]:
    """The names that the module has which makes the tier's client."""
    found: dict[str, Any] = names.tier.bind.__globals__["Sharing"].__init__.__globals__
    return found


@functools.lru_cache(maxsize=None)
def generation(name: str) -> Generation:
    """A generation. The older one is imported beside the newer one, which stays where it is."""
    if name == NEWER:
        return Generation(name)
    generation(NEWER)
    package = importlib.import_module("meshcache")
    taken = [module for module in sys.modules if f"{module}.".startswith(("vllm.", "meshcache.vllm."))]
    saved = {module: sys.modules.pop(module) for module in taken}
    sys.path.insert(0, os.path.join(HERE, "older_doubles"))
    try:
        return Generation(name)
    finally:
        sys.path.pop(0)
        for module in [module for module in sys.modules if f"{module}.".startswith(("vllm.", "meshcache.vllm."))]:
            del sys.modules[module]
        sys.modules.update(saved)
        setattr(package, "vllm", saved["meshcache.vllm"])


def model_facts(**changes: Any) -> dict[str, Any]:
    """The parts of an engine's configuration that say what is computed. Changes name a part and its field, as in ``cache_dtype``."""
    usual: dict[str, dict[str, Any]] = {
        "model": {
            "model": "model",
            "dtype": "torch.bfloat16",
            "override_attention_dtype": None,
            "hf_config": SimpleNamespace(),
            "hf_text_config": SimpleNamespace(),
            "hf_config_path": None,
            "hf_overrides": {},
            "revision": None,
            "code_revision": None,
            "quantization": None,
            "quantization_config": None,
            "model_class_overrides": {},
            "max_model_len": 4096,
            "original_max_model_len": 4096,
            "multimodal_config": None,
            "has_inner_state": False,
            "model_weights": "",
            "override_generation_config": {},
            "try_get_generation_config": dict,
        },
        "load": {"load_format": "auto", "model_loader_extra_config": {}, "download_dir": None, "ignore_patterns": []},
        "cache": {
            "cache_dtype": "auto",
            "block_size": 16,
            "calculate_kv_scales": False,
            "kv_cache_dtype_skip_layers": [],
            "prefix_caching_hash_algo": "sha256",
        },
        "attention": {"backend": None, "backend_per_kind": {}, "indexer_kv_dtype": "auto"},
    }
    parts = {
        f"{part}_config": SimpleNamespace(**{name: changes.pop(f"{part}__{name}", fields[name]) for name in fields})
        for part, fields in usual.items()
    }
    assert not changes, f"no such facts: {changes}"
    return {**parts, "speculative_config": None, "lora_config": None, "additional_config": {}}


def vllm_config(spec: Any, **changes: Any) -> Any:
    """The configuration of the engine that has this specification."""
    parallel = SimpleNamespace(cp_kv_cache_interleave_size=1)
    transfer = SimpleNamespace(kv_connector_extra_config=spec.extra_config)
    return SimpleNamespace(**model_facts(**changes), parallel_config=parallel, kv_transfer_config=transfer)


def newer_spec(**changes: Any) -> Any:
    """A specification as versions with ``OffloadingConfig`` have it. Changes name any of its facts."""
    base = generation(NEWER).base
    config = importlib.import_module("vllm.v1.kv_offload.config")
    facts: dict[str, Any] = {
        "name": "model",
        "dtype": "bfloat16",
        "tokens_per_block": 16,
        "layer_names": ("layer.0", "layer.1"),
        "tokens_per_hash": 16,
        "blocks_per_chunk": 1,
        "rank": 0,
        "world_size": 1,
        "tp_size": 1,
        "pp_size": 1,
        "pcp_size": 1,
        "dcp_size": 1,
        "data_parallel_index": 0,
        "is_parallelism_agnostic": False,
        "worker_kv_bytes_per_block": 4096,
        "enable_kv_cache_events": False,
        "extra_config": {},
        "engine_id": "engine",
        "replicated_layout": False,
        "canonical_layout": False,
        "kv_cache_layout": "LBHNC",
        **changes,
    }

    def made(kind: Callable[..., Any], **parts: Any) -> Any:
        names = kind.__dataclass_fields__  # type: ignore[attr-defined]
        return kind(**{**{name: facts[name] for name in names if name in facts}, **parts})

    return base.OffloadingSpec(
        made(
            config.OffloadingConfig,
            groups=facts.get("groups", (made(config.OffloadingGroupConfig),)),
            model=made(config.OffloadingModelConfig),
            cache=made(config.OffloadingCacheConfig),
            parallel=made(config.OffloadingParallelConfig),
        )
    )


def older_spec(**changes: Any) -> Any:
    """A specification as versions before ``OffloadingConfig`` have it."""
    facts = {
        "model": "model",
        "dtype": "torch.bfloat16",
        "cache_dtype": "auto",
        "block_size": 16,
        "rank": 0,
        "world_size": 1,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "prefill_context_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "cp_kv_cache_interleave_size": 1,
        "layer_names": ["layer.0", "layer.1"],
        **changes,
    }

    def part(*names: str) -> SimpleNamespace:
        return SimpleNamespace(**{name: facts[name] for name in names})

    group = part("layer_names")
    group.kv_cache_spec = part("block_size")
    model = model_facts(
        model__model=facts["model"],
        model__dtype=facts["dtype"],
        cache__cache_dtype=facts["cache_dtype"],
        cache__block_size=facts["block_size"],
    )
    return generation(OLDER).base.OffloadingSpec(
        SimpleNamespace(
            **model,
            parallel_config=part(
                "rank",
                "world_size",
                "tensor_parallel_size",
                "pipeline_parallel_size",
                "prefill_context_parallel_size",
                "decode_context_parallel_size",
                "cp_kv_cache_interleave_size",
            ),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config={}),
        ),
        SimpleNamespace(kv_cache_groups=[group]),
    )


def spec(name: str) -> Any:
    """The usual specification of a generation."""
    return newer_spec() if name == NEWER else older_spec()


def chunk_keys(name: str, count: int, group: int = 0) -> list[bytes]:
    """Keys as vLLM makes them: chained hashes, each followed by the number of its cache group in 4 bytes."""
    keys, last = [], name.encode()
    for _ in range(count):
        last = hashlib.sha256(last).digest()
        keys.append(last + group.to_bytes(4, "big"))
    return keys


def content(key: bytes, length: int) -> bytes:
    """The bytes of a chunk, which follow from its key."""
    return hashlib.shake_128(key).digest(length)
