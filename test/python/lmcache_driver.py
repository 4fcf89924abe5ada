"""Random operations of several LMCache servers on the same pages, and a plain model of what each page may be."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from lmcache_support import PATIENCE_SECONDS, Engine, bits, content, key_of
from lmcache.v1.memory_management import TensorMemoryObj

#: Bytes of pages: none, one, odd, whole pages of memory, large.
SIZES = (0, 1, 63, 4096, 10_007, 65_536)
SLOT_BYTES = 65_536
SLOTS = 48
KEYS = 60
KEYS_AT_ONCE = 8
IN_FLIGHT = 6


class Page:
    """What the model knows of one key. Its content changes after a delete that was done, and then only."""

    def __init__(self, number: int) -> None:
        self.name, self.size = f"page-{number}", SIZES[number % len(SIZES)]
        self.key = key_of(self.name, cache_salt="" if number % 3 else "salt")
        self.version = 0
        #: Versions that may be read: stored, or not known not to be. A store that has failed may still take effect.
        self.possible: set[int] = set()
        #: Versions whose store has failed.
        self.doubtful: set[int] = set()
        self.is_busy = False

    def bytes(self, version: int) -> bytes:
        return content(f"{self.name} {version}", self.size)


class Driver:
    """Operations of random kinds, several under way at any time. A key has one operation at a time."""

    def __init__(self, engines: Sequence[Engine], seed: int) -> None:
        self.engines, self.random = engines, random.Random(seed)
        self.pages = [Page(number) for number in range(KEYS)]
        self.slots = {id(engine): list(range(SLOTS)) for engine in engines}
        # Each gives whether its operation has completed.
        self.under_way: list[Callable[[], bool]] = []
        self.counts = dict.fromkeys(("hits", "misses", "stored", "not_stored", "found", "deleted", "not_deleted"), 0)
        self.wrong: list[str] = []

    def play(self, operations: int, disturb: Callable[[int], None] = lambda number: None) -> None:
        """So many operations; ``disturb`` is called before each."""
        for number in range(operations):
            disturb(number)
            while len(self.under_way) >= IN_FLIGHT or not self._begin():
                self._collect()
        while self.under_way:
            self._collect()

    def _begin(self) -> bool:
        free = [page for page in self.pages if not page.is_busy]
        pages = self.random.sample(free, min(len(free), self.random.randint(1, KEYS_AT_ONCE)))
        engine = self.random.choice(self.engines)
        begin = self.random.choice((self._store, self._store, self._load, self._load, self._lookup, self._delete))
        if not pages or len(self.slots[id(engine)]) < len(pages):
            return False
        for page in pages:
            page.is_busy = True
        begin(engine, pages)
        return True

    def _collect(self) -> None:
        """Waits until at least one operation has completed."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = [has_completed for has_completed in self.under_way if not has_completed()]
            if len(left) < len(self.under_way):
                self.under_way = left
                return
            if time.monotonic() > end:
                raise AssertionError("no operation completes")
            time.sleep(0.0005)

    def _objects(self, engine: Engine, pages: list[Page]) -> tuple[list[int], list[TensorMemoryObj]]:
        slots = [self.slots[id(engine)].pop() for _ in pages]
        return slots, [engine.pool.allocate(slot * SLOT_BYTES, page.size) for slot, page in zip(slots, pages)]

    def _done(self, engine: Engine, pages: list[Page], slots: Sequence[int] = ()) -> bool:
        self.slots[id(engine)].extend(slots)
        self.random.shuffle(self.slots[id(engine)])
        for page in pages:
            page.is_busy = False
        return True

    def _store(self, engine: Engine, pages: list[Page]) -> None:
        slots, objects = self._objects(engine, pages)
        for page, obj in zip(pages, objects):
            obj.write(page.bytes(page.version))
            page.possible.add(page.version)
        task = engine.adapter.submit_store_task([page.key for page in pages], objects)

        def has_completed() -> bool:
            stored = engine.stored(task)
            if stored is None:
                return False
            self.counts["stored" if stored else "not_stored"] += len(pages)
            if not stored:
                for page in pages:
                    page.doubtful.add(page.version)
            return self._done(engine, pages, slots)

        self.under_way.append(has_completed)

    def _load(self, engine: Engine, pages: list[Page]) -> None:
        slots, objects = self._objects(engine, pages)
        for obj in objects:
            obj.write(b"\xff" * obj.get_size())
        task = engine.adapter.submit_load_task([page.key for page in pages], objects)

        def has_completed() -> bool:
            bitmap = engine.adapter.query_load_result(task)
            if bitmap is None:
                return False
            for page, obj, is_hit in zip(pages, objects, bits(bitmap, len(pages))):
                self.counts["hits" if is_hit else "misses"] += 1
                if is_hit and obj.read() not in [page.bytes(version) for version in page.possible]:
                    self.wrong.append(f"{page.name} is none of the versions {sorted(page.possible)}")
                # The slot is used again at once: nobody writes into it any more.
                obj.write(b"\xff" * obj.get_size())
            return self._done(engine, pages, slots)

        self.under_way.append(has_completed)

    def _lookup(self, engine: Engine, pages: list[Page]) -> None:
        task = engine.adapter.submit_lookup_and_lock_task([page.key for page in pages])

        def has_completed() -> bool:
            bitmap = engine.adapter.query_lookup_and_lock_result(task)
            if bitmap is None:
                return False
            self.counts["found"] += bitmap.popcount()
            return self._done(engine, pages)

        self.under_way.append(has_completed)

    def _delete(self, engine: Engine, pages: list[Page]) -> None:
        # LMCache waits for deletes, and so does this.
        deleted: Any = engine.adapter.delete([page.key for page in pages])
        if deleted is None:
            raise AssertionError("a delete has not completed in 30 s")
        for page, is_deleted in zip(pages, deleted):
            self.counts["deleted" if is_deleted else "not_deleted"] += 1
            if is_deleted:
                page.possible = set(page.doubtful)
                page.version += 1
        self._done(engine, pages)
