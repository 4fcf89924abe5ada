"""vLLM's offloading where the CPU is the device.

vLLM refuses its offloading specifications on the CPU, because its copies want streams of a GPU. Specification, scheduler, manager, pool and
the planning of copies are vLLM's own here; the copy is a copy of memory. ``spec_module_path`` names this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import time
from collections import deque
from typing import Any

from vllm.v1.kv_offload.cpu import gpu_worker
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class _Stream:
    """A stream whose work is done when it is submitted."""

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass


class _Event:
    """The time at which it was recorded."""

    def __init__(self, **options: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: _Event) -> float:
        return (later.at - self.at) * 1000


class _Made(list[Any]):
    """A pool of objects that makes one when it is asked, and keeps none."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def __bool__(self) -> bool:
        return True

    def pop(self, *at: Any) -> Any:
        return self._kind()

    def append(self, used: Any) -> None:
        pass


class _Platform:
    """The device, as the worker asks for it."""

    device_name = device_type = "cpu"
    Stream, Event = _Stream, _Event

    def is_cuda_alike(self) -> bool:
        return False

    is_xpu = is_rocm = is_cuda = is_cuda_alike

    def current_stream(self) -> Any:
        return _Stream()

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext()


def _copy(sources: Any, targets: Any, sizes: Any, *more: Any, **options: Any) -> None:
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        ctypes.memmove(target, source, size)


_constructor = inspect.signature(gpu_worker.SingleDirectionOffloadingHandler.__init__)


class _Handler(gpu_worker.SingleDirectionOffloadingHandler):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        given = _constructor.bind(self, *arguments, **options)
        given.apply_defaults()
        own = given.arguments
        assert not own.get("canonical_layout"), "the canonical layout wants a GPU"
        factor = own.get("blocks_per_chunk") or own.get("block_size_factor") or 1
        self.gpu_to_cpu = own["gpu_to_cpu"]
        tensors = own["gpu_tensors"], own["cpu_tensors"]
        self.src_tensors, self.dst_tensors = tensors if self.gpu_to_cpu else tensors[::-1]
        groups = next(
            value for name, value in own.items() if name in ("layer_refs_per_group", "kv_cache_groups_data_refs")
        )
        self.layer_refs_per_group = self.kv_cache_groups_data_refs = groups
        factors = (1, factor) if self.gpu_to_cpu else (factor, 1)
        self.src_blocks_per_chunk, self.dst_blocks_per_chunk = factors
        self.src_block_size_factor, self.dst_block_size_factor = factors
        self._swap_blocks_batch = self._swap_blocks = _copy
        self._canonical_copy_plans = None
        self._mmap_region = own.get("mmap_region")
        if hasattr(self, "_fill_direct_ops"):
            self._fill_group_ops = self._fill_direct_ops
        self.transfer_type = ("GPU", "CPU") if self.gpu_to_cpu else ("CPU", "GPU")
        self._transfer_events: dict[int, Any] = {}
        self._transfers: deque[Any] = deque()
        self._stream_pool, self._event_pool, self._buffer_pool = _Made(_Stream), _Made(_Event), []


gpu_worker.current_platform = _Platform()
gpu_worker.SingleDirectionOffloadingHandler = _Handler
gpu_worker.PIN_MEMORY = False


class CpuTiering(TieringOffloadingSpec):
    """vLLM's tiers, with the CPU as the device."""

    def _uses_shared_region(self) -> bool:
        return True

    def get_worker(self, kv_caches: Any) -> Any:
        if not self._worker:
            self._worker = self.create_worker(kv_caches)
        return self._worker
