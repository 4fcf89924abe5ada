"""Configurations of vLLM, made by its own classes, and the tier that an engine of such a configuration has. No model is loaded."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

# Before the hub's package is imported: nothing is downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.mamba.mamba_utils import get_conv_state_layout
from vllm.v1 import kv_cache_interface as kv
from vllm.v1.attention.backends import utils
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from meshcache.vllm.plugin import register

MODEL = os.environ.get("MESHCACHE_ENGINE_MODEL", "")
LAYERS = 4
#: Before 0.27 the layout is of the process, and the specification does not have it.
HAS_LAYOUT = "kv_cache_layout" in inspect.getsource(__import__("vllm.config.cache", fromlist=["cache"]).CacheConfig)

register()


def model_folder(**changes: Any) -> str:
    """A folder with the model's configuration, changed, and its weights."""
    folder = tempfile.mkdtemp(prefix="meshcache-model-")
    for name in os.listdir(MODEL):
        target = os.path.join(folder, name)
        if name == "config.json":
            with open(os.path.join(MODEL, name)) as file:
                config = {**json.load(file), **changes}
            with open(target, "w") as file:
                json.dump(config, file)
        elif name.endswith(".safetensors"):
            # Its identity, not its content, is what these tests are about.
            with open(os.path.join(MODEL, name), "rb") as file, open(target, "wb") as copy:
                copy.write(file.read(1 << 16))
        else:
            shutil.copy(os.path.join(MODEL, name), target)
    return folder


def attention(heads: int = 2, dtype: Any = torch.float32, block_size: int = 32) -> Any:
    return kv.FullAttentionSpec(block_size=block_size, num_kv_heads=heads, head_size=64, dtype=dtype)


def latent(block_size: int = 32) -> Any:
    return kv.MLAAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=576, dtype=torch.float32)


def states(rows: int = 3, dtype: Any = torch.bfloat16, block_size: int = 32) -> Any:
    return kv.MambaSpec(
        block_size=block_size, shapes=((rows, 64), (8, 16)), dtypes=(dtype, torch.float32), page_size_padded=1 << 15
    )


def kv_cache_config(spec: Any, *, layers: int = LAYERS, tp_size: int = 1) -> Any:
    """What vLLM makes of a model with these layers."""
    names = [f"model.layers.{index}.self_attn.attn" for index in range(layers)]
    blocks, page = 8, spec.page_size_bytes
    fields = {field.name for field in dataclasses.fields(kv.KVCacheTensor)}
    if "shared_by" in fields and not HAS_LAYOUT:
        tensors = [kv.KVCacheTensor(size=blocks * page, shared_by=[name]) for name in names]
        return kv.KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=tensors, kv_cache_groups=[kv.KVCacheGroupSpec(names, spec)]
        )
    config = kv.KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[kv.KVCacheGroupSpec(names, spec)]
    )
    if hasattr(config, "kv_tp_replicas"):
        config.kv_tp_replicas = tp_size if isinstance(spec, kv.MLAAttentionSpec) else 1
    return config


@dataclasses.dataclass
class Case:
    """What is given to an engine. Everything that is not named is as usual."""

    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    tier: dict[str, Any] = dataclasses.field(default_factory=dict)
    spec: Any = None
    layers: int = LAYERS
    tp_size: int = 1
    layout: str = "LBHNC"
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Changes the configuration that vLLM has made.
    change: Callable[[Any], None] = lambda config: None


def vllm_config(case: Case, folder: str) -> Any:
    """The configuration of an engine on the CPU."""
    extra = {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 64 << 20,
        "block_size": 64,
        "secondary_tiers": [
            {"type": "MeshCacheTier", "client_socket": "/tmp/meshcache-nobody.sock", "timeout": 1, **case.tier}
        ],
        **case.extra,
    }
    arguments: dict[str, Any] = {"model": folder, "dtype": "float32", "max_model_len": 2048, "block_size": 32}
    arguments["kv_transfer_config"] = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    config = EngineArgs(**{**arguments, **case.arguments}).create_engine_config()
    parallel = config.parallel_config
    if case.tp_size > 1:
        # Of workers that do not exist here.
        parallel.tensor_parallel_size = parallel.world_size = case.tp_size
        parallel.distributed_executor_backend = "mp"
    if HAS_LAYOUT:
        config.cache_config.kv_cache_layout = case.layout
    case.change(config)
    return config


@contextmanager
def tier_of(case: Case, folder: str, *, seed: str | None = "0") -> Iterator[Any]:
    """The tier of an engine, as vLLM's own connector makes it."""
    with mock.patch.dict(os.environ, case.environment):
        os.environ.pop("PYTHONHASHSEED", None)
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed
        # Of a process, before 0.27.
        forget = getattr(getattr(utils, "get_kv_cache_layout", None), "cache_clear", None)
        if forget is not None:
            forget()
        get_conv_state_layout.cache_clear()
        config = vllm_config(case, folder)
        spec = case.spec or attention(max(1, 2 // case.tp_size))
        groups = kv_cache_config(spec, layers=case.layers, tp_size=case.tp_size)
        connector = OffloadingConnector(config, KVConnectorRole.SCHEDULER, groups)
        try:
            [tier] = connector.connector_scheduler.manager.secondary_tiers
            yield tier
        finally:
            connector.shutdown()


def namespace(case: Case, folder: str) -> Any:
    """The namespace that an engine has."""
    with tier_of(case, folder) as tier:
        return tier.namespace


def tier_types() -> list[str]:
    """The names of tiers that this process knows."""
    return list(SecondaryTierFactory._registry)
