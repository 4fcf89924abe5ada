"""The adapter between LMCache's controllers and a native connector, and the rules that connectors must keep."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.memory_management import TensorMemoryObj

_DELETE_SECONDS = 30.0


def _object_key_to_string(key: ObjectKey) -> str:
    parts = [key.model_name, f"{key.kv_rank:08x}", f"{key.object_group_id:x}", key.chunk_hash.hex()]
    return "@".join([*parts, key.cache_salt] if key.cache_salt else parts)


class NativeConnectorL2Adapter:
    """Submits under one lock, which its demultiplexing thread takes for the completions.

    ``violations`` has what a connector may not do; LMCache itself would log it, answer wrongly or end its thread.
    """

    def __init__(self, native_client: Any, max_capacity_gb: float = 0, type_name: str = "") -> None:
        self._client = native_client
        self._client_fd = int(native_client.event_fd())
        self._lock = threading.Lock()
        self._next_task_id = 0
        # What a future was submitted for: kind, task, keys.
        self._pending_ops: dict[int, tuple[str, int, list[ObjectKey]]] = {}
        self._used_ids: set[int] = set()
        self._completed: dict[str, dict[int, Any]] = {"store": {}, "lookup": {}, "load": {}}
        self._notifiers = {kind: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for kind in self._completed}
        self._pending_delete_events: dict[int, tuple[threading.Event, list[bool]]] = {}
        self.violations: list[str] = []
        self._stop = threading.Event()
        self._demux_thread = threading.Thread(target=self._demux_loop, daemon=True)
        self._demux_thread.start()

    # For the controllers

    def get_store_event_fd(self) -> int:
        return self._notifiers["store"]

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._notifiers["lookup"]

    def get_load_event_fd(self) -> int:
        return self._notifiers["load"]

    def submit_store_task(self, keys: list[ObjectKey], objects: list[TensorMemoryObj]) -> int:
        texts, views = [_object_key_to_string(key) for key in keys], [obj.byte_array for obj in objects]
        return self._submit("store", keys, lambda: self._client.submit_batch_set(texts, views))

    def pop_completed_store_tasks(self) -> dict[int, bool]:
        with self._lock:
            completed, self._completed["store"] = self._completed["store"], {}
        return completed

    def submit_lookup_and_lock_task(self, keys: list[ObjectKey], group_layout_descs: Any = None) -> int:
        texts = [_object_key_to_string(key) for key in keys]
        return self._submit("lookup", keys, lambda: self._client.submit_batch_exists(texts))

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._completed["lookup"].pop(task_id, None)

    def submit_load_task(self, keys: list[ObjectKey], objects: list[TensorMemoryObj]) -> int:
        texts, views = [_object_key_to_string(key) for key in keys], [obj.byte_array for obj in objects]
        return self._submit("load", keys, lambda: self._client.submit_batch_get(texts, views))

    def query_load_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._completed["load"].pop(task_id, None)

    def delete(self, keys: list[ObjectKey]) -> list[bool] | None:
        """Waits for the deletion. LMCache's returns nothing, and frees what was deleted; this one says what was."""
        texts, done, deleted = [_object_key_to_string(key) for key in keys], threading.Event(), [False] * len(keys)

        def submit() -> int:
            self._pending_delete_events[self._next_task_id] = (done, deleted)
            return int(self._client.submit_batch_delete(texts))

        self._submit("delete", keys, submit)
        return deleted if done.wait(_DELETE_SECONDS) else None

    def close(self) -> None:
        self._stop.set()
        self._demux_thread.join(5)
        self._client.close()
        for notifier in self._notifiers.values():
            os.close(notifier)

    # Within

    def _submit(self, kind: str, keys: list[ObjectKey], submit: Callable[[], int]) -> int:
        with self._lock:
            future_id = submit()
            task_id, self._next_task_id = self._next_task_id, self._next_task_id + 1
            if type(future_id) is not int or future_id in self._used_ids:
                self.violations.append(f"the id {future_id!r} is not new")
            self._used_ids.add(future_id)
            self._pending_ops[future_id] = (kind, task_id, list(keys))
        return task_id

    def _demux_loop(self) -> None:
        poller = select.poll()
        poller.register(self._client_fd, select.POLLIN)
        while not self._stop.is_set():
            if not poller.poll(500):
                continue
            try:
                completions = self._client.drain_completions()
            except Exception as error:
                self.violations.append(f"drain_completions has raised {error!r}")
                continue
            with self._lock:
                for future_id, ok, error, results in completions:
                    self._route(future_id, ok, error, results)

    def _route(self, future_id: int, ok: bool, error: str, results: list[bool] | None) -> None:
        entry = self._pending_ops.pop(future_id, None)
        if entry is None:
            self.violations.append(f"future {future_id} is not pending")
            return
        kind, task_id, keys = entry
        if not isinstance(results, list) or len(results) != len(keys) or not {*map(type, results)} <= {bool}:
            self.violations.append(f"{kind} of {len(keys)} keys has the results {results!r}")
            return
        if type(ok) is not bool or type(error) is not str:
            self.violations.append(f"{kind} has completed with {ok!r}, {error!r}")
        if kind == "delete":
            event, deleted = self._pending_delete_events.pop(task_id)
            deleted[:] = results
            event.set()
            return
        if kind == "store":
            self._completed[kind][task_id] = ok
        else:
            bitmap = Bitmap(len(keys))
            for index, result in enumerate(results):
                # LMCache looks at ok for lookups only.
                if result and (ok or kind == "load"):
                    bitmap.set(index)
            self._completed[kind][task_id] = bitmap
        os.eventfd_write(self._notifiers[kind], 1)
