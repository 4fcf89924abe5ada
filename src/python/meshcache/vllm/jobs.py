"""The engine's jobs, done by threads. Each job gets exactly one result, by its deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshcache import ClosedError
from meshcache._engines.complaints import Complaints

from .epochs import Epochs
from .framework import logger

#: Threads that read chunks for waiting requests, and that write chunks. They compete with the scheduler for the GIL.
_LOAD_THREADS: Final = 2
_STORE_THREADS: Final = 1
#: Most chunks per call of the client. Preparing a call takes about 0.2 ms, in which the scheduler may have to wait.
_STEP_CHUNKS: Final = 64

#: Pause of a thread between two calls. Without it, calls that fail at once, e.g. without a node, would block others.
_REST_SECONDS: Final = 0.0001

#: Moves chunks between pool and node: takes keys, slots and a timeout in seconds, and returns one result per key.
Move = Callable[[Sequence[bytes], Sequence[int], float], Sequence[bool]]


@dataclass
class Job:
    """Chunks to move. After a job has finished, nothing touches its slots any more."""

    job_id: int
    is_load: bool
    keys: list[bytes]
    slots: list[int]
    #: When its result is due, by the monotonic clock.
    deadline: float
    #: The epoch in which it was submitted. It fails in any other one.
    epoch: int = 0
    submitted_at: float = field(default_factory=time.monotonic)
    #: Whether each of the first chunks was moved. Chunks without a flag were not.
    flags: list[bool] = field(default_factory=list)
    #: After the end of the job: keys with a chunk that was not moved, and all other keys, without duplicates.
    failed_keys: Collection[bytes] = ()
    moved_keys: Sequence[bytes] = ()
    seconds: float = 0.0

    @property
    def success(self) -> bool:
        """Whether all chunks were moved."""
        return not self.failed_keys

    def end(self) -> None:
        """Computes the results of the job."""
        self.seconds = time.monotonic() - self.submitted_at
        if len(self.flags) == len(self.keys) and all(self.flags):
            self.moved_keys = self.keys
            return
        flags = self.flags + [False] * (len(self.keys) - len(self.flags))
        failed = {key for key, flag in zip(self.keys, flags) if not flag}
        self.failed_keys = failed
        self.moved_keys = tuple(key for key in dict.fromkeys(self.keys) if key not in failed)


class Jobs:
    """Takes jobs and returns finished ones without waiting for a thread. Only ``drain`` and ``join`` wait.

    Only the scheduler uses the table of jobs. Threads take jobs from one queue and return them through another.
    """

    def __init__(self, load: Move, store: Move, fence_seconds: float, epochs: Epochs) -> None:
        """``fence_seconds`` is the time by which a call of ``load`` or ``store`` may exceed its timeout."""
        self._fence_seconds = fence_seconds
        self._epochs = epochs
        self._open: dict[int, Job] = {}
        self._done: list[Job] = []
        self._finished: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._loads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stores: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._complaints = Complaints(logger)
        plan = [("load", load, self._loads)] * _LOAD_THREADS + [("store", store, self._stores)] * _STORE_THREADS
        self._threads = [
            threading.Thread(target=self._run, args=(move, jobs), name=f"meshcache-{name}-{number}", daemon=True)
            for number, (name, move, jobs) in enumerate(plan)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        return len(self._open) + len(self._done)

    def submit(self, job: Job) -> None:
        """Queues a job."""
        self._open[job.job_id] = job
        (self._loads if job.is_load else self._stores).put(job)

    def refuse(self, job: Job) -> None:
        """Fails a job without starting it."""
        job.end()
        self._open[job.job_id] = job
        self._finished.put(job)

    def finished(self) -> list[Job]:
        """Jobs that have ended since the last call."""
        while True:
            try:
                self._take(self._finished.get_nowait())
            except queue.Empty:
                break
        done, self._done = self._done, []
        return done

    def drain(self) -> None:
        """Waits until every job has ended; ``finished`` returns them afterwards."""
        while self._open:
            self._take(self._finished.get())

    def end(self) -> None:
        """Lets the threads end after all queued jobs."""
        for _ in range(_LOAD_THREADS):
            self._loads.put(None)
        for _ in range(_STORE_THREADS):
            self._stores.put(None)

    def join(self, seconds: float) -> bool:
        """Waits for the threads. Returns whether all of them have ended."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _take(self, job: Job) -> None:
        if self._open.pop(job.job_id, None) is not None:
            self._done.append(job)

    def _run(self, move: Move, jobs: queue.SimpleQueue[Job | None]) -> None:
        while True:
            job = jobs.get()
            if job is None:
                return
            try:
                self._move(move, job)
            except ClosedError:
                # The tier was shut down meanwhile.
                pass
            except Exception as error:
                what = "load" if job.is_load else "store"
                self._complaints.log(f"{what} {type(error).__name__}", f"a {what} of chunks has failed: {error}", error)
            finally:
                job.end()
                self._finished.put(job)
            time.sleep(_REST_SECONDS)

    def _move(self, move: Move, job: Job) -> None:
        if len(job.keys) != len(job.slots):
            raise ValueError(f"{len(job.keys)} keys need as many slots, got {len(job.slots)}")
        for low in range(0, len(job.keys), _STEP_CHUNKS):
            if low > 0:
                time.sleep(_REST_SECONDS)
            left = job.deadline - self._fence_seconds - time.monotonic()
            if left <= 0:
                return
            if not self._epochs.enter(job.epoch):
                return
            keys = job.keys[low : low + _STEP_CHUNKS]
            try:
                flags = list(move(keys, job.slots[low : low + _STEP_CHUNKS], left))
            finally:
                self._epochs.leave()
            if len(flags) != len(keys):
                raise ValueError(f"{len(keys)} keys have {len(flags)} results")
            job.flags += flags


def slots_of(transfer: Any) -> list[int]:
    """The slots of a job in the primary pool: its ``chunk_ids``, or ``block_ids`` in older versions, as a sequence or
    an array. If it has neither, the result is empty, and the job fails."""
    slots = getattr(transfer, "chunk_ids", None)
    if slots is None:
        slots = getattr(transfer, "block_ids", None)
    as_list = getattr(slots, "tolist", None)
    return list(as_list() if callable(as_list) else slots or ())
