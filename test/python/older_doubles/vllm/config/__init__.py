"""A double of the framework's module: the configuration of the engine that is being made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_current: list[Any] = []


@contextmanager
def set_current_vllm_config(vllm_config: Any) -> Iterator[None]:
    _current.append(vllm_config)
    try:
        yield
    finally:
        _current.pop()


def get_current_vllm_config_or_none() -> Any:
    return _current[-1] if _current else None
