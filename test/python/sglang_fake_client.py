"""A client in the test's own process, for tests of how arguments are converted. It keeps pages in a dictionary."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any


class FakeRegion:
    def __init__(self, memory: Any, name: str) -> None:
        self.memory, self.name, self.length = memory, name, ctypes.sizeof(memory)


class FakeClient:
    """Clients of equal namespaces share ``pages``. ``calls`` has one entry for each request."""

    pages: dict[Any, bytes] = {}
    made: list["FakeClient"] = []
    #: Raised by every request, when it is set.
    failure: Exception | None = None
    #: The next requests give so many results fewer than keys.
    short_by = 0

    @classmethod
    def reset(cls) -> None:
        cls.pages, cls.made, cls.failure, cls.short_by = {}, [], None, 0

    def __init__(self, socket: str | None = None, **options: Any) -> None:
        self.socket, self.options, self.closed = socket, options, False
        self.calls: list[tuple[str, int, float | None]] = []
        #: What was counted: pages that were asked for, and those found.
        self.lookups: list[tuple[int, int]] = []
        self.regions: list[FakeRegion] = []
        self._lock = threading.Lock()
        FakeClient.made.append(self)

    def _enter(self, name: str, keys: Sequence[str], timeout: float | None) -> None:
        assert not self.closed and all(isinstance(key, str) for key in keys)
        with self._lock:
            self.calls.append((name, len(keys), timeout))
        if self.failure is not None:
            raise self.failure

    def _key(self, key: str, pool: str) -> Any:
        return self.options["namespace"], pool, key

    def _cut(self, results: list[Any]) -> list[Any]:
        return results[: len(results) - self.short_by]

    def register(self, memory: Any, *, writable: bool | None = None, name: str = "") -> FakeRegion:
        region = FakeRegion(memory, name)
        self.regions.append(region)
        return region

    @property
    def process_memory(self) -> FakeRegion:
        return FakeRegion((ctypes.c_char * (1 << 62)).from_address(0), "process")

    def _spans(self, page: Sequence[tuple[FakeRegion, int, int]]) -> list[tuple[int, int]]:
        for region, offset, length in page:
            assert 0 <= offset and length > 0 and offset + length <= region.length
        return [(ctypes.addressof(region.memory) + offset, length) for region, offset, length in page]

    def get_into(self, keys: Any, pages: Any, *, pool: str = "kv", timeout: Any = None) -> list[bool]:
        self._enter("get_into", keys, timeout)
        assert len(keys) == len(pages)
        results = []
        for key, page in zip(keys, pages):
            data, spans = self.pages.get(self._key(key, pool)), self._spans(page)
            results.append(data is not None and len(data) == sum(length for _, length in spans))
            at = 0
            for address, length in spans if results[-1] else []:
                ctypes.memmove(address, (data or b"")[at : at + length], length)
                at += length
        return self._cut(results)

    def set_from(
        self, keys: Any, pages: Any, *, pool: str = "kv", named: bool = False, timeout: Any = None
    ) -> list[bool]:
        self._enter("set_from", keys, timeout)
        assert len(keys) == len(pages)
        for key, page in zip(keys, pages):
            data = b"".join(ctypes.string_at(address, length) for address, length in self._spans(page))
            self.pages.setdefault(self._key(key, pool), data)
        return self._cut([True] * len(keys))

    def get_many(self, keys: Any, *, pool: str = "kv", timeout: Any = None) -> list[Any]:
        self._enter("get_many", keys, timeout)
        return self._cut([self.pages.get(self._key(key, pool)) for key in keys])

    def set_many(
        self, keys: Any, datas: Any, *, named: bool = False, pool: str = "kv", timeout: Any = None
    ) -> list[bool]:
        self._enter("set_many", keys, timeout)
        for key, data in zip(keys, datas):
            self.pages.setdefault(self._key(key, pool), bytes(data))
        return self._cut([True] * len(keys))

    def _exists(self, keys: Any, suffixes: Any, pool: str, counted: bool | None) -> list[bool]:
        flags = [all(self._key(key + end, pool) in self.pages for end in suffixes or ("",)) for key in keys]
        if pool == "kv" if counted is None else counted:
            self.lookups.append((len(keys), (flags + [False]).index(False)))
        return flags

    def exists_many(
        self, keys: Any, *, suffixes: Any = (), pool: str = "kv", counted: bool | None = None, timeout: Any = None
    ) -> list[bool]:
        self._enter("exists_many", keys, timeout)
        return self._cut(self._exists(keys, suffixes, pool, counted))

    def exists_prefix(
        self, keys: Any, *, suffixes: Any = (), pool: str = "kv", counted: bool | None = None, timeout: Any = None
    ) -> int:
        self._enter("exists_prefix", keys, timeout)
        return (self._exists(keys, suffixes, pool, counted) + [False]).index(False)

    def count_lookup(self, asked: int, found: int) -> None:
        self.lookups.append((asked, found))

    def set_fingerprint(self, fingerprint: str | None) -> None:
        self.options["namespace"] = dataclasses.replace(self.options["namespace"], fingerprint=fingerprint)

    def clear(self, pools: Any = ()) -> bool:
        self._enter("clear", (), None)
        for key in [key for key in self.pages if key[0] == self.options["namespace"]]:
            del FakeClient.pages[key]
        return True

    def close(self) -> None:
        self.closed = True
