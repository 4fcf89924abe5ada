"""Drives a backend with the calls of SGLang's cache controller: threads that ask, read, and store.

A thread of the real controller ends with the first exception and is never started again. Here it notes the exception,
which fails the test. All contents follow from keys: every page that is said to have been read is compared byte by byte.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import sglang_support as support
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

from meshcache.sglang import MeshCacheStorage

#: Pages of one call of the first interface, as the controller cuts them.
BATCH = 128


class Engine:
    """One engine: host pools, a backend, and the controller's threads.

    Pages are stored from the first half of each host pool, and read into the second half.
    """

    def __init__(
        self,
        extra: dict[str, Any],
        *,
        pages: int,
        half: int = 1024,
        window: int = 4,
        shared: bool = True,
        **changes: Any,
    ) -> None:
        self.kv = support.MHATokenToKVPoolHost(2 * pages, half, shared=shared)
        self.index = support.HiddenPoolHost(2 * pages, (96,), shared=shared)
        self.swa = support.MHATokenToKVPoolHost(2 * pages, 128, shared=shared)
        self.mamba = support.MambaPoolHost(2 * pages, (512, 64, 64), shared=shared)
        self.pages, self.window = pages, window
        self._extra, self._changes = extra, changes
        self._queues: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in ("ask", "read", "store")}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        #: What went wrong in a thread.
        self.errors: list[str] = []
        self.longest_seconds = 0.0
        self.attach()

    @property
    def sides(self) -> dict[PoolName, Any]:
        return {PoolName.INDEXER: self.index, PoolName.SWA: self.swa, PoolName.MAMBA: self.mamba}

    def attach(self) -> None:
        """A new backend, registered as the controller does it, and new threads."""
        self.backend = MeshCacheStorage(
            support.storage_config(self._extra, enable_storage_metrics=True, **self._changes), {}
        )
        self.backend.register_mem_pool_host(self.kv)
        for name, pool in {PoolName.KV: self.kv, **self.sides}.items():
            self.backend.register_mem_host_pool_v2(pool, name)
        self._stop.clear()
        loops = {"ask": self._ask, "read": self._read, "store": self._store}
        self._threads = [threading.Thread(target=self._loop, args=(name, loops[name])) for name in loops]
        for thread in self._threads:
            thread.start()

    def detach(self) -> None:
        """Ends the threads, then closes the backend."""
        self._stop.set()
        for name in self._queues:
            self._queues[name].put(None)
        for thread in self._threads:
            thread.join()
        self.backend.close()

    def _loop(self, name: str, step: Callable[[Any], Any]) -> None:
        while not self._stop.is_set():
            work = self._queues[name].get()
            if work is None:
                continue
            argument, answer = work
            try:
                answer.put(step(argument))
            except BaseException as error:
                self.errors.append(f"{name}: {type(error).__name__}: {error}")
                answer.put(None)

    def _do(self, name: str, argument: Any) -> queue.Queue[Any]:
        answer: queue.Queue[Any] = queue.Queue()
        self._queues[name].put((argument, answer))
        return answer

    def ask(self, keys: list[str]) -> queue.Queue[Any]:
        """Which prefix of these pages can be restored? The answer's items are numbers of pages."""
        return self._do("ask", keys)

    def read(self, keys: list[str]) -> queue.Queue[Any]:
        """Reads a prefix that was found. The answer is how many pages came, every byte of them compared."""
        return self._do("read", keys)

    def store(self, keys: list[str]) -> queue.Queue[Any]:
        """Stores pages whose content follows from their keys. The answer is how many were stored."""
        return self._do("store", keys)

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        started = time.monotonic()
        result = call(*arguments)
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
        return result

    def _placeholders(self, keys: list[str]) -> list[PoolTransfer]:
        """As the tree makes them for a query: keys that are not known yet, of which only the number counts."""
        return [
            PoolTransfer(PoolName.INDEXER, indices_from_pool=PoolName.KV),
            PoolTransfer(PoolName.SWA, keys=["placeholder"] * self.window, hit_policy=PoolHitPolicy.TRAILING_PAGES),
            PoolTransfer(PoolName.MAMBA, keys=["placeholder"], hit_policy=PoolHitPolicy.TRAILING_PAGES),
        ]

    def _ask(self, keys: list[str]) -> int:
        result = self._timed(self.backend.batch_exists_v2, keys, self._placeholders(keys))
        assert 0 <= result.kv_hit_pages <= len(keys)
        assert result.kv_hit_pages in [0, *result.restorable_prefix_pages]
        plain = sum(self._timed(self.backend.batch_exists, keys[at : at + BATCH]) for at in range(0, len(keys), BATCH))
        assert 0 <= plain <= len(keys)
        return int(result.kv_hit_pages)

    def _transfers(self, keys: list[str], first: int) -> list[PoolTransfer]:
        """The last pages of a prefix, in the pools that need no others."""
        last = keys[-self.window :]
        return [
            PoolTransfer(PoolName.SWA, self.swa.indices(range(first, first + len(last))), keys=last),
            PoolTransfer(PoolName.MAMBA, self.mamba.indices([first]), keys=keys[-1:]),
        ]

    def _read(self, keys: list[str]) -> int:
        read, first = 0, self.pages
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            slots = range(first + at, first + at + len(batch))
            flags = self._timed(self.backend.batch_get_v1, batch, self.kv.indices(slots))
            transfer = PoolTransfer(PoolName.INDEXER, self.index.indices(slots), keys=batch)
            side = self._timed(self.backend.batch_get_v2, [transfer])[PoolName.INDEXER]
            assert len(flags) == len(side) == len(batch) and all(type(flag) is bool for flag in flags + side)
            for key, slot, main, index in zip(batch, slots, flags, side):
                if main:
                    self._compare(self.kv, slot, key, PoolName.KV)
                if index:
                    self._compare(self.index, slot, key, PoolName.INDEXER)
            hit = min((row.index(False) if False in row else len(row)) for row in (flags, side))
            read += hit
            if hit < len(batch):
                return read
        transfers = self._transfers(keys, first) if keys else []
        results = self._timed(self.backend.batch_get_v2, transfers)
        for transfer in transfers:
            pool, flags = self.sides[transfer.name], results[transfer.name]
            assert transfer.keys is not None and len(flags) == len(transfer.keys)
            for number, (key, flag) in enumerate(zip(transfer.keys, flags)):
                if flag:
                    self._compare(pool, first + number, key, transfer.name)
        return read

    def _compare(self, pool: Any, slot: int, key: str, name: PoolName) -> None:
        assert pool.read(slot) == support.content(key, pool.page_bytes, name.value), f"{name.value} page {key} is wrong"
        pool.write(slot, bytes(pool.page_bytes))

    def _store(self, keys: list[str]) -> int:
        stored = 0
        for pool, name in ((self.kv, PoolName.KV), (self.index, PoolName.INDEXER)):
            for slot, key in enumerate(keys):
                pool.write(slot, support.content(key, pool.page_bytes, name.value))
        transfers = [PoolTransfer(PoolName.INDEXER, self.index.indices(range(len(keys))), keys=keys)]
        transfers += self._transfers(keys, 0)
        for transfer in transfers[1:]:
            assert transfer.keys is not None
            for number, key in enumerate(transfer.keys):
                pool = self.sides[transfer.name]
                pool.write(number, support.content(key, pool.page_bytes, transfer.name.value))
        results = self._timed(self.backend.batch_set_v2, transfers)
        for transfer in transfers:
            assert transfer.keys is not None and len(results[transfer.name]) == len(transfer.keys)
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            flags = self._timed(self.backend.batch_set_v1, batch, self.kv.indices(range(at, at + len(batch))))
            assert len(flags) == len(batch)
            stored += sum(flags)
            if not all(flags):
                break
        return stored
