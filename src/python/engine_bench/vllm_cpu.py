"""vLLM's offloading with the CPU as the device, for measurements and tests on machines without a GPU.

vLLM rejects its offloading specifications on the CPU, although only streams and the copy itself depend on the device.
Here, the device's memory is host memory, streams are empty because everything is done immediately, and a copy is a
memmove. Scheduler, connector, specification, manager, tiers, shared pool and planning of copies are vLLM's own.

    "spec_name": "CpuTieringSpec", "spec_module_path": "engine_bench.vllm_cpu"       instead of TieringOffloadingSpec
    "spec_name": "CpuPoolSpec", "spec_module_path": "engine_bench.vllm_cpu"          instead of CPUOffloadingSpec
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import time
from typing import Any

import torch
from vllm.v1.kv_offload.cpu import gpu_worker
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.tiering import spec as tiering_spec


class DeviceTensor(torch.Tensor):
    """Host memory that claims to be on a GPU."""

    is_cuda = True


class FinishedEvent:
    """An event of a stream in which everything is done immediately."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: object = None) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Does nothing, as everything is done."""

    def elapsed_time(self, end: FinishedEvent) -> float:
        return (end.at - self.at) * 1000


class EmptyStream:
    def wait_stream(self, stream: object) -> None:
        """Does nothing, as the other stream is empty."""

    def wait_event(self, event: object) -> None:
        """Does nothing, as the event has happened."""


class HostPlatform:
    """The methods of a platform that vLLM's copying code uses."""

    device_name = "cpu"
    Stream = EmptyStream

    def is_xpu(self) -> bool:
        return False

    def is_rocm(self) -> bool:
        return False

    def is_cuda_alike(self) -> bool:
        return False

    def current_stream(self) -> EmptyStream:
        return EmptyStream()

    def stream(self, stream: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class OnlyDevice:
    """Stands in for `torch.accelerator`, which releases before 0.27 ask for the index of the device."""

    @staticmethod
    def current_device_index() -> int:
        return 0


class TorchWithoutAccelerator:
    """The module torch with events and a device that need no accelerator."""

    Event = FinishedEvent
    accelerator = OnlyDevice

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def copy(sources: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor, **_: object) -> None:
    """Copies memory ranges given by addresses and sizes."""
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        ctypes.memmove(target, source, size)


gpu_worker.current_platform = HostPlatform()
gpu_worker.torch = TorchWithoutAccelerator()
tiering_spec.torch = TorchWithoutAccelerator()
gpu_worker.PIN_MEMORY = False
gpu_worker._select_swap_blocks_fn = lambda *_, **__: copy


class HostMemoryAsDevice:
    """Treats the engine's caches in host memory as device memory."""

    _worker: Any

    def _uses_shared_region(self) -> bool:
        return True

    def get_worker(self, kv_caches: Any) -> Any:
        if self._worker is None:
            tensors = [
                dataclasses.replace(cache, tensor=cache.tensor.as_subclass(DeviceTensor)) for cache in kv_caches.tensors
            ]
            self._worker = self.create_worker(dataclasses.replace(kv_caches, tensors=tensors))  # type: ignore[attr-defined]
        return self._worker


class CpuTieringSpec(HostMemoryAsDevice, tiering_spec.TieringOffloadingSpec):
    """A pool in host memory with tiers below it."""


class CpuPoolSpec(HostMemoryAsDevice, CPUOffloadingSpec):
    """A pool in host memory."""
