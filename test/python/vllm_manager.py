"""Drives a tier as vLLM's tiering manager does: a pool in host memory whose slots are used again at once, lookups, promotions, cascades.

All contents follow from keys: every chunk that is said to be loaded is compared byte by byte. A free slot has a pattern of its
own: what is written into it late is found when it is used again, or at the end.
"""

from __future__ import annotations

import array
import itertools
import mmap
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import vllm_support as support

TOKENS_PER_CHUNK = 16
_engine_ids = itertools.count(1)


@dataclass
class Chunk:
    slot: int
    #: Transfers that read it now.
    readers: int = 0
    is_ready: bool = False


class Primary:
    """The pool in host memory: who has which slot, the least recently used first."""

    def __init__(self, slots: int, slot_bytes: int, shared: bool, errors: list[str]) -> None:
        self.slot_bytes = slot_bytes
        self.errors = errors
        self.chunks: OrderedDict[bytes, Chunk] = OrderedDict()
        self.free = list(range(slots))
        self._uses = [0] * slots
        self.path = f"/dev/shm/vllm_offload_test-{os.getpid()}-{next(_engine_ids)}.mmap"
        size = slots * slot_bytes
        if shared:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            os.ftruncate(descriptor, size)
            self.memory = mmap.mmap(descriptor, size)
            os.close(descriptor)
        else:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = memoryview(self.memory).cast("B", (slots, slot_bytes))
        for slot in self.free:
            self.write(slot, self._pattern(slot))

    def write(self, slot: int, data: bytes) -> None:
        self.memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes] = data

    def read(self, slot: int) -> bytes:
        return self.memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def _pattern(self, slot: int) -> bytes:
        word = b"\xff\xfe" + slot.to_bytes(8, "little") + self._uses[slot].to_bytes(6, "little")
        return word * (self.slot_bytes // len(word))

    def take(self, key: bytes) -> int | None:
        """A slot for a chunk that is to be written; None: all are in use."""
        if not self.free:
            for other, chunk in self.chunks.items():
                if chunk.is_ready and chunk.readers == 0:
                    self.drop(other)
                    break
            else:
                return None
        slot = self.free.pop(0)
        self.check_free(slot)
        self.chunks[key] = Chunk(slot)
        return slot

    def drop(self, key: bytes) -> None:
        """Gives a slot back, which is used for something else in the same moment."""
        slot = self.chunks.pop(key).slot
        self._uses[slot] += 1
        self.write(slot, self._pattern(slot))
        self.free.append(slot)

    def check_free(self, slot: int) -> None:
        if self.read(slot) != self._pattern(slot):
            self.errors.append(f"slot {slot} was written to while it was free")

    def check_chunk(self, key: bytes) -> None:
        if self.read(self.chunks[key].slot) != support.content(key, self.slot_bytes):
            self.errors.append(f"the chunk {key.hex()} has other bytes")

    def written(self, keys: Iterable[bytes], success: bool) -> None:
        for key in keys:
            if success:
                self.chunks[key].is_ready = True
                self.check_chunk(key)
            else:
                self.drop(key)

    def check(self) -> None:
        for slot in self.free:
            self.check_free(slot)
        for key, chunk in self.chunks.items():
            if chunk.is_ready:
                self.check_chunk(key)

    def close(self) -> None:
        self.view.release()
        self.memory.close()
        if os.path.exists(self.path):
            os.unlink(self.path)


class Manager:
    """Primary pool and one tier. Answers of ``lookup``: "hit", "miss", "wait"."""

    def __init__(
        self,
        params: dict[str, Any],
        *,
        name: str = support.NEWER,
        slots: int = 64,
        slot_bytes: int = 4096,
        shared: bool = True,
        spec: Any = None,
    ) -> None:
        self.names = support.generation(name)
        self.errors: list[str] = []
        #: Seconds of the longest call of each of the tier's methods that must not wait.
        self.longest: dict[str, float] = {}
        self.longest_job = 0.0
        self.jobs = 0
        self.loaded = self.load_failures = self.stored = self.store_failures = 0
        self.primary = Primary(slots, slot_bytes, shared, self.errors)
        self._jobs: dict[int, tuple[list[bytes], bool, float]] = {}
        self._job_ids = itertools.count()
        self._pending: dict[str, tuple[list[bytes], list[int], Any]] = {}
        self._has_polled = False
        try:
            self.tier = self.names.make_tier(params, self.primary.view, spec or support.spec(name))
        except BaseException:
            self.primary.close()
            raise

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            seconds = time.perf_counter() - started
            self.longest[call.__name__] = max(self.longest.get(call.__name__, 0.0), seconds)

    def context(self, request: str) -> Any:
        context = self.names.base.ReqContext(request)
        hook = "on_new_request" if self.names.name == support.NEWER else "get_request_offloading_context"
        assert self.timed(getattr(self.tier, hook), context) is not None
        return context

    def finish(self, context: Any) -> None:
        hook = "on_request_finished" if self.names.name == support.NEWER else "request_finished"
        self.timed(getattr(self.tier, hook), context)

    def poll(self) -> None:
        """Takes the results of finished jobs, once a step."""
        if not self._has_polled:
            self._has_polled = True
            self.process()

    def process(self) -> None:
        finished = self.tier.get_finished_jobs if self.names.name == support.NEWER else self.tier.get_finished
        for result in self.timed(finished):
            if result.job_id not in self._jobs:
                self.errors.append(f"job {result.job_id} has a second result, or was never submitted")
                continue
            keys, is_load, started = self._jobs.pop(result.job_id)
            self.longest_job = max(self.longest_job, time.monotonic() - started)
            if is_load:
                good = keys if result.success else list(getattr(result, "successful_keys", None) or ())
                if not set(good) <= set(keys):
                    self.errors.append(f"job {result.job_id} has loaded keys that it did not have")
                bad = set(keys) - set(good)
                self.loaded, self.load_failures = self.loaded + len(good), self.load_failures + len(bad)
                self.primary.written(good, True)
                self.primary.written(bad, False)
            else:
                self.stored += result.success
                self.store_failures += not result.success
                for key in keys:
                    self.primary.chunks[key].readers -= 1

    def lookup(self, key: bytes, context: Any) -> str:
        self.poll()
        chunk = self.primary.chunks.get(key)
        if chunk is not None:
            return "hit" if chunk.is_ready else "wait"
        answer = self.timed(self.tier.lookup, key, context)
        if answer is self.names.retry:
            return "wait"
        if answer is not self.names.hit:
            assert answer is self.names.miss, answer
            return "miss"
        slot = self.primary.take(key)
        if slot is None:
            return "miss"
        keys, slots, _ = self._pending.setdefault(context.req_id, ([], [], context))
        keys.append(key)
        slots.append(slot)
        return "wait"

    def store(self, keys: Sequence[bytes], context: Any) -> int:
        """Chunks come from the GPU, and cascade to the tier. How many had room."""
        self.poll()
        placed = []
        for key in keys:
            slot = None if key in self.primary.chunks else self.primary.take(key)
            if slot is not None:
                self.primary.write(slot, support.content(key, self.primary.slot_bytes))
                chunk = self.primary.chunks[key]
                chunk.is_ready, chunk.readers = True, 1
                placed.append(key)
        if placed:
            slots = [self.primary.chunks[key].slot for key in placed]
            self._submit(self.tier.submit_store, placed, slots, False, context)
        return len(placed)

    def _submit(
        self, submit: Callable[[Any], None], keys: list[bytes], slots: list[int], is_load: bool, context: Any
    ) -> None:
        job_id = next(self._job_ids)
        self.jobs += 1
        self._jobs[job_id] = (keys, is_load, time.monotonic())
        # An array of numpy has `tolist` as well.
        self.timed(submit, self.names.job(job_id, keys, array.array("i", slots), is_load, context))

    def end_step(self) -> None:
        self.poll()
        self._has_polled = False
        for keys, slots, context in self._pending.values():
            self._submit(self.tier.submit_load, keys, slots, True, context)
        self._pending.clear()
        if self.names.name == support.NEWER:
            self.timed(self.tier.on_schedule_end, self.names.base.ScheduleEndContext((), ()))

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    def evict(self) -> None:
        """As when other chunks have taken the whole pool."""
        for key in [key for key, chunk in self.primary.chunks.items() if chunk.is_ready and chunk.readers == 0]:
            self.primary.drop(key)

    def reset_cache(self) -> None:
        """As for new weights: what is under way ends, then the pool is empty."""
        if self.names.name == support.NEWER:
            self.tier.drain_jobs()
        self.process()
        if self.names.name == support.NEWER and self._jobs:
            self.errors.append(f"{len(self._jobs)} jobs are under way after drain_jobs")
        for keys, _, _ in self._pending.values():
            self.primary.written(keys, False)
        self._pending.clear()
        self.evict()
        self._has_polled = False

    def shutdown(self) -> None:
        """In the order of vLLM: the tier lets go of the memory, which is then unmapped."""
        if not self.primary.view.nbytes:
            return
        self.tier.shutdown()
        self.tier.shutdown()
        self.process()
        if self._jobs:
            self.errors.append(f"{len(self._jobs)} jobs have no result after shutdown")
        self.primary.check()
        self.primary.close()


@dataclass
class Request:
    keys: list[bytes]
    context: Any
    hits: int = -1
    steps: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def is_done(self) -> bool:
        return self.hits >= 0


class Engine:
    """A scheduler: requests look up their prefix, wait for what is on its way, compute the rest, and store it."""

    def __init__(self, params: dict[str, Any], *, manager: type[Manager] = Manager, **options: Any) -> None:
        self.manager = manager(params, **options)
        self._numbers = itertools.count(1)
        self.requests: list[Request] = []
        self.is_open = True

    def begin(self, keys: list[bytes]) -> Request:
        request = Request(keys, self.manager.context(f"request-{next(self._numbers)}"))
        if self.manager.names.name == support.NEWER:
            for index, key in enumerate(keys):
                request.context.set_offload_key_position(key, (index + 1) * TOKENS_PER_CHUNK)
        self.requests.append(request)
        return request

    def step(self) -> None:
        """One step of all requests."""
        for request in self.requests:
            self._advance(request)
        self.manager.end_step()
        self.requests = [request for request in self.requests if not request.is_done]

    def _advance(self, request: Request) -> None:
        request.steps += 1
        hits, waits = 0, False
        for key in request.keys:
            answer = self.manager.lookup(key, request.context)
            if answer == "miss":
                break
            waits |= answer == "wait"
            hits += 1
        if waits:
            return
        for key in request.keys[:hits]:
            self.manager.primary.check_chunk(key)
        self.manager.store(request.keys[hits:], request.context)
        self.manager.finish(request.context)
        request.hits = hits

    def run(self, *prompts: list[bytes], patience: float = 60.0) -> list[int]:
        """Requests for these prompts, until all are done. How many leading chunks each has found."""
        requests = [self.begin(keys) for keys in prompts]
        self.settle(patience)
        return [request.hits for request in requests]

    def settle(self, patience: float = 60.0) -> None:
        """Steps until all requests and jobs have ended."""
        until = time.monotonic() + patience
        while self.requests or self.manager.has_jobs:
            if time.monotonic() > until:
                raise AssertionError(f"{len(self.requests)} requests wait in vain, jobs: {self.manager.has_jobs}")
            self.step()
            # As the GPU computes meanwhile.
            time.sleep(0.001)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.manager.shutdown()
