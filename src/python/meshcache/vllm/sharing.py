"""The tier's connection to the node: the client, the weights whose chunks it moves, and how both change."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from meshcache import Client, Namespace
from meshcache._engines.complaints import Complaints
from meshcache._engines.hints import SessionHint
from meshcache._engines.weights import Weights, nobodys_fingerprint
from meshcache.settings import DEFAULT_STAGING_BYTES

from .epochs import Epochs
from .framework import logger
from .hooks import TELL, adapters
from .identity import Identity
from .lookups import Lookups
from .pool import PrimaryPool
from .settings import Settings

#: How long calls of the client may exceed their timeout at the end of an epoch.
_GRACE_SECONDS: Final = 1.0
#: Longest wait for the client to reattach, which takes milliseconds unless the node is busy or absent.
_ATTACH_SECONDS: Final = 1.0
_ATTACH_POLL_SECONDS: Final = 0.002
_HOW_TO_TELL: Final = (
    'tell it with "meshcache fingerprint vllm VERSION" on this host, meshcache.vllm.set_fingerprint(VERSION) in the engine\'s process, '
    f'LLM.collective_rpc("{TELL}", args=(VERSION,)), or vLLM\'s own set_weight_version'
)


class Sharing:
    """Moves chunks of the present weights. Only methods with ``keys``, ``count`` and ``told`` are for threads."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        pool: PrimaryPool,
        view: memoryview,
        lookups: Lookups,
        epochs: Epochs,
    ) -> None:
        """Attaches to the node. Raises ``meshcache.NotAvailable`` if the settings require a node, but there is none."""
        self._settings = settings
        self._pool = pool
        self._lookups = lookups
        self._epochs = epochs
        self._complaints = Complaints(logger)
        self._lock = threading.Lock()
        self._attaching_until = 0.0
        self._adapter_changes = adapters.changes
        fingerprint = nobodys_fingerprint() if identity.unknown_weights else settings.fingerprint or identity.files
        self.weights = Weights(fingerprint, are_fixed=settings.on_reset == "same_weights")
        self._identity = identity
        self._client = Client(
            settings.client_socket,
            token_file=settings.token_file,
            namespace=self.namespace,
            name="vllm",
            mode=settings.mode,
            timeout=settings.timeout,
            required=settings.required,
            end_frozen_node=settings.end_frozen_node,
            fence_timeout=settings.fence_seconds,
            staging_bytes=max(DEFAULT_STAGING_BYTES, 2 * pool.slot_bytes),
            logger=logger,
            on_fingerprint=self.told,
        )
        try:
            self._region = pool.register(self._client, view)
        except BaseException:
            self._client.close()
            raise

    @property
    def namespace(self) -> Namespace:
        """The namespace of the chunks now."""
        return replace(self._identity.namespace, fingerprint=self.weights.fingerprint)

    @property
    def mode(self) -> str:
        """How chunks are moved now."""
        return self._region.mode

    def close(self) -> None:
        """Leaves the node; calls in progress end as misses."""
        self._client.close()

    # Calls by threads

    def exists(self, keys: Sequence[bytes], seconds: float) -> Sequence[bool]:
        """Says which keys exist. They belong to several requests, each of which is counted separately."""
        if not self._is_attached(seconds):
            return [False] * len(keys)
        return self._client.exists_many(keys, counted=False, timeout=seconds)

    def count(self, asked: int, found: int) -> None:
        """Counts the lookup of one request in the cluster's hit rate."""
        self._client.count_lookup(asked, found)

    def load(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        """Reads chunks into slots. One result per key."""
        if not self._is_attached(seconds):
            return [False] * len(keys)
        return self._client.get_into(keys, self._pool.pieces(self._region, slots), timeout=seconds)

    def store(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        """Writes chunks from slots. One result per key."""
        if not self._is_attached(seconds):
            return [False] * len(keys)
        if self._follow_adapters(adapters.look()):
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

    def tell(self, hint: SessionHint, keys: Sequence[bytes], shared: int) -> None:
        """Tells the node what a session does next, after a request with these chunks."""
        self._client.tell(
            hint.session, keys, waiting=hint.waiting, branched=hint.branched, ended=hint.ended, shared=shared
        )

    def prefetch(self, keys: Sequence[bytes], by: float) -> None:
        """Brings chunks to the node, in ``by`` seconds at the latest."""
        self._client.prefetch(keys, by=by)

    def begin(self) -> None:
        """Called when a request begins. It uses the adapters in their present state."""
        self._follow_adapters(adapters.changes)

    def _follow_adapters(self, changes: int) -> bool:
        """Whether files of adapters have changed. If so, KV computed so far is not stored, as its keys may be wrong."""
        if changes == self._adapter_changes:
            return False
        self._adapter_changes = changes
        self._epochs.advance()
        return True

    def _is_attached(self, seconds: float) -> bool:
        """Whether there is a node. Waits if the client is reattaching because the weights have just changed."""
        until = min(time.monotonic() + seconds / 2, self._attaching_until)
        while not self._client.is_connected:
            if time.monotonic() >= until:
                return False
            time.sleep(_ATTACH_POLL_SECONDS)
        return True

    # How the weights change

    def reset(self) -> bool:
        """Called when vLLM drops its cache for an unknown reason. Returns whether the weights may have changed."""
        if self._settings.on_reset == "same_weights" and not self._epochs.is_stale:
            return False
        if not self._epochs.is_told and self.weights.reset():
            self._change()
            logger.warning(
                "vLLM's cache was reset, and the reason is not known: until this engine is told the version of its weights, it reads no chunks from before "
                'the reset, and shares none; %s; if resets never mean other weights, set "on_reset": "same_weights" in the tier\'s entry',
                _HOW_TO_TELL,
            )
        return True

    def change(self, how: str, *, is_sleep: bool) -> None:
        """Called before a call that may change the weights. With ``is_sleep``, they change only if the engine wakes
        with others, to which the operator's statement on resets applies."""
        if is_sleep and self._settings.on_reset == "same_weights":
            return
        if not self.weights.are_known and not self._epochs.is_used:
            return
        self.weights.forget()
        self._change()
        self._epochs.is_told = False
        self._epochs.is_stale = self._epochs.is_stale or self._epochs.is_used
        logger.warning(
            "the call %s may have changed the weights: until this engine is told the version of its weights%s, it reads no chunks from before the call, "
            "and shares none; %s",
            how,
            ", and vLLM's cache is reset" if self._epochs.is_stale else "",
            _HOW_TO_TELL,
        )

    def told(self, version: str | None) -> None:
        """Sets the version of the weights; None: the model's name alone identifies them. Any thread may call it."""
        if self.weights.told(version) and not self._change():
            return
        self._epochs.is_told = True
        stale = (
            " after the next reset of vLLM's cache, which may still hold KV of other weights"
            if self._epochs.is_stale
            else ""
        )
        logger.info("the weights have the fingerprint %s: their chunks are shared%s", self.weights.fingerprint, stale)

    def _change(self) -> bool:
        """Switches to the present fingerprint of the weights. When this returns, earlier reads and writes have ended.

        False: a job of the former weights has not ended, so the weights are unknown.
        """
        with self._lock:
            if not self._epochs.advance():
                # Calls in progress end as misses. Calls that have yet to begin find a namespace without chunks.
                self._client.set_fingerprint(nobodys_fingerprint())
                if not self._epochs.wait(self._settings.timeout + self._settings.fence_seconds + _GRACE_SECONDS):
                    self.weights.forget()
                    logger.error(
                        "the node is frozen, and a job of the former weights has not ended: until this engine is told the version of its weights "
                        "again, it shares nothing; %s",
                        _HOW_TO_TELL,
                    )
                    return False
            self._attaching_until = time.monotonic() + _ATTACH_SECONDS
            self._client.set_fingerprint(self.weights.fingerprint)
            self._lookups.forget()
            return True

    def describe(self, tier_type: str) -> None:
        """Logs the tier's configuration."""
        logger.info(
            "tier %s: %d slots of %d bytes, %s, namespace %s",
            tier_type,
            self._pool.count,
            self._pool.slot_bytes,
            "no node yet" if self.mode == "none" else f"chunks go {self.mode}",
            self.namespace,
        )
        if self._identity.unknown_weights:
            logger.warning(
                "this engine shares chunks with no other engine until it is told the version of its weights: %s; "
                'set "fingerprint" in the tier\'s entry, or %s',
                self._identity.unknown_weights,
                _HOW_TO_TELL,
            )
