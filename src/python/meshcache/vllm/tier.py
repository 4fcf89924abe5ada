"""The tier that vLLM's tiering manager drives."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from meshcache import Client
from meshcache._engines.complaints import Complaints
from meshcache.settings import DEFAULT_STAGING_BYTES

from .framework import (
    CONSTRUCTOR_PARAMETERS,
    SecondaryTierManager,
    job_result,
    logger,
    lookup_result,
    request_context,
)
from .identity import namespace
from .jobs import Job, Jobs, slots_of
from .lookups import Asker, Lookups
from .pool import PrimaryPool
from .settings import Settings

#: How much longer than a job the threads may last at the end.
_GRACE_SECONDS = 2.0


class MeshCacheTier(SecondaryTierManager):  # type: ignore[misc]
    """Chunks in meshcache, moved straight between vLLM's pool in host memory and the node.

    The constructor raises ``ValueError`` for what cannot work, and ``meshcache.NotAvailable`` when a node is required and
    not there; both end the engine's start. No other method raises, and only ``drain_jobs`` and ``shutdown`` wait: threads
    talk to the node. As vLLM does, callers call one method at a time.
    """

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, **params: Any) -> None:
        """vLLM's arguments, and the parameters of the tier's entry in ``secondary_tiers``."""
        passed_on = {name: value for name, value in params.items() if name in CONSTRUCTOR_PARAMETERS}
        settings = Settings.parse({name: value for name, value in params.items() if name not in passed_on})
        super().__init__(
            offloading_spec=offloading_spec, primary_kv_view=primary_kv_view, tier_type=tier_type, **passed_on
        )
        self._settings = settings
        self._complaints = Complaints(logger)
        self._pool = PrimaryPool(primary_kv_view)
        space = replace(
            namespace(offloading_spec, self._pool.slot_bytes, settings.tag), fingerprint=settings.fingerprint
        )
        if "PYTHONHASHSEED" not in os.environ:
            logger.info(
                "PYTHONHASHSEED is not set: where vLLM draws a seed for its keys, no other engine finds the chunks"
            )
        self._client = Client(
            settings.client_socket,
            namespace=space,
            name="vllm",
            mode=settings.mode,
            timeout=settings.timeout,
            required=settings.required,
            end_frozen_node=settings.end_frozen_node,
            fence_timeout=settings.fence_seconds,
            staging_bytes=max(DEFAULT_STAGING_BYTES, 2 * self._pool.slot_bytes),
            logger=logger,
        )
        try:
            self._region = self._pool.register(self._client, primary_kv_view)
        except BaseException:
            self._client.close()
            raise
        self._closed = False
        self._lookups = Lookups(settings.lookup_seconds)
        self._asker = Asker(self._lookups, self._exists)
        self._jobs = Jobs(self._load, self._store, settings.fence_seconds)
        logger.info(
            "tier %s: %d slots of %d bytes, chunks go %s, namespace %s",
            tier_type,
            self._pool.count,
            self._pool.slot_bytes,
            self._region.mode,
            space,
        )

    # What the scheduler calls

    def lookup(self, key: bytes, req_context: Any = None) -> Any:
        """Whether a chunk is there, from what the node has answered lately; "ask again" while it is being asked."""
        return lookup_result(False if self._closed else self._lookups.find(key))

    def submit_load(self, job_metadata: Any) -> None:
        """Begins to read chunks into slots."""
        self._submit(job_metadata, is_load=True)

    def submit_store(self, job_metadata: Any) -> None:
        """Begins to write chunks from slots."""
        self._submit(job_metadata, is_load=False)

    def get_finished_jobs(self) -> Iterable[Any]:
        """The results of jobs that have ended since the last call, one for each."""
        results = [self._result(job) for job in self._jobs.finished()]
        self._flush()
        return results

    def get_finished(self) -> Iterable[Any]:
        """What older versions call ``get_finished_jobs``."""
        return self.get_finished_jobs()

    def on_schedule_end(self, context: Any = None) -> None:
        """The end of a step: what its lookups have asked goes to the node."""
        self._flush()

    def has_pending_work(self) -> bool:
        """Whether jobs are under way, or have results that were not fetched."""
        return len(self._jobs) > 0

    def drain_jobs(self) -> None:
        """Waits until nothing touches the primary pool; the results are fetched afterwards. Jobs are not cut short."""
        self._jobs.drain()

    def on_new_request(self, req_context: Any = None) -> Any:
        """A request begins."""
        return request_context()

    def get_request_offloading_context(self, req_context: Any = None) -> Any:
        """What older versions call ``on_new_request``."""
        return request_context()

    def on_request_finished(self, req_context: Any = None) -> None:
        """A request has ended. Nothing is kept by request."""

    def request_finished(self, req_context: Any = None) -> None:
        """What older versions call ``on_request_finished``."""

    def touch(self, keys: Collection[bytes], req_context: Any = None) -> None:
        """Chunks were used in the primary pool. The node learns of uses by reads."""

    def shutdown(self) -> None:
        """Leaves the node, and lets go of the primary pool. Jobs under way end as failed ones; everything is a miss afterwards."""
        if self._closed:
            return
        self._closed = True
        self._asker.end()
        self._jobs.end()
        self._client.close()
        seconds = self._settings.timeout + _GRACE_SECONDS
        if not self._jobs.join(seconds):
            logger.error("a frozen node has not let go of the primary pool")
        self._asker.join(seconds)

    # What the threads call

    def _exists(self, keys: Sequence[bytes], seconds: float) -> Sequence[bool]:
        return self._client.exists_many(keys, timeout=seconds) if self._client.is_connected else [False] * len(keys)

    def _load(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        if not self._client.is_connected:
            return [False] * len(keys)
        return self._client.get_into(keys, self._pool.pieces(self._region, slots), timeout=seconds)

    def _store(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        if not self._client.is_connected:
            return [False] * len(keys)
        pieces = self._pool.pieces(self._region, slots)
        flags = self._client.set_from(keys, pieces, named=False, timeout=seconds)
        self._lookups.stored(key for key, flag in zip(keys, flags) if flag)
        refused = len(flags) - sum(flags)
        if refused > 0 and self._client.is_connected:
            self._complaints.log(
                "not stored",
                f"{refused} of {len(flags)} chunks of {self._pool.slot_bytes} bytes were not stored: the node has no room for "
                'a chunk of this size, or was too slow; "meshcache status" shows its pool',
            )
        return flags

    # Parts of the scheduler's calls

    def _submit(self, transfer: Any, *, is_load: bool) -> None:
        deadline = time.monotonic() + self._settings.timeout
        job = Job(transfer.job_id, is_load, list(transfer.keys), slots_of(transfer), deadline)
        if self._closed:
            self._jobs.refuse(job)
        else:
            self._jobs.submit(job)

    def _result(self, job: Job) -> Any:
        if job.is_load and not job.success:
            self._lookups.failed(job.failed_keys)
        is_part = job.is_load and not job.success and len(job.moved_keys) > 0
        return job_result(
            job.job_id,
            job.success,
            successful_keys=job.moved_keys if is_part else None,
            size_bytes=len(job.moved_keys) * self._pool.slot_bytes,
            seconds=job.seconds,
        )

    def _flush(self) -> None:
        if not self._closed:
            self._asker.ask(self._lookups.questions())
