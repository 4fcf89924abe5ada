"""Engine side of `meshcache bench clients`. Reads one JSON command per line from stdin, and prints one answer each."""

from __future__ import annotations

import json
import mmap
import os
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

from meshcache import Client, Namespace, Piece, Region

STAMP_DISTANCE_BYTES = 4096

Mode = Literal["direct", "staged", "bytes", "objects"]


class Engine:
    """An engine with a pool in a memfd, attached once for each mode."""

    def __init__(self, socket: str, modes: Sequence[Mode], work_bytes: int, namespace: dict[str, Any]) -> None:
        fd = os.memfd_create("bench-pool")
        os.ftruncate(fd, work_bytes)
        self.pool = mmap.mmap(fd, work_bytes)
        # All memory is touched before anything is timed.
        for at in range(0, work_bytes, mmap.PAGESIZE):
            self.pool[at] = 1
        self.clients: dict[Mode, tuple[Client, Region]] = {}
        for mode in modes:
            # Objects use the best mode available.
            way: Literal["auto", "direct", "staged", "bytes"] = "auto" if mode == "objects" else mode
            client = Client(
                socket, mode=way, name=f"bench-{mode}", namespace=Namespace(**namespace), required=True, timeout=60.0
            )
            self.clients[mode] = (client, client.register(self.pool))

    def pages(self, region: Region, first: int, count: int, page_bytes: int) -> list[list[Piece]]:
        return [[(region, page * page_bytes, page_bytes)] for page in range(first, first + count)]

    def move(self, command: dict[str, Any]) -> dict[str, Any]:
        mode: Mode = command["mode"]
        client, region = self.clients[mode]
        keys: list[str] = command["keys"]
        batch, page_bytes = int(command["batch"]), int(command["page_bytes"])
        is_get = command["op"] == "get"
        done = 0
        used = time.process_time()
        start = time.perf_counter()
        for first in range(0, len(keys), batch):
            some = keys[first : first + batch]
            if mode in ("bytes", "objects"):
                done += self.move_objects(client, some, first, page_bytes, is_get)
                continue
            pages = self.pages(region, first, len(some), page_bytes)
            done += sum(client.get_into(some, pages) if is_get else client.set_from(some, pages, named=False))
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "cpu_seconds": time.process_time() - used, "missed": len(keys) - done}

    def move_objects(self, client: Client, keys: list[str], first: int, page_bytes: int, is_get: bool) -> int:
        view = memoryview(self.pool)
        slots = [view[(first + i) * page_bytes : (first + i + 1) * page_bytes] for i in range(len(keys))]
        if not is_get:
            return sum(client.set_many(keys, slots, named=False))
        done = 0
        for slot, page in zip(slots, client.get_many(keys), strict=True):
            if page is not None and len(page) == page_bytes:
                slot[:] = page
                done += 1
        return done

    def is_right(self, count: int, page_bytes: int) -> bool:
        for page in range(count):
            for at in range(0, page_bytes, STAMP_DISTANCE_BYTES):
                if struct.unpack_from("<II", self.pool, page * page_bytes + at) != (page, at):
                    return False
        return True

    def stamp(self, count: int, page_bytes: int) -> None:
        for page in range(count):
            for at in range(0, page_bytes, STAMP_DISTANCE_BYTES):
                struct.pack_into("<II", self.pool, page * page_bytes + at, page, at)

    def exists(self, keys: list[str], calls: int) -> dict[str, Any]:
        client, _ = self.clients["direct"] if "direct" in self.clients else next(iter(self.clients.values()))
        times: list[float] = []
        found = 0
        for _ in range(calls):
            start = time.perf_counter()
            found = client.exists_prefix(keys)
            times.append(time.perf_counter() - start)
        return {"p50_us": statistics.median(times) * 1e6, "found": found}


def main() -> None:
    engine: Engine | None = None
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        op = command["op"]
        answer: dict[str, Any] = {}
        if op == "start":
            engine = Engine(command["socket"], command["modes"], command["work_bytes"], command["namespace"])
            answer = {"modes": {mode: client.mode for mode, (client, _) in engine.clients.items()}}
        elif engine is None:
            answer = {"error": "the first command is start"}
        elif op in ("get", "set"):
            answer = engine.move(command)
        elif op == "check":
            answer = {"right": engine.is_right(command["pages"], command["page_bytes"])}
        elif op == "stamp":
            engine.stamp(command["pages"], command["page_bytes"])
        elif op == "wipe":
            engine.pool[:] = bytes(len(engine.pool))
        elif op == "exists":
            answer = engine.exists(command["keys"], command["calls"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
