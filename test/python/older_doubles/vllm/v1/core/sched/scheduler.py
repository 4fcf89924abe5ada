"""A double of the framework's module: what of the scheduler the tier follows."""

from __future__ import annotations

from typing import Any


class Scheduler:
    """Its own cache is a flag. A reset fails while requests run."""

    def __init__(self, vllm_config: Any, connector: Any) -> None:
        self.vllm_config = vllm_config
        self.connector = connector
        self.running: list[Any] = []
        self.resets: list[str] = []

    def get_kv_connector(self) -> Any:
        return self.connector

    def add_request(self, request: Any) -> None:
        self.running.append(request)

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        self.resets.append("cache")
        is_reset = reset_running_requests or not self.running
        return (not reset_connector or self.reset_connector_cache()) and is_reset

    def reset_connector_cache(self) -> bool:
        self.resets.append("connector")
        return True
