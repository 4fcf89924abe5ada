"""Host memory as SGLang's device: streams in which everything is done immediately, and memory without registration."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
import torch

#: Amount of memory that SGLang leaves free, regardless of the host's size.
RESERVED_BYTES = 10 << 30


class FinishedEvent:
    def __init__(self, *_: object, **__: object) -> None:
        self.at = 0.0

    def record(self, stream: object = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: object = None) -> None:
        """Does nothing, as the event has happened."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Does nothing, as the event has happened."""

    def elapsed_time(self, end: FinishedEvent) -> float:
        return (end.at - self.at) * 1000


class EmptyStream:
    device = torch.device("cpu")

    def __init__(self, *_: object, **__: object) -> None:
        """Makes a stream that is always empty."""

    def wait_event(self, event: object) -> None:
        """Does nothing, as the event has happened."""

    def wait_stream(self, stream: object) -> None:
        """Does nothing, as the other stream is empty."""

    def record_event(self, event: FinishedEvent | None = None) -> FinishedEvent:
        event = event or FinishedEvent()
        event.record()
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Does nothing, as everything is done."""

    def __enter__(self) -> EmptyStream:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing, as `__enter__` changed nothing."""


class HostRuntime:
    """Stands in for CUDA's runtime in the registration of host memory."""

    def cudaHostRegister(self, *_: object) -> int:
        return 0

    def cudaHostUnregister(self, *_: object) -> int:
        return 0

    def cudaGetErrorString(self, *_: object) -> str:
        return ""


def install() -> None:
    # SGLang's attention on the CPU computes on uninitialized memory, and drops the result. If that happens to contain
    # denormal numbers, a prompt would take half a minute instead of half a second.
    torch.set_flush_denormal(True)
    stream = EmptyStream()
    replaced: dict[str, Any] = {
        "Event": FinishedEvent,
        "Stream": EmptyStream,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "stream": lambda *_: contextlib.nullcontext(),
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
    }
    for module in (torch.cpu, torch.cuda):
        for name, value in replaced.items():
            setattr(module, name, value)
    for name in ("Event", "Stream"):
        setattr(torch, name, replaced[name])
    torch.cuda.cudart = HostRuntime
    torch.Tensor.record_stream = lambda self, stream: None
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    for name in ("empty", "zeros"):
        setattr(torch, name, _unpinned(getattr(torch, name)))
    memory = psutil.virtual_memory
    # A small machine does not have that much free memory.
    psutil.virtual_memory = lambda: memory()._replace(available=memory().available + RESERVED_BYTES)


def _unpinned(make: Any) -> Any:
    def call(*arguments: Any, pin_memory: bool = False, **options: Any) -> Any:
        return make(*arguments, **options)

    return call
