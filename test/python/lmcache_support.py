"""What the tests of the LMCache plug-in share: paths, configurations, and an engine that drives the adapter as LMCache's controllers do."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _path in (os.path.join(ROOT, "src", "python"), os.path.join(ROOT, "test", "python", "doubles")):
    if _path not in sys.path:
        sys.path.insert(0, _path)

from lmcache.lmcache_native import Bitmap  # noqa: E402
from lmcache.v1.distributed.api import ObjectKey  # noqa: E402
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import create_l2_adapter  # noqa: E402
from lmcache.v1.memory_management import L1Pool, TensorMemoryObj  # noqa: E402

#: Until something that must happen has happened, however busy the machine is.
PATIENCE_SECONDS = 60.0

_names = itertools.count(1)

# Misses and failures are what many of the tests are about.
logging.getLogger("lmcache.meshcache").setLevel(logging.CRITICAL)


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    """Waits until a check gives something other than None or false, and gives that."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = check()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.002)


def configuration(**adapter_params: Any) -> dict[str, Any]:
    """What `--l2-adapter` says."""
    return {
        "type": "native_plugin",
        "module_path": "meshcache.lmcache",
        "class_name": "MeshCacheConnector",
        "adapter_params": adapter_params,
    }


def key_of(name: str, **parts: Any) -> ObjectKey:
    """A key of LMCache."""
    facts = {"model_name": "org/model", "kv_rank": 0x10002, "object_group_id": 3, **parts}
    return ObjectKey(hashlib.sha256(name.encode()).digest(), **facts)


def content(name: str, size: int) -> bytes:
    """The bytes of a page, which follow from its name. None of them is 0xff."""
    return hashlib.shake_128(name.encode()).digest(size).replace(b"\xff", b"\xfe")


class Engine:
    """One server of LMCache: an L1 pool, and the adapter with the plug-in."""

    def __init__(self, pool_bytes: int = 1 << 20, *, shared: bool = True, **adapter_params: Any) -> None:
        self.pool = L1Pool(pool_bytes, f"test_{os.getpid()}_{next(_names)}" if shared else "")
        try:
            self.adapter = create_l2_adapter(configuration(**adapter_params))
        except BaseException:
            self.pool.close()
            raise
        self._stored: dict[int, bool] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def connector(self) -> Any:
        return self.adapter._client

    def objects(self, sizes: Sequence[int], first: int = 0) -> list[TensorMemoryObj]:
        """Objects one after the other in the pool, each at a multiple of 64 bytes."""
        found: list[TensorMemoryObj] = []
        for size in sizes:
            found.append(self.pool.allocate(first, size))
            first += -(-size // 64) * 64
        return found

    def stored(self, task: int) -> bool | None:
        """Whether a store has succeeded; None: it has not completed."""
        with self._lock:
            self._stored.update(self.adapter.pop_completed_store_tasks())
            return self._stored.pop(task, None)

    def store(self, keys: Sequence[ObjectKey], objects: Sequence[TensorMemoryObj]) -> bool:
        task = self.adapter.submit_store_task(list(keys), list(objects))
        return bool(wait_for("a store completes", lambda: _boxed(self.stored(task)))[0])

    def lookup(self, keys: Sequence[ObjectKey]) -> list[bool]:
        task = self.adapter.submit_lookup_and_lock_task(list(keys))
        found = wait_for("a lookup completes", lambda: self.adapter.query_lookup_and_lock_result(task))
        return bits(found, len(keys))

    def load(self, keys: Sequence[ObjectKey], objects: Sequence[TensorMemoryObj]) -> list[bool]:
        task = self.adapter.submit_load_task(list(keys), list(objects))
        return bits(
            wait_for("a load completes", lambda: self.adapter.query_load_result(task)),
            len(keys),
        )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.adapter.close()
            self.pool.close()


def bits(bitmap: Bitmap, count: int) -> list[bool]:
    """A bitmap as a list."""
    return [bitmap.test(index) for index in range(count)]


def _boxed(value: bool | None) -> tuple[bool] | None:
    return None if value is None else (value,)


class Completed:
    """Takes completions as LMCache's adapter does, for tests without one: polls nothing, and counts what comes."""

    def __init__(self, connector: Any) -> None:
        self._connector = connector
        self.by_id: dict[int, tuple[bool, str, list[bool]]] = {}
        self.twice: list[int] = []

    def drain(self) -> None:
        for future_id, ok, error, results in self._connector.drain_completions():
            if future_id in self.by_id:
                self.twice.append(future_id)
            self.by_id[future_id] = (ok, error, results)

    def wait(self, future_id: int) -> tuple[bool, str, list[bool]]:
        """What a future has completed with."""

        def look() -> tuple[bool, str, list[bool]] | None:
            self.drain()
            return self.by_id.get(future_id)

        found: tuple[bool, str, list[bool]] = wait_for(f"future {future_id} completes", look)
        return found
