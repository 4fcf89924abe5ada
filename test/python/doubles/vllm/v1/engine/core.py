"""A double of the framework's module: what of the engine's core the tier follows."""

from __future__ import annotations

from typing import Any


class EngineCore:
    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.calls: list[Any] = []

    def collective_rpc(
        self, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None
    ) -> list[Any]:
        self.calls.append(method)
        return ["done"]

    def add_lora(self, lora_request: Any) -> bool:
        return True

    def remove_lora(self, lora_id: int) -> bool:
        return True

    def set_weight_version(self, weight_version: str) -> None:
        self.weight_version = weight_version
