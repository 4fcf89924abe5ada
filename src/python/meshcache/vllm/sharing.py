"""The tier's side of the node: the client, the weights whose chunks it reads and writes, and how both change."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from meshcache import Client, Namespace
from meshcache._engines.complaints import Complaints
from meshcache._engines.weights import Weights, nobodys_fingerprint
from meshcache.settings import DEFAULT_STAGING_BYTES

from .epochs import Epochs
from .framework import logger
from .hooks import TELL, adapters
from .identity import Identity
from .lookups import Lookups
from .pool import PrimaryPool
from .settings import Settings

#: How much longer than their time calls of the client may last at the end of an epoch.
_GRACE_SECONDS: Final = 1.0
#: A node is attached to again within milliseconds, unless it is busy or there is none.
_ATTACH_SECONDS: Final = 1.0
_ATTACH_POLL_SECONDS: Final = 0.002
_HOW_TO_TELL: Final = (
    'tell it with "meshcache fingerprint vllm VERSION" on this host, meshcache.vllm.set_fingerprint(VERSION) in the engine\'s process, '
    f'LLM.collective_rpc("{TELL}", args=(VERSION,)), or vLLM\'s own set_weight_version'
)


class Sharing:
    """Moves chunks of the present weights. Methods with ``keys``, ``count`` and ``told`` are for threads; all others are the scheduler's."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        pool: PrimaryPool,
        view: memoryview,
        lookups: Lookups,
        epochs: Epochs,
    ) -> None:
        """Attaches to the node. Raises ``meshcache.NotAvailable`` when the settings demand a node, and there is none."""
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
        """Whose chunks these are now."""
        return replace(self._identity.namespace, fingerprint=self.weights.fingerprint)

    @property
    def mode(self) -> str:
        """How chunks are moved now."""
        return self._region.mode

    def close(self) -> None:
        """Leaves the node; calls under way end as misses."""
        self._client.close()

    # What threads call

    def exists(self, keys: Sequence[bytes], seconds: float) -> Sequence[bool]:
        """Which keys are there. They are of several requests, each of which counts for itself."""
        if not self._is_attached(seconds):
            return [False] * len(keys)
        return self._client.exists_many(keys, counted=False, timeout=seconds)

    def count(self, asked: int, found: int) -> None:
        """The lookup of one request, for the hit rate of the cluster."""
        self._client.count_lookup(asked, found)

    def load(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        """Reads chunks into slots."""
        if not self._is_attached(seconds):
            return [False] * len(keys)
        return self._client.get_into(keys, self._pool.pieces(self._region, slots), timeout=seconds)

    def store(self, keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> Sequence[bool]:
        """Writes chunks from slots."""
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

    def begin(self) -> None:
        """A request begins. It belongs to the adapters as they are now."""
        self._follow_adapters(adapters.changes)

    def _follow_adapters(self, changes: int) -> bool:
        """Whether files of adapters have changed: what was computed until now may be of others than its keys say, and is not stored."""
        if changes == self._adapter_changes:
            return False
        self._adapter_changes = changes
        self._epochs.advance()
        return True

    def _is_attached(self, seconds: float) -> bool:
        """Whether there is a node. Just after the weights have changed, the client attaches anew: that is waited for."""
        until = min(time.monotonic() + seconds / 2, self._attaching_until)
        while not self._client.is_connected:
            if time.monotonic() >= until:
                return False
            time.sleep(_ATTACH_POLL_SECONDS)
        return True

    # How the weights change

    def reset(self) -> bool:
        """vLLM drops its cache, and does not say why. Whether that may mean other weights."""
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
        """A call may change the weights. ``is_sleep``: only if the engine comes back with others, of which the operator's statement on resets tells."""
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
        """The version of the weights is told; None: the model's name alone identifies them. Threads may call it."""
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
        """Switches to the fingerprint that the weights have now. When this returns, nothing that was begun before is read or written any more.

        False: a job of the former weights has not ended, and so the weights are unknown.
        """
        with self._lock:
            if not self._epochs.advance():
                # Calls under way end as misses. One that has not yet begun reaches nobody's chunks.
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
        """Logs what the tier does."""
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
