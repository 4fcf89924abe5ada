"""The connector that LMCache's native plug-in adapter loads."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from .. import Client, Namespace
from .._engines.complaints import Complaints
from .completions import Completion, Completions
from .jobs import LANES, Job, Jobs, Lane, Operation
from .settings import Settings
from .transfer import Transfer

logger: Final = logging.getLogger("meshcache.lmcache")


class MeshCacheConnector:
    """Pages of LMCache in meshcache, moved straight between its L1 pool and the node.

    The constructor raises ``ValueError`` for wrong parameters, and ``NotAvailable`` when a node is required and there is none.
    All other methods may be called from several threads at once, and never raise. A submit returns at once with the id of
    a future, which completes exactly once, within the timeout, and has one result a key. When it has completed, nothing
    touches its memory any more; it may come later by the time that the kernel needs to end a frozen node.

    Keys of LMCache name model, rank, group, content and salt: one namespace is enough for all engines.
    """

    def __init__(self, **adapter_params: Any) -> None:
        self._settings = settings = Settings.parse(adapter_params)
        self._complaints = Complaints(logger)
        self._completions = Completions()
        self._jobs = Jobs(settings.max_pending)
        self._ids = itertools.count(1)
        self._closing = threading.Lock()
        self._is_closed = False
        self._client = Client(
            settings.client_socket,
            namespace=Namespace(layout="lmcache", tag=settings.tag, fingerprint=settings.fingerprint, computed=True),
            name="lmcache",
            mode=settings.mode,
            timeout=settings.timeout,
            required=settings.required,
            end_frozen_node=settings.end_frozen_node,
            fence_timeout=settings.fence_seconds,
            staging_bytes=settings.staging_bytes,
            logger=logger,
        )
        self._transfer = Transfer(self._client)
        self._threads: list[threading.Thread] = []
        try:
            self._start(self._watch, "overdue")
            for lane in LANES * settings.workers:
                self._start(functools.partial(self._work, lane), lane)
        except BaseException:
            self.close()
            raise

    def event_fd(self) -> int:
        """An eventfd that can be read when futures have completed. It stays open for as long as this object lives."""
        return self._completions.descriptor

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Reads pages into memory. A result is true when the memory has exactly the page; else the memory is undefined."""
        return self._submit("get", keys, memoryviews)

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Stores pages. The future succeeds when all of them are stored; its results say which ones are."""
        return self._submit("set", keys, memoryviews)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Asks which pages are there."""
        return self._submit("exists", keys, None)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Removes pages. A result is true when no node can read the page any more."""
        return self._submit("delete", keys, None)

    def drain_completions(self) -> list[Completion]:
        """The futures that have completed since the last call: (id, ok, error, one result a key). Empties the eventfd."""
        return self._completions.take()

    def close(self) -> None:
        """Ends it. When this returns, all futures have completed, and no memory of the caller is touched any more."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            for job in self._jobs.close():
                self._fail(job, "the plug-in was closed")
            self._client.close()
            for thread in self._threads:
                thread.join()

    def stats(self) -> dict[str, Any]:
        """What the client has counted, and how many operations wait for a thread."""
        return {**self._client.stats(), "pending": self._jobs.pending}

    def _start(self, run: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=run, name=f"meshcache-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _submit(self, operation: Operation, keys: Sequence[str], views: Sequence[Any] | None) -> int:
        future_id = next(self._ids)
        job: Job | None = None
        refusal = ""
        settings = self._settings
        try:
            job = Job(future_id, operation, keys, views, monotonic() + settings.timeout - settings.fence_seconds)
            refusal = self._jobs.add(job) if job.keys else ""
        except Exception as error:
            refusal = str(error) or type(error).__name__
        if refusal and not self._is_closed:
            self._complaints.log(f"refused {operation}", f"{operation} is not done: {refusal}")
        if job is None:
            self._completions.add((future_id, False, f"{operation}: {refusal}", [False] * _count(keys)))
        elif refusal:
            self._fail(job, refusal)
        elif not job.keys:
            self._complete(job, True, "", [])
        return future_id

    def _work(self, lane: Lane) -> None:
        while (job := self._jobs.take(lane)) is not None:
            results, error = self._results(job)
            self._complete(job, error == "", error, results)

    def _results(self, job: Job) -> tuple[list[bool], str]:
        """The results of a job, and what was wrong. With the exception, its frames are gone, which hold memory of the caller."""
        try:
            results = self._perform(job)
        except BaseException as error:
            # Whatever it is: a future that never completes blocks its request in LMCache for ever.
            if not self._is_closed:
                self._complaints.log(f"{job.operation}: {type(error).__name__}", f"{job.operation} failed: {error}")
            return [False] * len(job.keys), str(error) or type(error).__name__
        missing = results.count(False) if job.operation == "set" else 0
        if missing == 0:
            return results, ""
        reason = f"{missing} of {len(results)} pages were not stored"
        if self._client.is_connected and not self._is_closed:
            # LMCache shows no error of a future.
            largest = max((memory.length for memory in job.memories), default=0)
            self._complaints.log(
                "not stored",
                f"{reason}: the node has no room for pages of up to {largest} bytes, or was too slow; "
                '"meshcache status" shows its pool',
            )
        return results, reason

    def _watch(self) -> None:
        while overdue := self._jobs.take_overdue():
            self._complaints.log(
                "overdue", f"operations are too many or too slow: {len(overdue)} were not begun in time"
            )
            for job in overdue:
                self._fail(job, "not begun in time")

    def _perform(self, job: Job) -> list[bool]:
        """The results of a job. Raises what the client raises for wrong arguments, such as keys that are too long."""
        if job.operation == "exists":
            results = self._client.exists_many(job.keys, timeout=job.left())
        elif job.operation == "delete":
            results = self._client.delete_many(job.keys, timeout=job.left())
        else:
            results = self._transfer.move(job)
        if len(results) != len(job.keys):
            raise AssertionError(f"{len(job.keys)} keys have {len(results)} results")
        return results

    def _fail(self, job: Job, error: str) -> None:
        self._complete(job, False, error, [False] * len(job.keys))

    def _complete(self, job: Job, ok: bool, error: str, results: list[bool]) -> None:
        # The memory is let go first: it is the caller's from the completion on.
        job.memories = []
        self._completions.add((job.future_id, ok, f"{job.operation}: {error}" if error else "", results))


def _count(keys: Any) -> int:
    """How many results a future has whose keys may be anything."""
    try:
        return len(keys)
    except Exception:
        return 0
