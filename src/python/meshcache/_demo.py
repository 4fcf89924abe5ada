"""Engine side of `meshcache demo --engines`. Reads one JSON command per line from stdin, and answers each in one line.

It plays prompts through the SGLang backend, with the calls that SGLang's controller makes. It needs neither SGLang nor
torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from meshcache.sglang import MeshCacheStorage

#: Most pages of one call, as in the controller.
BATCH_PAGES = 128
#: Tokens of one page.
PAGE_SIZE = 64
#: Each stripe of a page starts with its offset.
STRIPE_BYTES = 4096
#: Content of slots that are about to be read into. It would count as wrong in a page.
CLEARED = b"\xa5"


class Buffer:
    """Memory in a memfd, as from SGLang's allocator "shm", with the methods of a tensor that the backend uses."""

    def __init__(self, length: int) -> None:
        fd = os.memfd_create("demo-pool", os.MFD_CLOEXEC)
        os.ftruncate(fd, length)
        self.memory = mmap.mmap(fd, length)
        os.close(fd)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return len(self.memory)

    def element_size(self) -> int:
        return 1


class HostPool:
    """Slots of one page each: K in the first half of the buffer, V in the second, as in SGLang's page-first layout."""

    layout = "page_first"
    page_size = PAGE_SIZE
    dtype = "torch.bfloat16"

    def __init__(self, slots: int, page_bytes: int) -> None:
        self.half_bytes = page_bytes // 2
        self.size_per_token = max(1, page_bytes // PAGE_SIZE)
        self.kv_buffer = Buffer(slots * page_bytes)
        self._values_at = slots * self.half_bytes

    def get_page_buffer_meta(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        base, addresses = self.kv_buffer.data_ptr(), []
        for token in indices[::PAGE_SIZE]:
            addresses += [base + at for at in self._places(token // PAGE_SIZE)]
        return addresses, [self.half_bytes] * len(addresses)

    def indices(self, slots: range) -> list[int]:
        """Indices of the tokens in these slots."""
        return list(range(slots.start * PAGE_SIZE, slots.stop * PAGE_SIZE))

    def clear(self, slot: int) -> None:
        for at in self._places(slot):
            self.kv_buffer.memory[at : at + self.half_bytes] = CLEARED * self.half_bytes

    def fill(self, slot: int, key: str) -> None:
        """Simulates computing the page."""
        for half, at in zip("kv", self._places(slot)):
            self.kv_buffer.memory[at : at + self.half_bytes] = content(key, half, self.half_bytes)

    def wrong_bytes(self, slot: int, key: str) -> int:
        """How many bytes of the slot differ from the key's page."""
        wrong = 0
        for half, at in zip("kv", self._places(slot)):
            found, right = self.kv_buffer.memory[at : at + self.half_bytes], content(key, half, self.half_bytes)
            if found != right:
                wrong += sum(one != other for one, other in zip(found, right))
        return wrong

    def _places(self, slot: int) -> tuple[int, int]:
        return slot * self.half_bytes, self._values_at + slot * self.half_bytes


def content(key: str, half: str, length: int) -> bytes:
    """Expected content of one half of a key's page. No part of it occurs anywhere else, in this page or in another."""
    stripe = hashlib.shake_128(f"{key} {half}".encode()).digest(STRIPE_BYTES - 8)
    return b"".join(struct.pack("<Q", at) + stripe for at in range(0, length, STRIPE_BYTES))[:length]


class Exceptions(logging.Handler):
    """Collects the exceptions that the backend has caught, logged and turned into misses."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.texts.append(record.getMessage())


class Engine:
    """An engine with a pool of host memory, attached to one node."""

    def __init__(self, socket: str, slots: int, page_bytes: int) -> None:
        self.exceptions = Exceptions()
        logging.getLogger("meshcache").addHandler(self.exceptions)
        self.pool = HostPool(slots, page_bytes)
        self.page_bytes = page_bytes
        self.read_us: list[float] = []
        self.lookup_us: list[float] = []
        self.set_us: list[float] = []
        own = {"backend_name": "meshcache", "module_path": "meshcache.sglang", "class_name": "MeshCacheStorage"}
        config = SimpleNamespace(
            tp_rank=0,
            tp_size=1,
            pp_rank=0,
            pp_size=1,
            is_mla_model=False,
            enable_storage_metrics=False,
            is_page_first_layout=True,
            model_name="demo",
            extra_config={**own, "interface_v1": 1, "allocator": "shm", "client_socket": socket},
        )
        self.backend = MeshCacheStorage(config, {})
        self.backend.register_mem_pool_host(self.pool)

    def turn(self, keys: list[str]) -> dict[str, Any]:
        """Plays one prompt: looks up its prefix, reads the pages found, computes the rest and stores it."""
        self.read_us, self.lookup_us, self.set_us = [], [], []
        found = self.exists(keys)
        hits, read, wrong = self.get(keys[:found])
        for slot in range(hits, len(keys)):
            self.pool.fill(slot, keys[slot])
        stored = self.set(keys, hits)
        return {
            "asked": len(keys),
            "found": found,
            "hits": hits,
            "read": read,
            "computed": len(keys) - hits,
            "stored": stored,
            "wrong_bytes": wrong,
            "lookup_us": self.lookup_us,
            "read_us": self.read_us,
            "set_us": self.set_us,
        }

    def exists(self, keys: list[str]) -> int:
        found = 0
        for at in range(0, len(keys), BATCH_PAGES):
            batch = keys[at : at + BATCH_PAGES]
            hits = self._timed(self.lookup_us, self.backend.batch_exists, batch)
            found += hits
            if hits < len(batch):
                break
        return found

    def get(self, keys: list[str]) -> tuple[int, int, int]:
        """Reads pages. Returns the pages before the first miss, all pages read, and the wrong bytes in them."""
        hits, read, wrong = 0, 0, 0
        for at in range(0, len(keys), BATCH_PAGES):
            batch = keys[at : at + BATCH_PAGES]
            slots = range(at, at + len(batch))
            for slot in slots:
                self.pool.clear(slot)
            flags = self._timed(self.read_us, self.backend.batch_get_v1, batch, self.pool.indices(slots))
            # Pages after a miss are checked as well: True must always mean the right bytes.
            for slot, key, flag in zip(slots, batch, flags, strict=True):
                if flag:
                    read += 1
                    wrong += self.pool.wrong_bytes(slot, key)
            if not all(flags):
                return hits + flags.index(False), read, wrong
            hits += len(batch)
        return hits, read, wrong

    def set(self, keys: list[str], first: int) -> int:
        stored = 0
        for at in range(first, len(keys), BATCH_PAGES):
            batch = keys[at : at + BATCH_PAGES]
            slots = self.pool.indices(range(at, at + len(batch)))
            flags = self._timed(self.set_us, self.backend.batch_set_v1, batch, slots)
            stored += sum(flags)
        return stored

    def probe(self, keys: list[str]) -> dict[str, Any]:
        """Whether pages can be stored and read back now, and how many bytes were wrong."""
        for slot, key in enumerate(keys):
            self.pool.fill(slot, key)
        is_back = self.set(keys, 0) == self.exists(keys) == len(keys)
        hits, _, wrong = self.get(keys) if is_back else (0, 0, 0)
        return {"is_back": is_back and hits == len(keys), "wrong_bytes": wrong}

    def state(self) -> dict[str, Any]:
        """How pages move, according to the node (or, without one, to the client), and what has gone wrong."""
        # The framework's interface has no method for this.
        client = self.backend._client
        stats = {} if client is None else client.stats()
        node = stats.get("node") or {}
        return {
            "mode": node.get("client", {}).get("mode", stats.get("mode", "none")),
            "exceptions": self.exceptions.texts,
            "reconnects": stats.get("reconnects", 0),
        }

    @staticmethod
    def _timed(times_us: list[float], call: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = call(*arguments)
        times_us.append((time.perf_counter() - start) * 1e6)
        return result


def main() -> None:
    engine: Engine | None = None
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        op = command["op"]
        answer: dict[str, Any] = {}
        if op == "start":
            engine = Engine(command["socket"], command["slots"], command["page_bytes"])
            answer = engine.state()
        elif engine is None:
            answer = {"error": "the first command is start"}
        elif op == "turn":
            answer = engine.turn(command["keys"])
        elif op == "probe":
            answer = engine.probe(command["keys"])
        elif op == "state":
            answer = engine.state()
        elif op == "close":
            engine.backend.close()
        else:
            answer = {"error": f"there is no command {op}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
