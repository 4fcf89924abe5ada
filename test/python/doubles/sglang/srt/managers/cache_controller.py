"""A double of the framework's module: what the backend follows of the controller."""

from __future__ import annotations

from typing import Any


class HiCacheController:
    def __init__(self, storage_backend: Any) -> None:
        self.storage_backend = storage_backend

    def reset(self) -> None:
        """All work under way has ended."""
