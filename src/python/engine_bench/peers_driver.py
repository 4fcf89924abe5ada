"""One process of `meshcache bench peers`: a store, beside which this is a client, and a buffer of its pages.

One JSON object per line on stdin, one answer per line on stdout. The process ends with its stdin.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: Distance between the beginnings of two pages in the noise that all pages are cut from.
NOISE_STEP_BYTES = 64
MASTER_READY_SECONDS = 20.0
_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)


class Store(Protocol):
    """A store as its users in Python see it. Offsets are places in the buffer; True stands for a page that moved."""

    def read(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        ...

    def write(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        ...

    def read_bytes(self, keys: Sequence[str]) -> list[bytes | None]:
        ...

    def write_bytes(self, keys: Sequence[str], pages: Sequence[bytes]) -> list[bool]:
        ...

    def exists(self, key: str) -> bool:
        ...

    def remove(self, keys: Sequence[str]) -> None:
        ...


class MeshCache:
    """A client of a node."""

    def __init__(self, buffer: mmap.mmap, address: str, **_: Any) -> None:
        from meshcache import Client, Namespace

        namespace = Namespace(is_mla=True, dtype="", layout="", tag="")
        self._client = Client(address, name="bench-peers", namespace=namespace, required=True, timeout=60.0)
        self._region = self._client.register(buffer)

    def read(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        return self._client.get_into(keys, [(self._region, offset, page_bytes) for offset in offsets])

    def write(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        pages = [(self._region, offset, page_bytes) for offset in offsets]
        return self._client.set_from(keys, pages, named=False)

    def read_bytes(self, keys: Sequence[str]) -> list[bytes | None]:
        return self._client.get_many(keys)

    def write_bytes(self, keys: Sequence[str], pages: Sequence[bytes]) -> list[bool]:
        return self._client.set_many(keys, pages, named=False)

    def exists(self, key: str) -> bool:
        return self._client.exists(key)

    def remove(self, keys: Sequence[str]) -> None:
        self._client.delete(keys)


class MasterProcess:
    """Mooncake's master, which listens when this returns."""

    def __init__(self, address: str, metrics_port: int) -> None:
        self._host, port = address.rsplit(":", 1)
        self._port = int(port)
        self._metrics_port = metrics_port
        self.start()

    def start(self) -> None:
        words = [f"--rpc_address={self._host}", f"--rpc_port={self._port}", f"--metrics_port={self._metrics_port}"]
        program = os.path.join(os.path.dirname(sys.executable), "mooncake_master")
        self._process = subprocess.Popen(
            [program, *words, "--enable_metric_reporting=false"],
            stdin=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,
        )
        until = time.monotonic() + MASTER_READY_SECONDS
        while True:
            try:
                socket.create_connection((self._host, self._port), timeout=1.0).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    where = f"{self._host}:{self._port}"
                    raise RuntimeError(f"Mooncake's master does not listen at {where}: {error}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Mooncake:
    """A client of Mooncake's master, with a segment of the store's memory, in which its own pages are."""

    def __init__(
        self,
        buffer: mmap.mmap,
        address: str,
        host: str,
        segment_bytes: int,
        work_bytes: int,
    ) -> None:
        from mooncake.store import MooncakeDistributedStore, ReplicateConfig

        self._address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        self._store = MooncakeDistributedStore()
        # Objects pass through the store's own buffer, which has room for a whole batch.
        status = self._store.setup(host, "P2PHANDSHAKE", segment_bytes, 2 * work_bytes, "tcp", "", address)
        if status != 0:
            raise RuntimeError(f"Mooncake's client was not set up (status {status})")
        if self._store.register_buffer(self._address, len(buffer)) != 0:
            raise RuntimeError("Mooncake's client has not registered the buffer")
        self._own = ReplicateConfig()
        self._own.replica_num = 1
        self._own.preferred_segment = self._store.get_hostname()

    def read(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        if len(keys) == 1:
            return [self._store.get_into(keys[0], self._address + offsets[0], page_bytes) == page_bytes]
        places = [self._address + offset for offset in offsets]
        return [moved == page_bytes for moved in self._store.batch_get_into(keys, places, [page_bytes] * len(keys))]

    def write(self, keys: Sequence[str], offsets: Sequence[int], page_bytes: int) -> list[bool]:
        if len(keys) == 1:
            return [self._store.put_from(keys[0], self._address + offsets[0], page_bytes, self._own) == 0]
        places = [self._address + offset for offset in offsets]
        statuses = self._store.batch_put_from(keys, places, [page_bytes] * len(keys), self._own)
        return [status == 0 for status in statuses]

    def read_bytes(self, keys: Sequence[str]) -> list[bytes | None]:
        return [page or None for page in self._store.get_batch(keys)]

    def write_bytes(self, keys: Sequence[str], pages: Sequence[bytes]) -> list[bool]:
        return [self._store.put_batch(keys, pages, self._own) == 0] * len(keys)

    def exists(self, key: str) -> bool:
        return bool(self._store.is_exist(key) == 1)

    def remove(self, keys: Sequence[str]) -> None:
        self._store.batch_remove(keys, force=True)


STORES: dict[str, Callable[..., Store]] = {"meshcache": MeshCache, "mooncake": Mooncake}


class Driver:
    """Moves pages between a store and the buffer, whose first half is written from and whose second half read into."""

    def __init__(self, store: str, work_bytes: int, address: str, metrics_port: int = 0, **parts: Any) -> None:
        self._work_bytes = work_bytes
        self._master = MasterProcess(address, metrics_port) if metrics_port else None
        descriptor = os.memfd_create("bench-peers")
        os.ftruncate(descriptor, 2 * work_bytes)
        self._buffer = mmap.mmap(descriptor, 2 * work_bytes)
        # All memory is touched before anything is timed.
        self._wipe(0, 2 * work_bytes)
        self._store = STORES[store](self._buffer, address=address, work_bytes=work_bytes, **parts)
        self._noise = b""
        self._page_bytes = 0

    def publish(self, prefix: str, pages: int, page_bytes: int, batch: int, pause: float = 0.0) -> dict[str, Any]:
        """Sets pages, with so many seconds after each batch. The same pages are then in the first half of the buffer, for writes."""
        self._page_bytes = page_bytes
        self._noise = random.Random(page_bytes).randbytes(page_bytes + pages * NOISE_STEP_BYTES)
        for page in range(pages):
            self._buffer[page * page_bytes : (page + 1) * page_bytes] = self._page(page)
        seconds, moved = self._write(prefix, pages, batch, pause)
        return {"seconds": seconds, "missed": moved.count(False)}

    def last(self, prefix: str, pages: int, count: int) -> dict[str, Any]:
        """Reads and compares the last ones of some pages."""
        self._wipe(self._work_bytes, pages * self._page_bytes)
        return self._compared(self._read(prefix, pages, count, pages - count)[1], pages - count)

    def stalled(self, stalled: str, prefix: str, pages: int, batch: int, limit: float) -> dict[str, Any]:
        """Reads a page that may take long in one thread, and other pages in another. Waits at most `limit` seconds."""
        page_bytes, at = self._page_bytes, self._work_bytes + pages * self._page_bytes
        reads: list[tuple[float, bool]] = []

        def read_one() -> None:
            start = time.perf_counter()
            [is_moved] = self._store.read(_keys(stalled, 1), [at], page_bytes)
            reads.append((time.perf_counter() - start, is_moved))

        self._wipe(at, page_bytes)
        thread = threading.Thread(target=read_one, daemon=True)
        until = time.monotonic() + limit
        thread.start()
        others = self.move("read", prefix, pages, batch)
        thread.join(max(0.0, until - time.monotonic()))
        if not reads:
            return others
        [(seconds, is_moved)] = reads
        others["wrong"] += is_moved and self._buffer[at : at + page_bytes] != self._page(0)
        return {**others, "stalled_seconds": seconds, "is_page": is_moved}

    def move(self, call: str, prefix: str, pages: int, batch: int) -> dict[str, Any]:
        """One pass over all pages: read, write, bytes_out or bytes_in. Every byte of it is compared, untimed."""
        if call == "read":
            self._wipe(self._work_bytes, pages * self._page_bytes)
            seconds, moved = self._read(prefix, pages, batch)
            return {"seconds": seconds, **self._compared(moved)}
        if call == "bytes_out":
            return self._bytes_out(prefix, pages, batch)
        if call == "write":
            seconds, moved = self._write(prefix, pages, batch)
        else:
            seconds, moved = self._bytes_in(prefix, pages, batch)
        return {"seconds": seconds, **self._read_back(prefix, moved, batch)}

    def calls(self, call: str, prefix: str, pages: int) -> dict[str, Any]:
        """Calls about one page each: exists, read or write. The time is the mean of them all."""
        keys = _keys(prefix, pages)
        page_bytes, store = self._page_bytes, self._store
        self._wipe(self._work_bytes, pages * page_bytes)
        moved: list[bool] = []
        start = time.perf_counter()
        for page, key in enumerate(keys):
            if call == "exists":
                moved.append(store.exists(key))
            elif call == "read":
                moved += store.read([key], [self._work_bytes + page * page_bytes], page_bytes)
            else:
                moved += store.write([key], [page * page_bytes], page_bytes)
        seconds = (time.perf_counter() - start) / pages
        if call == "exists":
            return {"seconds": seconds, "missed": moved.count(False), "wrong": 0}
        if call == "read":
            return {"seconds": seconds, **self._compared(moved)}
        return {"seconds": seconds, **self._read_back(prefix, moved, pages)}

    def remove(self, prefix: str, pages: int) -> dict[str, Any]:
        self._store.remove(_keys(prefix, pages))
        return {}

    def kill_master(self) -> dict[str, Any]:
        if self._master is not None:
            self._master.kill()
        return {}

    def start_master(self) -> dict[str, Any]:
        if self._master is not None:
            self._master.start()
        return {}

    def _read(self, prefix: str, pages: int, batch: int, first: int = 0) -> tuple[float, list[bool]]:
        keys, page_bytes, half = _keys(prefix, pages), self._page_bytes, self._work_bytes
        moved: list[bool] = []
        start = time.perf_counter()
        for low in range(first, pages, batch):
            some = keys[low : low + batch]
            offsets = [half + page * page_bytes for page in range(low, low + len(some))]
            moved += self._store.read(some, offsets, page_bytes)
        return time.perf_counter() - start, moved

    def _write(self, prefix: str, pages: int, batch: int, pause: float = 0.0) -> tuple[float, list[bool]]:
        keys, page_bytes = _keys(prefix, pages), self._page_bytes
        moved: list[bool] = []
        start = time.perf_counter()
        for low in range(0, pages, batch):
            some = keys[low : low + batch]
            moved += self._store.write(some, [page * page_bytes for page in range(low, low + len(some))], page_bytes)
            if pause > 0:
                time.sleep(pause)
        return time.perf_counter() - start, moved

    def _bytes_in(self, prefix: str, pages: int, batch: int) -> tuple[float, list[bool]]:
        keys = _keys(prefix, pages)
        datas = [self._page(page) for page in range(pages)]
        moved: list[bool] = []
        start = time.perf_counter()
        for low in range(0, pages, batch):
            moved += self._store.write_bytes(keys[low : low + batch], datas[low : low + batch])
        return time.perf_counter() - start, moved

    def _bytes_out(self, prefix: str, pages: int, batch: int) -> dict[str, Any]:
        keys = _keys(prefix, pages)
        found: list[bytes | None] = []
        start = time.perf_counter()
        for low in range(0, pages, batch):
            found += self._store.read_bytes(keys[low : low + batch])
        seconds = time.perf_counter() - start
        wrong = sum(data is not None and data != self._page(page) for page, data in enumerate(found))
        return {"seconds": seconds, "missed": found.count(None), "wrong": wrong}

    def _read_back(self, prefix: str, written: list[bool], batch: int) -> dict[str, Any]:
        """Reads and compares what a pass has written, then removes it. What cannot be read counts as missed."""
        pages = len(written)
        self._wipe(self._work_bytes, pages * self._page_bytes)
        _, found = self._read(prefix, pages, batch)
        self.remove(prefix, pages)
        return self._compared([is_set and is_found for is_set, is_found in zip(written, found)])

    def _compared(self, moved: list[bool], first: int = 0) -> dict[str, Any]:
        wrong = 0
        for page, is_moved in enumerate(moved, first):
            at = self._work_bytes + page * self._page_bytes
            wrong += is_moved and self._buffer[at : at + self._page_bytes] != self._page(page)
        return {"missed": moved.count(False), "wrong": wrong}

    def _page(self, page: int) -> bytes:
        first = page * NOISE_STEP_BYTES
        return self._noise[first : first + self._page_bytes]

    def _wipe(self, first: int, count: int) -> None:
        self._buffer[first : first + count] = bytes(count)


def _keys(prefix: str, pages: int) -> list[str]:
    return [f"{prefix}{page:08x}" for page in range(pages)]


def _end_with_parent() -> None:
    """Has the kernel end this process with the one that started it: a store may wait long for others that have ended."""
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL)


def serve() -> None:
    """Executes commands until stdin ends, or nobody reads the answers any more."""
    _end_with_parent()
    # Stores print to stdout. It is redirected to stderr from here on, and answers use a separate descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver: Driver | None = None
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        operation = command.pop("op")
        try:
            if operation == "start":
                driver = Driver(**command)
                result: dict[str, Any] = {}
            else:
                result = getattr(driver, operation)(**command)
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    try:
        serve()
    finally:
        # A store whose servers are gone must not keep the process.
        os._exit(0)
