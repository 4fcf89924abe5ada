"""The connector that LMCache's native plug-in adapter loads."""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from .. import Client, ClosedError, Namespace
from .._engines.complaints import Complaints
from .._engines.silence import Silence
from .._engines.weights import Weights
from .completions import Completion, Completions
from .epochs import Epochs
from .framework import logger
from .identity import WHERE_SET, facts_of
from .jobs import LANES, Job, Jobs, Lane, Operation
from .pages import PageKeys
from .server import Registration
from .settings import Settings
from .transfer import Transfer

_alive: Final[weakref.WeakSet[MeshCacheConnector]] = weakref.WeakSet()


def set_fingerprint(fingerprint: str | None) -> bool:
    """Tells all plug-ins of this process the weights of their engines; None: the model's name alone identifies them.

    Clear LMCache's own memory first, as it has pages of the former weights. Returns whether any plug-in had others.
    """
    return any([connector.set_fingerprint(fingerprint) for connector in list(_alive)])


class MeshCacheConnector:
    """Pages of LMCache in meshcache, moved directly between its L1 pool and the node.

    The constructor raises ``ValueError`` for wrong parameters, and ``NotAvailable`` if a required node is absent. All
    other methods may be called from several threads at once, and never raise. A submit returns immediately with the ID
    of a future, which completes exactly once, within the timeout, and has one result per key. After that, nothing
    touches its memory. The completion may be late by the time that the kernel needs to kill a frozen node.

    LMCache's keys contain model, rank, group, content and salt. Other differences between pages are in the namespace
    (``identity.py``) and, per model, in a prefix of the keys (``pages.py``).
    """

    def __init__(self, **adapter_params: Any) -> None:
        self._settings = settings = Settings.parse(adapter_params)
        self._complaints = Complaints(logger)
        self._completions = Completions()
        self._jobs = Jobs(settings.max_pending)
        self._ids = itertools.count(1)
        self._closing = threading.Lock()
        self._is_closed = False
        facts, server = facts_of(settings)
        self._weights = Weights(settings.fingerprint, are_fixed=settings.on_reset == "same_weights")
        self._client = Client(
            settings.client_socket,
            token_file=settings.token_file,
            namespace=Namespace(
                layout=facts.layout, tag=settings.tag, fingerprint=self._weights.fingerprint, computed=True
            ),
            name="lmcache",
            mode=settings.mode,
            timeout=settings.timeout,
            required=settings.required,
            end_frozen_node=settings.end_frozen_node,
            fence_timeout=settings.fence_seconds,
            staging_bytes=settings.staging_bytes,
            logger=logger,
            on_fingerprint=self._follow,
        )
        facts.warn(logger, WHERE_SET)
        self._epochs = Epochs(self._weights, self._client.set_fingerprint)
        self._silence = Silence(self._answers_again)
        self._pages = PageKeys(settings, server, logger)
        self._transfer = Transfer(self._client)
        if server is not None:
            server.add(self)
        _alive.add(self)
        self._threads: list[threading.Thread] = []
        try:
            self._start(self._watch, "overdue")
            for lane in LANES * settings.workers:
                self._start(functools.partial(self._work, lane), lane)
        except BaseException:
            self.close()
            raise

    def event_fd(self) -> int:
        """An eventfd that is readable when futures have completed. It stays open while this object lives."""
        return self._completions.descriptor

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Reads pages into memory. A result is true if the memory holds exactly the page; else it is undefined."""
        return self._submit("get", keys, memoryviews)

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Stores pages. The future succeeds if all of them are stored; its results say which ones are."""
        return self._submit("set", keys, memoryviews)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Asks which pages exist."""
        return self._submit("exists", keys, None)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Removes pages. A result is true if no node can read the page any more."""
        return self._submit("delete", keys, None)

    def drain_completions(self) -> list[Completion]:
        """The futures completed since the last call: (id, ok, error, one result per key). Clears the eventfd."""
        return self._completions.take()

    def close(self) -> None:
        """Closes the plug-in. When this returns, all futures have completed, and no more memory is touched."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            for job in self._jobs.close():
                self._fail(job, "the plug-in was closed")
            self._client.close()
            self._silence.close()
            for thread in self._threads:
                thread.join()

    def set_fingerprint(self, fingerprint: str | None) -> bool:
        """Tells which weights the engines have now; None: the model's name alone identifies them. Clear LMCache's own
        memory first. Returns whether they had others before; if so, earlier pages are no longer shared, and operations
        in progress are misses. May wait as long as an operation lasts."""
        try:
            has_changed = self._epochs.told(fingerprint)
        except ClosedError:
            return False
        if has_changed:
            logger.info(
                "the weights have the fingerprint %s: from now on, only pages of these weights are read and stored",
                self._weights.fingerprint,
            )
        return has_changed

    def _follow(self, fingerprint: str | None) -> None:
        self.set_fingerprint(fingerprint)

    def registered(self, registration: Registration) -> None:
        """Does nothing: registrations matter only to the keys of pages."""

    def cleared(self) -> None:
        """Called when LMCache's memory was cleared. The reason is unknown, so the weights may have changed."""
        try:
            has_changed = not self._is_closed and self._epochs.reset()
        except ClosedError:
            return
        if has_changed:
            logger.warning(
                "LMCache's memory was cleared, and the reason is not known: nothing from before is shared until this server is told the version of "
                'its weights; run "meshcache fingerprint lmcache VERSION" on this host, call meshcache.lmcache.set_fingerprint in this process, or '
                'restart the server; if the weights never change while it runs, set "on_reset": "same_weights" in adapter_params'
            )

    def stats(self) -> dict[str, Any]:
        """The client's counters, and the number of operations waiting for a thread."""
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
        seconds = settings.lookup_seconds if operation == "exists" else settings.timeout - settings.fence_seconds
        try:
            job = Job(future_id, operation, keys, views, monotonic() + seconds, self._epochs.now)
            if self._silence.is_on and not self._is_closed:
                self._finish(job, [False] * len(job.keys))
                return future_id
            refusal = self._jobs.add(job) if job.keys else ""
        except Exception as error:
            refusal = str(error) or type(error).__name__
        if refusal and not self._is_closed:
            self._complaints.log(f"refused {operation}", f"{operation} was refused: {refusal}")
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
            if error:
                self._complete(job, False, error, results)
            else:
                self._finish(job, results)

    def _results(self, job: Job) -> tuple[list[bool], str]:
        """Results of a job, and an error text. Exceptions end here, as their frames would hold the caller's memory."""
        begun = monotonic()
        results = [False] * len(job.keys)
        try:
            if not self._silence.is_on and self._epochs.begin(job.epoch):
                try:
                    results = self._perform(job)
                finally:
                    if not self._epochs.end(job.epoch):
                        results = [False] * len(job.keys)
        except BaseException as error:
            # Every exception is caught, as a future that never completes would block its request in LMCache forever.
            if not self._is_closed:
                self._complaints.log(f"{job.operation}: {type(error).__name__}", f"{job.operation} failed: {error}")
            return [False] * len(job.keys), str(error) or type(error).__name__
        if job.left() == 0 and monotonic() - begun >= self._settings.lookup_seconds / 2:
            self._is_late(job)
        return results, ""

    def _is_late(self, job: Job) -> None:
        """Handles an operation that timed out: the node is pinged, and everything is a miss until it answers."""
        if self._is_closed:
            return
        self._complaints.log(
            f"late {job.operation}",
            f"the node has not answered in time ({job.operation} of {len(job.keys)} pages): until it answers, lookups and loads are "
            "misses, and nothing is stored",
        )
        self._silence.begin(self._client)

    def _answers_again(self) -> None:
        self._complaints.log("answers", "the node answers again")

    def _finish(self, job: Job, results: list[bool]) -> None:
        """Completes a job. Logs pages that were not stored, because LMCache does not show errors of futures."""
        missing = results.count(False) if job.operation == "set" else 0
        if missing == 0:
            self._complete(job, True, "", results)
            return
        reason = f"{missing} of {len(results)} pages were not stored"
        if self._client.is_connected and not self._is_closed and not self._silence.is_on:
            largest = max((memory.length for memory in job.memories), default=0)
            self._complaints.log(
                "not stored",
                f"{reason}: the node has no room for pages of up to {largest} bytes, or was too slow; "
                '"meshcache status" shows its pool',
            )
        self._complete(job, False, reason, results)

    def _watch(self) -> None:
        while overdue := self._jobs.take_overdue():
            self._complaints.log(
                "overdue",
                f"{len(overdue)} operations were not begun in time: there are too many, or the node is slow; "
                'with more "workers" in adapter_params, more of them run at once',
            )
            for job in overdue:
                self._fail(job, "not begun in time")

    def _perform(self, job: Job) -> list[bool]:
        """Performs a job. Raises what the client raises for wrong arguments, such as keys that are too long."""
        names = self._names(job)
        if job.operation in ("get", "set"):
            results = self._transfer.move(job, names)
        else:
            known = [name for name in names if name is not None]
            if job.operation == "exists":
                found = self._client.exists_many(known, timeout=job.left())
            else:
                found = self._client.delete_many(known, timeout=job.left())
            if len(found) != len(known):
                raise AssertionError(f"{len(known)} keys have {len(found)} results")
            flags = iter(found)
            results = [name is not None and next(flags) for name in names]
        return results

    def _names(self, job: Job) -> list[str | None]:
        """The keys of a job's pages in the cluster; None for a page that must be a miss."""
        lengths: list[int | None] = [memory.length for memory in job.memories]
        are_told = self._epochs.fingerprint is not None
        return [
            self._pages.key_of(key, length=length, are_weights_told=are_told)
            for key, length in zip(job.keys, lengths or [None] * len(job.keys))
        ]

    def _fail(self, job: Job, error: str) -> None:
        self._complete(job, False, error, [False] * len(job.keys))

    def _complete(self, job: Job, ok: bool, error: str, results: list[bool]) -> None:
        # The memory is released first, because it belongs to the caller from the completion on.
        job.memories = []
        self._completions.add((job.future_id, ok, f"{job.operation}: {error}" if error else "", results))


def _count(keys: Any) -> int:
    """Number of results of a future whose keys may be of any type."""
    try:
        return len(keys)
    except Exception:
        return 0
