"""Operations waiting for a thread, in bounded queues with deadlines."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, Literal

from .._memory.memory import Memory

Operation = Literal["exists", "get", "set", "delete"]
Lane = Literal["lookup", "load", "store"]

#: Each lane has threads of its own, so that large stores do not delay lookups and loads.
LANE_OF: Final[dict[Operation, Lane]] = {"exists": "lookup", "get": "load", "set": "store", "delete": "store"}
LANES: Final[tuple[Lane, ...]] = ("lookup", "load", "store")


class Job:
    """The work of one future. It holds the memory of its views until it has completed."""

    __slots__ = ("deadline", "epoch", "future_id", "keys", "memories", "operation")

    def __init__(
        self,
        future_id: int,
        operation: Operation,
        keys: Sequence[str],
        views: Sequence[Any] | None,
        deadline: float,
        epoch: int = 0,
    ) -> None:
        """``epoch`` is that of its pages' weights. Raises TypeError and ValueError for obviously wrong arguments."""
        if isinstance(keys, (str, bytes)):
            raise TypeError(f"keys must be a list of strings, got a single {type(keys).__name__}")
        self.future_id = future_id
        self.operation: Operation = operation
        self.keys = list(keys)
        self.deadline = deadline
        self.epoch = epoch
        self.memories: list[Memory] = []
        for key in self.keys:
            if not isinstance(key, str):
                raise TypeError(f"keys must be strings, got {key!r}")
        if operation in ("get", "set"):
            self.memories = [Memory(view) for view in (() if views is None else views)]
            if len(self.memories) != len(self.keys):
                raise ValueError(f"{len(self.keys)} keys need as many memoryviews, got {len(self.memories)}")
        if operation == "get" and any(memory.readonly for memory in self.memories):
            raise ValueError("a memoryview is read-only: pages cannot be read into it")

    def left(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self.deadline - monotonic())


class Jobs:
    """Queues of jobs. Each job leaves in exactly one way: to a thread, as overdue, or at the end."""

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        self._lock = threading.Lock()
        self._queues: dict[Lane, deque[Job]] = {lane: deque() for lane in LANES}
        self._ready = {lane: threading.Condition(self._lock) for lane in LANES}
        self._queued = threading.Condition(self._lock)
        #: When the thread that watches deadlines checks next, unless it is woken.
        self._looks_at = 0.0
        self._is_closed = False

    def add(self, job: Job) -> str:
        """Queues a job. Returns why it was not queued, or an empty string."""
        lane = LANE_OF[job.operation]
        with self._lock:
            if self._is_closed:
                return "the plug-in is closed"
            if self._count() >= self._max_pending:
                return f"{self._max_pending} operations are waiting already, and max_pending allows no more"
            self._queues[lane].append(job)
            self._ready[lane].notify()
            if job.deadline < self._looks_at:
                self._queued.notify()
        return ""

    def take(self, lane: Lane) -> Job | None:
        """Waits for the next job of a lane; None if closed."""
        queue = self._queues[lane]
        with self._lock:
            while not queue and not self._is_closed:
                self._ready[lane].wait()
            return queue.popleft() if queue else None

    def take_overdue(self) -> list[Job]:
        """Waits for jobs whose deadline passes in the queue; an empty list if closed.

        Only one thread may call it. Deadlines are in the order of jobs, so only the first job of each queue is checked.
        """
        with self._lock:
            while not self._is_closed:
                now = monotonic()
                overdue: list[Job] = []
                for queue in self._queues.values():
                    while queue and queue[0].deadline <= now:
                        overdue.append(queue.popleft())
                if overdue:
                    return overdue
                self._looks_at = min((queue[0].deadline for queue in self._queues.values() if queue), default=math.inf)
                self._queued.wait(None if self._looks_at == math.inf else self._looks_at - now)
        return []

    def close(self) -> list[Job]:
        """Stops taking jobs. Returns those that no thread has begun."""
        with self._lock:
            self._is_closed = True
            left = [job for queue in self._queues.values() for job in queue]
            for lane, queue in self._queues.items():
                queue.clear()
                self._ready[lane].notify_all()
            self._queued.notify_all()
        return left

    @property
    def pending(self) -> int:
        """Number of jobs waiting for a thread."""
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return sum(map(len, self._queues.values()))
