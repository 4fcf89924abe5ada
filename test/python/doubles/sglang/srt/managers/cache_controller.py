"""A double of the framework's module: what the backend follows of the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HiCacheController:
    def __init__(self, storage_backend: Any = None, make: Callable[[], Any] | None = None) -> None:
        """``make`` makes the storage, as the framework's factory does it, at the start of an engine."""
        self.storage_backend = storage_backend
        if make is not None:
            self.attach_storage_backend(make)

    def attach_storage_backend(self, make: Callable[[], Any]) -> None:
        self.storage_backend = make()

    def detach_storage_backend(self) -> None:
        self.storage_backend.close()
        self.storage_backend = None

    def reset(self) -> None:
        """All work under way has ended."""
