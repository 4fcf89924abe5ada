"""A double of the framework's module: what keys of requests with an adapter have beside their tokens."""

from __future__ import annotations

from typing import Any


def _gen_lora_extra_hash_keys(request: Any) -> list[Any]:
    if not request.lora_request:
        return []
    return [request.lora_request.lora_name]
