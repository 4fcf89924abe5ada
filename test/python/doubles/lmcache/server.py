"""Stands for `lmcache server`, which needs a GPU: takes its options, makes L1 and the L2 adapter, stores and loads chunks as its
controllers do, and ends."""

from __future__ import annotations

import argparse
import json
import select
from typing import Any

from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import create_l2_adapter
from lmcache.v1.memory_management import L1Pool

CHUNKS = 8
CHUNK_BYTES = 65_536


def wait(descriptor: int) -> None:
    """Until an adapter says that something has completed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(60_000)


def main(arguments: list[str]) -> dict[str, Any]:
    """Returns what the connector has counted."""
    parser = argparse.ArgumentParser(prog="lmcache server")
    parser.add_argument("--l1-size-gb", type=float, required=True)
    parser.add_argument("--eviction-policy", choices=["LRU", "IsolatedLRU", "noop"], required=True)
    parser.add_argument("--chunk-size", type=int, default=256)
    parser.add_argument("--shm-name", default="")
    parser.add_argument("--l1-use-lazy", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--l2-adapter", type=json.loads, required=True)
    options = parser.parse_args(arguments)
    # A lazy pool grows, and is not shared.
    pool = L1Pool(2 * CHUNKS * CHUNK_BYTES, "" if options.l1_use_lazy else options.shm_name)
    try:
        adapter = create_l2_adapter(options.l2_adapter)
        keys = [ObjectKey(bytes([number]) * 32, "Qwen/Qwen3-32B", kv_rank=1) for number in range(CHUNKS)]
        chunks = [pool.allocate(number * CHUNK_BYTES, CHUNK_BYTES) for number in range(2 * CHUNKS)]
        for number, chunk in enumerate(chunks[:CHUNKS]):
            chunk.write(bytes([number + 1]) * CHUNK_BYTES)
        task = adapter.submit_store_task(keys, chunks[:CHUNKS])
        wait(adapter.get_store_event_fd())
        assert adapter.pop_completed_store_tasks() == {task: True}
        task = adapter.submit_lookup_and_lock_task(keys)
        wait(adapter.get_lookup_and_lock_event_fd())
        found = adapter.query_lookup_and_lock_result(task)
        assert found is not None and found.popcount() == CHUNKS
        task = adapter.submit_load_task(keys, chunks[CHUNKS:])
        wait(adapter.get_load_event_fd())
        loaded = adapter.query_load_result(task)
        assert loaded is not None and loaded.popcount() == CHUNKS
        assert [chunk.read() for chunk in chunks[:CHUNKS]] == [chunk.read() for chunk in chunks[CHUNKS:]]
        counted: dict[str, Any] = adapter._client.stats()
        adapter.close()
        assert adapter.violations == []
        return counted
    finally:
        pool.close()
