"""SGLang engines without a model: its own radix tree, cache controller, host pools and storage factory, on the CPU.

Each engine is one tensor-parallel rank. Its pages have bytes that follow from the tokens.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import uuid
from array import array
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sgl_kernel  # noqa: F401  # puts the copies on the CPU in their place
import torch

import sglang.srt.managers.cache_controller
import sglang.srt.server_args as server_args

try:
    import sglang.srt.mem_cache.hiradix_cache as hiradix_cache
except ImportError:
    hiradix_cache = None
from harness.nodes import wait_for
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey

#: SGLang before 0.5.21 has HiRadixCache; newer ones have one tree for all models.
HAS_HIRADIX = hiradix_cache is not None
PAGE = 16
DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


#: What SGLang has been told of the ranks of the last engine.
_kept: list[Any] = []


def initialize() -> None:
    """One process is one rank of a group of one."""
    if not torch.distributed.is_initialized():
        store = os.path.join(tempfile.mkdtemp(prefix="meshcache-"), "store")
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)


def new_tag() -> str:
    return uuid.uuid4().hex


class Rows:
    """The rows of a request in the pools of the device: it has none yet."""

    cache_protected_len = 0

    def __getattr__(self, name: str) -> None:
        return None


class Engine:
    """One engine. ``given`` are server arguments; the rest says what kind of model it would serve."""

    def __init__(
        self,
        socket: str,
        tag: str,
        *,
        kind: str = "mha",
        dtype: str = "bfloat16",
        layers: int = 4,
        heads: int = 4,
        head_dim: int = 32,
        page_size: int = PAGE,
        pages: int = 64,
        layout: str = "page_first",
        io: str = "kernel",
        model: str = "lab/model",
        rank: int = 0,
        ranks: int = 1,
        latent: int = 128,
        extra: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        initialize()
        self.kind, self.layers, self.page, self.rank, self.ranks = kind, layers, page_size, rank, ranks
        self.size = pages * page_size
        own = {"backend_name": "meshcache", "module_path": "meshcache.sglang", "class_name": "MeshCacheStorage"}
        self.extra = {**own, "interface_v1": 1, "allocator": "shm", "client_socket": socket, "tag": tag}
        self.extra["prefetch_threshold"] = 1
        self.extra.update(extra or {})
        self.extra = {name: value for name, value in self.extra.items() if value is not None}
        self._arguments(layout, io, model, given)
        common: dict[str, Any] = dict(
            size=self.size,
            page_size=page_size,
            dtype=DTYPES[dtype],
            layer_num=layers,
            device="cpu",
            enable_memory_saver=False,
        )
        if kind == "mla":
            self.device_pool: Any = MLATokenToKVPool(kv_lora_rank=latent, qk_rope_head_dim=64, **common)
        elif kind == "swa":
            self.device_pool = self._windows(common, heads, head_dim)
        elif kind == "mamba":
            self.device_pool = self._hybrid(common, heads, head_dim)
        else:
            more = {"enable_kv_cache_copy": False}
            names = inspect.signature(MHATokenToKVPool.__init__).parameters
            more = {name: value for name, value in more.items() if name in names}
            self.device_pool = MHATokenToKVPool(head_num=heads, head_dim=head_dim, **common, **more)
        self._tree()

    def _arguments(self, layout: str, io: str, model: str, given: dict[str, Any]) -> None:
        wanted = dict(
            model_path="dummy",
            served_model_name=model,
            page_size=self.page,
            tp_size=self.ranks,
            device="cpu",
            enable_hierarchical_cache=True,
            hicache_ratio=2.0,
            hicache_mem_layout=layout,
            hicache_io_backend=io,
            hicache_write_policy="write_through",
            hicache_storage_backend="dynamic",
            hicache_storage_backend_extra_config=json.dumps(self.extra),
            hicache_storage_prefetch_policy="wait_complete",
        )
        self.arguments = server_args.ServerArgs(**{**wanted, **given})
        self.arguments._mamba_cache_chunk_size = max(64, self.page)
        self.arguments.disable_hicache_numa_detect = True
        while _kept:
            _kept.pop().__exit__(None, None, None)
        server_args.set_global_server_args_for_scheduler(self.arguments)
        try:
            from sglang.srt.runtime_context import get_parallel

            self._parallel = get_parallel().override(tp_rank=self.rank, tp_size=self.ranks, pp_rank=0, pp_size=1)
            # SGLang reads these for as long as there is the engine: nothing restores what was before.
            self._parallel.__enter__()
            _kept.append(self._parallel)
        except ImportError:
            controller = sglang.srt.managers.cache_controller
            for name, value in (
                ("get_tensor_model_parallel_rank", self.rank),
                ("get_tensor_model_parallel_world_size", self.ranks),
            ):
                setattr(controller, name, lambda value=value: value)
            controller.is_dp_attention_enabled = lambda: False

    def _windows(self, common: dict[str, Any], heads: int, head_dim: int) -> Any:
        from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

        full = list(range(1, self.layers, 2))
        windows = [layer for layer in range(self.layers) if layer not in full]
        return SWAKVPool(
            size=self.size,
            size_swa=self.size,
            page_size=self.page,
            dtype=common["dtype"],
            head_num=heads,
            head_dim=head_dim,
            swa_attention_layer_ids=windows,
            full_attention_layer_ids=full,
            device="cpu",
        )

    def _hybrid(self, common: dict[str, Any], heads: int, head_dim: int) -> Any:
        from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
        from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, HybridReqToTokenPool

        full = list(range(1, self.layers, 2))
        linear = [layer for layer in range(self.layers) if layer not in full]
        os.environ["SGLANG_MAMBA_SSM_DTYPE"] = "bfloat16"
        shape = Mamba2StateShape.create(
            tp_world_size=self.ranks,
            intermediate_size=256,
            n_groups=1,
            num_heads=4,
            head_dim=64,
            state_size=16,
            conv_kernel=4,
        )
        self.requests = HybridReqToTokenPool(
            size=16,
            mamba_size=24,
            mamba_spec_state_size=16,
            max_context_len=self.size,
            device="cpu",
            enable_memory_saver=False,
            cache_params=Mamba2CacheParams(shape=shape, layers=linear),
            mamba_layer_ids=linear,
            enable_mamba_extra_buffer=True,
            speculative_num_draft_tokens=3,
        )
        return HybridLinearKVPool(
            size=self.size,
            dtype=common["dtype"],
            page_size=self.page,
            head_num=heads,
            head_dim=head_dim,
            full_attention_layer_ids=full,
            device="cpu",
            enable_memory_saver=False,
            mamba_pool=self.requests.mamba_pool,
        )

    def _allocator(self) -> Any:
        common: dict[str, Any] = dict(
            size=self.size, dtype=self.device_pool.dtype, device="cpu", kvcache=self.device_pool, need_sort=False
        )
        if self.kind == "swa":
            from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator

            return SWATokenToKVPoolAllocator(size_swa=self.size, page_size=self.page, **common)
        if self.page == 1:
            return TokenToKVPoolAllocator(**common)
        try:
            from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
        except ImportError:
            from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
        return PagedTokenToKVPoolAllocator(page_size=self.page, **common)

    def _tree(self) -> None:
        if self.kind != "mamba":
            self.requests = ReqToTokenPool(size=16, max_context_len=self.size, device="cpu", enable_memory_saver=False)
        self.allocator = self._allocator()
        group = torch.distributed.group.WORLD
        common: dict[str, Any] = dict(
            req_to_token_pool=self.requests,
            token_to_kv_pool_allocator=self.allocator,
            page_size=self.page,
            disable=False,
            tp_cache_group=group,
        )
        if HAS_HIRADIX and self.kind in ("mha", "mla"):
            self.tree = hiradix_cache.HiRadixCache(CacheInitParams(**common), self.arguments)
        else:
            from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

            parameters = CacheInitParams(
                **common,
                tree_components=self._components(),
                sliding_window_size=4 * self.page if self.kind == "swa" else None,
                enable_mamba_extra_buffer=self.kind == "mamba",
            )
            self.tree = UnifiedRadixCache(params=parameters)
            self.tree.init_hicache(self.arguments, parameters)
        self.tree.load_back_threshold = 0
        self.controller = self.tree.cache_controller
        self.controller.prefetch_capacity_limit = 10**9
        self.storage = self.controller.storage_backend

    def _components(self) -> tuple[Any, ...]:
        try:
            from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
        except ImportError:
            from sglang.srt.mem_cache.unified_cache_components.tree_component import ComponentType
        more = {"swa": [ComponentType.SWA], "mamba": [ComponentType.MAMBA]} if self.kind != "mha" else {}
        return (ComponentType.FULL, *more.get(self.kind, []))

    # Pages by the storage's own interface

    @property
    def host_pool(self) -> Any:
        return self.storage.mem_pool_host

    @property
    def layout(self) -> str:
        """The identity of this engine's pages."""
        return str(self.storage._client._settings.namespace.layout)

    def fill(self, seed: int) -> None:
        """The host pool gets bytes that follow from a seed."""
        buffers = self.host_pool.kv_buffer
        for number, buffer in enumerate(buffers if isinstance(buffers, (list, tuple)) else [buffers]):
            generator = torch.Generator().manual_seed(seed + number)
            flat = buffer.view(torch.uint8).view(-1)
            flat.copy_(torch.randint(0, 256, flat.shape, dtype=torch.uint8, generator=generator))

    def indices(self, first: int, count: int) -> Any:
        size = self.host_pool.page_size
        return torch.arange(first * size, (first + count) * size, dtype=torch.int64)

    def store(self, keys: list[str]) -> int:
        return sum(self.storage.batch_set_v1(keys, self.indices(0, len(keys))))

    def found(self, keys: list[str]) -> int:
        """How many of these can be had, by all ways to ask."""
        count = self.storage.batch_exists(keys)
        read = sum(self.storage.batch_get_v1(keys, self.indices(0, len(keys))))
        return max(int(count), int(read))

    # Prompts by the tree and its controller

    def tokens(self, seed: int, pages: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.randint(1, 100_000, (pages * self.page,), generator=generator).tolist()
        return numbers if HAS_HIRADIX else array("q", numbers)

    def key(self, tokens: Any, namespace: str | None = None) -> Any:
        return RadixKey(tokens, namespace)

    def buffers(self) -> list[Any]:
        pool = getattr(self.device_pool, "full_kv_pool", self.device_pool)
        if self.kind == "mla":
            return list(pool.kv_buffer)
        return list(pool.k_buffer) + list(pool.v_buffer)

    def pattern(self, seed: int, count: int, buffer: Any, number: int) -> Any:
        width = buffer[0].numel() * buffer.element_size()
        generator = torch.Generator().manual_seed(seed * 1009 + number)
        return torch.randint(0, 256, (count, width), dtype=torch.uint8, generator=generator)

    def match(self, tokens: Any, namespace: str | None = None) -> Any:
        found = self.tree.match_prefix(MatchPrefixParams(key=self.key(tokens, namespace)))
        if hasattr(found, "device_indices"):
            return found
        indices = self.tree.path_device_indices(found.last_device_node)[: found.device_prefix_len]
        return SimpleNamespace(**found._asdict(), device_indices=indices)

    def compute(self, seed: int, pages: int, salt: int = 0, namespace: str | None = None) -> None:
        """A prompt that is computed here: its pages lie on the device, enter the tree, and are written through."""
        tokens = self.tokens(seed, pages)
        found = len(self.match(tokens, namespace).device_indices)
        assert found == 0, f"{found} tokens of the prompt are there already"
        slots = self.allocator.alloc(len(tokens))
        assert slots is not None, "the device has no room"
        for number, buffer in enumerate(self.buffers()):
            flat = buffer.view(torch.uint8).reshape(buffer.shape[0], -1)
            flat[slots.long()] = self.pattern(seed + salt, len(tokens), buffer, number)
        more = {"prev_prefix_len": 0} if "prev_prefix_len" in inspect.signature(InsertParams).parameters else {}
        self.tree.insert(InsertParams(key=self.key(tokens, namespace), value=slots, **more))
        wait_for("pages are backed up", self.is_idle)

    def is_idle(self) -> bool:
        """Everything that is under way has ended."""
        if hasattr(self.tree, "writing_check"):
            self.tree.writing_check()
        self.tree.check_hicache_events()
        waiting = (getattr(self.tree, name, ()) for name in ("ongoing_write_through", "ongoing_backup"))
        return not any(waiting)

    def restore(self, seed: int, pages: int, namespace: str | None = None, salt: int = 0) -> int:
        """A prompt whose pages are fetched from the storage. Returns its tokens; every byte of them is compared."""
        tokens, request = self.tokens(seed, pages), uuid.uuid4().hex
        matched = self.match(tokens, namespace)
        node = getattr(matched, "last_host_node", None)
        if node is None:
            node = matched.last_device_node
        handle = self._handle(request)
        self.tree.prefetch_from_storage(handle, node, tokens, **self._prefetch_arguments(namespace))
        wait_for("pages are prefetched", lambda: self._progress(handle))
        return self.load(seed, pages, namespace, salt)

    def _progress(self, handle: Any) -> bool:
        self.tree.check_hicache_events()
        return bool(self.tree.check_prefetch_progress(handle))

    def _handle(self, request: str) -> Any:
        try:
            from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle
        except ImportError:
            return request
        return CacheRequestHandle(request, 0)

    def _prefetch_arguments(self, namespace: str | None) -> dict[str, Any]:
        names = inspect.signature(self.tree.prefetch_from_storage).parameters
        given: dict[str, Any] = {"last_hash": None, "prefix_keys": None, "extra_key": namespace}
        return {name: value for name, value in given.items() if name in names}

    def load(self, seed: int, pages: int, namespace: str | None = None, salt: int = 0) -> int:
        """Loads a prompt from the host pool to the device, compares it, and returns its tokens."""
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

        tokens = self.tokens(seed, pages)
        matched = self.match(tokens, namespace)
        hits = getattr(matched, "host_hit_length", 0)
        if hits:
            names = inspect.signature(InitLoadBackParams).parameters
            given: dict[str, Any] = {
                "best_match_node": getattr(matched, "best_match_node", None),
                "last_host_node": getattr(matched, "last_host_node", None),
                "host_hit_length": hits,
                "req": self._request(matched),
            }
            self.tree.init_load_back(
                InitLoadBackParams(**{name: value for name, value in given.items() if name in names})
            )
            self.tree.ready_to_load_host_cache()
            wait_for("pages are loaded", self._has_loaded)
            matched = self.match(tokens, namespace)
        slots = matched.device_indices
        for number, buffer in enumerate(self.buffers() if len(slots) else []):
            flat = buffer.view(torch.uint8).reshape(buffer.shape[0], -1)
            expected = self.pattern(seed + salt, len(tokens), buffer, number)[: len(slots)]
            assert torch.equal(flat[slots.long()], expected), f"prompt {seed}: wrong bytes in buffer {number}"
        return len(slots)

    def _has_loaded(self) -> bool:
        self.tree.check_hicache_events()
        return not self.tree.ongoing_load_back

    def _request(self, matched: Any) -> Any:
        """What the tree reads and writes of a request."""
        request = mock.Mock(last_node=matched.last_device_node, prefix_indices=matched.device_indices)
        request.prefix_len = len(matched.device_indices)
        request.mamba_pool_idx = None
        request.cache_protected_len = request.mamba_host_hit_length = request.swa_host_hit_length = 0
        request.kv = Rows()
        return request

    def flush(self) -> None:
        """What SGLang does for ``/flush_cache``."""
        self.tree.reset()
        self.allocator.clear()

    def attach_again(self) -> None:
        """Waits until the client has gone over to other weights: until then, everything is a miss."""
        wait_for("the client is attached", lambda: self.storage._client.is_connected)

    def close(self) -> None:
        self.controller.detach_storage_backend()


def hashes(name: str, count: int) -> list[str]:
    """Keys as SGLang makes them."""
    import hashlib

    return [hashlib.sha256(f"{name} {number}".encode()).hexdigest() for number in range(count)]
