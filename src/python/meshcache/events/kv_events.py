"""Page events in the form of the KV events of vLLM and SGLang: dictionaries with the fields of their messages."""

from __future__ import annotations

from typing import Any, Final

from .records import PageEvent, Tier

_MEDIUMS: Final[dict[Tier, str]] = {"memory": "CPU", "disk": "DISK"}


def kv_events(event: PageEvent) -> list[dict[str, Any]]:
    """The event as `BlockStored`, `BlockRemoved` and `AllBlocksCleared`; an empty list for `complete`.

    `block_hashes` are the keys. The cache does not know the tokens and parents of pages, so `token_ids` is empty,
    `parent_block_hash` and `lora_id` are None, and `block_size` is 0. A page that moves is stored again under its new
    medium. `BlockRemoved` has the medium None, as the page is on no medium of the node.
    """
    if event.kind == "reset":
        return [{"type": "AllBlocksCleared"}]
    groups: dict[Tier | None, list[str | bytes]] = {}
    for key, _, tier in event.changes:
        groups.setdefault(tier, []).append(key)
    return [_removed(keys) if tier is None else _stored(keys, _MEDIUMS[tier]) for tier, keys in groups.items()]


def kv_event_batch(
    event: PageEvent, data_parallel_rank: int | None = None
) -> tuple[float, list[dict[str, Any]], int | None]:
    """The event as a `KVEventBatch`: time in seconds since 1970 (0.0 unless `changed`), events, and rank."""
    return (event.at or 0.0, kv_events(event), data_parallel_rank)


def _stored(keys: list[str | bytes], medium: str) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": keys,
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 0,
        "lora_id": None,
        "medium": medium,
    }


def _removed(keys: list[str | bytes]) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": keys, "medium": None}
