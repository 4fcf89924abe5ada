"""The tier that vLLM's tiering manager drives."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from meshcache import Namespace
from meshcache._engines.advice import Advice
from meshcache._engines.complaints import Complaints
from meshcache._engines.hints import SessionHint

from . import hooks
from .epochs import Epochs
from .framework import (
    CONSTRUCTOR_PARAMETERS,
    HIT_SOURCE,
    IS_INSTALLED,
    STORAGE,
    SecondaryTierManager,
    job_result,
    locality,
    logger,
    lookup_result,
    request_context,
    stored_event,
)
from .hints import RequestHints
from .identity import identify, warn_of_random_seed
from .jobs import Job, Jobs, slots_of
from .lookups import Asker, Lookups, RequestLookups
from .pool import PrimaryPool
from .settings import Settings
from .sharing import Sharing

#: How much longer than a job the threads may last during shutdown.
_GRACE_SECONDS = 2.0


class MeshCacheTier(SecondaryTierManager):  # type: ignore[misc]
    """Chunks in meshcache, moved directly between vLLM's pool in host memory and the node.

    The constructor raises ``ValueError`` for configurations that cannot work, and ``meshcache.NotAvailable`` if a
    required node is absent; both abort the engine's start. No other method that vLLM calls raises. Only ``drain_jobs``
    and ``shutdown`` wait, as threads talk to the node. Like vLLM, callers must call one method at a time.
    """

    medium = STORAGE
    cache_hit_source = HIT_SOURCE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, **params: Any) -> None:
        """Takes vLLM's arguments, and the parameters of the tier's entry in ``secondary_tiers``."""
        passed_on = {name: value for name, value in params.items() if name in CONSTRUCTOR_PARAMETERS}
        settings = Settings.parse({name: value for name, value in params.items() if name not in passed_on})
        super().__init__(
            offloading_spec=offloading_spec, primary_kv_view=primary_kv_view, tier_type=tier_type, **passed_on
        )
        self.locality = locality(settings.locality)
        self._settings = settings
        self._spec, self._view = offloading_spec, primary_kv_view
        self._pool = PrimaryPool(primary_kv_view)
        self._closed = False
        self._epochs = Epochs()
        self._lookups = Lookups(settings.lookup_seconds)
        self._requests = RequestLookups()
        complaints = Complaints(logger)
        self._advice: Advice[bytes] = Advice(self, complaints)
        self._hints = RequestHints(self._advice, complaints)
        self._events: list[Any] = []
        self._has_events = settings.enable_kv_events and _publishes_events(offloading_spec)
        self._sharing: Sharing | None = None
        self._missing_hooks = hooks.install() if IS_INSTALLED else []
        config = hooks.config_of(offloading_spec)
        if config is not None or not IS_INSTALLED:
            self.bind(config, hooks.kv_cache_config_of(config))
        # Otherwise, the configuration is found when the engine is complete, or when the first request arrives.
        self._asker = Asker(self._lookups, self._exists, self._tell)
        self._jobs = Jobs(self._load, self._store, settings.fence_seconds, self._epochs)
        hooks.listen(self)

    def bind(self, vllm_config: Any, kv_cache_config: Any = None) -> None:
        """Attaches to the node, once, with this engine's identity. The arguments are vLLM's, or None if not found."""
        if self._sharing is not None or self._closed:
            return
        missing = [name for name in self._missing_hooks if self._needs(name, vllm_config)]
        identity = identify(
            self._spec,
            vllm_config,
            self._pool.slot_bytes,
            self._settings,
            kv_cache_config=kv_cache_config,
            missing_hooks=missing,
        )
        self._sharing = Sharing(self._settings, identity, self._pool, self._view, self._lookups, self._epochs)
        self._sharing.describe(self.tier_type)
        identity.warn()
        warn_of_random_seed(vllm_config)
        hooks.adapters.configure(vllm_config)
        _warn_of_unknown_options(self._spec)

    @property
    def namespace(self) -> Namespace | None:
        """The namespace of the chunks now; None: not known yet."""
        return None if self._sharing is None else self._sharing.namespace

    # Calls by the scheduler

    def lookup(self, key: bytes, req_context: Any = None) -> Any:
        """Whether a chunk exists, by recent answers of the node; "ask again" while the node is being asked."""
        self._epochs.use()
        answer = False if self._closed or self._epochs.is_stale else self._lookups.find(key)
        self._requests.note(req_context, key, answer)
        self._hints.note(req_context, (key,))
        return lookup_result(answer)

    def submit_load(self, job_metadata: Any) -> None:
        """Starts reading chunks into slots."""
        self._submit(job_metadata, is_load=True)

    def submit_store(self, job_metadata: Any) -> None:
        """Starts writing chunks from slots."""
        self._submit(job_metadata, is_load=False)

    def get_finished_jobs(self) -> Iterable[Any]:
        """One result for each job that has ended since the last call."""
        results = [self._result(job) for job in self._jobs.finished()]
        self._flush()
        return results

    def get_finished(self) -> Iterable[Any]:
        """Name of ``get_finished_jobs`` in older versions."""
        return self.get_finished_jobs()

    def on_schedule_end(self, context: Any = None) -> None:
        """Called at the end of a step. Sends the questions of its lookups to the node."""
        scheduled = getattr(context, "new_req_ids", None)
        if scheduled:
            self._epochs.use()
            self._asker.count(self._requests.scheduled(scheduled))
        self._flush()

    def has_pending_work(self) -> bool:
        """Whether jobs are in progress, or have results that were not fetched."""
        return len(self._jobs) > 0

    def take_events(self) -> Iterable[Any]:
        """Events for chunks stored since the last call."""
        events, self._events = self._events, []
        return events

    def drain_jobs(self) -> None:
        """Waits until nothing touches the primary pool. Jobs are not cut short, and their results are fetched later."""
        self._jobs.drain()

    def on_new_request(self, req_context: Any = None) -> Any:
        """Called when a request begins. Its chunks are stored only if the weights do not change until its end."""
        self._be_bound()
        if self._sharing is not None:
            self._sharing.begin()
        request_id = getattr(req_context, "req_id", "")
        self._epochs.begin(request_id)
        self._requests.begin(request_id)
        self._hints.begin(req_context)
        return request_context()

    def get_request_offloading_context(self, req_context: Any = None) -> Any:
        """Name of ``on_new_request`` in older versions."""
        return self.on_new_request(req_context)

    def on_request_finished(self, req_context: Any = None) -> None:
        """Called when a request has ended. It has no further jobs."""
        request_id = getattr(req_context, "req_id", "")
        self._epochs.end(request_id)
        self._asker.count(self._requests.end(request_id))
        self._hints.end(req_context)

    def request_finished(self, req_context: Any = None) -> None:
        """Name of ``on_request_finished`` in older versions."""
        self.on_request_finished(req_context)

    def touch(self, keys: Collection[bytes], req_context: Any = None) -> None:
        """Called when chunks were used in the primary pool. The node learns of uses from reads only."""
        self._hints.note(req_context, keys)

    def shutdown(self) -> None:
        """Leaves the node and releases the primary pool. Jobs in progress fail; everything is a miss afterwards."""
        if self._closed:
            return
        self._closed = True
        hooks.unlisten(self)
        self._advice.end()
        self._asker.end()
        self._jobs.end()
        if self._sharing is not None:
            self._sharing.close()
        seconds = self._settings.timeout + _GRACE_SECONDS
        if not self._jobs.join(seconds):
            logger.error(
                "the node is frozen, and may still write into vLLM's pool in host memory after the tier has shut down"
            )
        self._asker.join(seconds)

    # Changes of the weights, reported by hooks and the operator

    def set_fingerprint(self, fingerprint: str | None) -> None:
        """Tells the version of the weights; None: the model's name identifies them. Any thread may call it."""
        self._be_bound()
        if self._sharing is not None and not self._closed:
            self._sharing.told(fingerprint)

    def reset_begins(self) -> bool:
        """Called before vLLM's cache is dropped. Returns whether the pool in host memory must be dropped as well."""
        return self._sharing is not None and not self._closed and self._sharing.reset()

    def reset_ended(self, *, is_clear: bool, is_busy: bool) -> None:
        """Called after vLLM's caches were dropped, or that failed (not ``is_clear``). ``is_busy``: requests go on."""
        if is_clear:
            self._epochs.cleared(is_busy=is_busy)
        else:
            self._epochs.is_stale = True
            logger.warning("vLLM could not reset its cache: nothing is shared until a reset succeeds")

    def weights_change(self, how: str, *, is_sleep: bool = False) -> None:
        """Called before the weights may change. ``is_sleep``: the call only frees or restores their memory."""
        if self._sharing is not None and not self._closed:
            self._sharing.change(how, is_sleep=is_sleep)

    # Calls by the threads

    def tell(self, hint: SessionHint, keys: Sequence[bytes], shared: int) -> None:
        """Tells the node what a session does next, after a request with these chunks."""
        if self._sharing is not None:
            self._sharing.tell(hint, keys, shared)

    def prefetch(self, keys: Sequence[bytes], by: float) -> None:
        """Brings chunks to the node, in ``by`` seconds at the latest."""
        if self._sharing is not None:
            self._sharing.prefetch(keys, by)

    def _exists(self, keys: Any, seconds: float) -> Any:
        return [False] * len(keys) if self._sharing is None else self._sharing.exists(keys, seconds)

    def _tell(self, asked: int, found: int) -> None:
        if self._sharing is not None:
            self._sharing.count(asked, found)

    def _load(self, keys: Any, slots: Any, seconds: float) -> Any:
        return [False] * len(keys) if self._sharing is None else self._sharing.load(keys, slots, seconds)

    def _store(self, keys: Any, slots: Any, seconds: float) -> Any:
        return [False] * len(keys) if self._sharing is None else self._sharing.store(keys, slots, seconds)

    # Parts of the scheduler's calls

    def _be_bound(self) -> None:
        """Binds the tier if no part of vLLM has done so. If its configuration is not found, its facts are missing."""
        if self._sharing is None:
            self.bind(hooks.config_of(self._spec))

    def _needs(self, hook: str, vllm_config: Any) -> bool:
        """Whether this engine needs a hook that could not be installed."""
        if hook == "adapters":
            return getattr(vllm_config, "lora_config", None) is not None
        return hook == "weight_changes" or self._settings.on_reset != "same_weights"

    def _submit(self, transfer: Any, *, is_load: bool) -> None:
        deadline = time.monotonic() + self._settings.timeout
        job = Job(transfer.job_id, is_load, list(transfer.keys), slots_of(transfer), deadline, self._epochs.number)
        self._hints.note(transfer.req_context, job.keys)
        request_id = getattr(transfer.req_context, "req_id", "")
        if self._closed or not (is_load or self._epochs.may_store(request_id)):
            self._jobs.refuse(job)
        else:
            self._jobs.submit(job)

    def _result(self, job: Job) -> Any:
        if job.is_load and not job.success:
            self._lookups.failed(job.failed_keys)
        if self._has_events and not job.is_load and job.moved_keys:
            event = stored_event(job.moved_keys, self.locality)
            if event is not None:
                self._events.append(event)
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


def set_fingerprint(fingerprint: str | None) -> None:
    """Tells all tiers of this process the version of the weights; None: the model's name alone identifies them."""
    for tier in hooks.listeners():
        tier.set_fingerprint(fingerprint)


def _publishes_events(spec: Any) -> bool:
    events = getattr(spec, "kv_events_config", None)
    if getattr(events, "enable_kv_cache_events", False):
        return True
    logger.warning("enable_kv_events of the tier has no effect: vLLM's own KV events are off (--kv-events-config)")
    return False


def _warn_of_unknown_options(spec: Any) -> None:
    """Warns of ``blocks_per_chunk``, which versions before 0.26 silently ignore; they take the size in tokens only."""
    given = getattr(spec, "extra_config", None) or {}
    if "blocks_per_chunk" in given and not hasattr(spec, "blocks_per_chunk"):
        logger.warning(
            "this version of vLLM ignores blocks_per_chunk, so that a chunk is one block: give the tokens of a chunk instead, such as "
            '"block_size": 64, a multiple of --block-size; all versions take that'
        )
