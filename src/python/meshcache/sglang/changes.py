"""Tracks the weights with which an engine's pages were computed, while the weights change."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from meshcache._engines.weights import Weights


_live: weakref.WeakSet[WeightChanges] = weakref.WeakSet()

#: Weights of each engine, by its controller. They outlive its storage, which may be detached and attached again.
_of_engines: weakref.WeakKeyDictionary[object, WeightChanges] = weakref.WeakKeyDictionary()


def live() -> list[WeightChanges]:
    """The weights of all engines of this process."""
    return list(_live)


def of_engine(controller: object) -> WeightChanges | None:
    """The weights of the engine with this controller; None if they were not tracked."""
    return _of_engines.get(controller)


def remember(controller: object, changes: WeightChanges) -> None:
    """Tracks these weights as long as the engine lives."""
    _of_engines[controller] = changes


class WeightChanges:
    """Tracks the weights of one engine, and closes its storage while its own cache may have pages of different weights.

    SGLang changes weights first, then names their version, and drops its own cache last, or not at all. Until then,
    pages of the former weights are in its cache and on their way to the storage, so nothing is read or stored. After a
    drop for an unknown reason, the weights are unknown.
    """

    def __init__(
        self,
        weights: Weights,
        read_version: Callable[[], str | None],
        use: Callable[[str | None], None],
        logger: logging.Logger,
        owner: object = None,
        stated: str | None = None,
    ) -> None:
        """``read_version`` returns the engine's present version of its weights. ``use`` switches to the pages of a
        fingerprint; it must not keep the storage alive, as the weights are tracked as long as the engine lives.
        ``owner`` is the engine's storage, ``stated`` the fingerprint that the operator states."""
        self._owner = None if owner is None else weakref.ref(owner)
        self.weights = weights
        self._read_version = read_version
        self._use = use
        self._logger = logger
        self._lock = threading.RLock()
        self._seen = read_version()
        # Updates in progress, places where an update of several calls is open, and resets in progress.
        self._updates = 0
        self._open: set[int] = set()
        self._resets = 0
        # Whether it was logged that the cache was flushed while an update is open.
        self._has_warned = False
        # Whether the engine's own cache may have pages of the former weights.
        self._is_mixed = False
        # Whether the cache was dropped since the last update began, while others continue.
        self._was_dropped = False
        # The version when the weights began to change, and the one told since, in a tuple, as None can be told, too.
        self._version_before: str | None = None
        self._told: tuple[str | None] | None = None
        # The fingerprint that the operator stated for the latest storage.
        self._stated = stated
        _live.add(self)

    def pass_on(self, owner: object, use: Callable[[str | None], None], stated: str | None, *, are_fixed: bool) -> None:
        """Passes the weights on to another storage of the engine, for which all changes so far count.

        Stating the same fingerprint again does not cover changes since the first statement; stating another one does.
        ``are_fixed``: from now on, the operator states that no reset changes the weights.
        """
        with self._lock:
            self._owner, self._use = weakref.ref(owner), use
            self.weights.are_fixed = are_fixed
            if not (self._is_mixed or self._resets):
                self._follow(self._read_version())
            if stated is not None and stated != self._stated:
                self._stated = stated
                self.tell(stated)
            if not self.weights.are_known:
                self._warn("the weights of the running engine are not known")

    @property
    def is_open(self) -> bool:
        """Whether pages may be read and stored. A new version named by the engine is applied first."""
        version = self._read_version()
        if version != self._seen:
            self._follow(version)
        return not (self._is_mixed or self._resets)

    def _follow(self, version: str | None) -> None:
        with self._lock:
            if version == self._seen:
                return
            # While the weights change, the version takes effect at the end of the change.
            if self._is_mixed or self._resets:
                return
            self._seen = version
            if version is not None:
                self._tell(version)
            else:
                self._forget()
                self._warn("the engine no longer names the version of its weights")

    def is_of(self, storage: object) -> bool:
        """Whether these are the weights of the engine with this storage."""
        return self._owner is not None and self._owner() is storage

    # Events of the engine

    def update_begins(self) -> None:
        """Called before weights change in place."""
        with self._lock:
            self._updates += 1
            self._mix()

    def update_ends(self, version: str | None, *, has_told: bool) -> None:
        """Called after a change of weights. ``has_told``: the request could name a version; None means it did not."""
        with self._lock:
            self._updates -= 1
            if has_told:
                self._told = None if version is None else (version,)
                if version is None:
                    self._version_before = self._read_version()
            self._settle_if_dropped()

    def opened(self, place: int) -> None:
        """Called when an update of several calls was opened in this place. SGLang has several, which open together."""
        with self._lock:
            self._open.add(place)
            self._mix()

    def closed(self, place: int) -> None:
        """Called when the update in this place has ended. Does nothing if none is open there."""
        with self._lock:
            if place in self._open:
                self._open.remove(place)
                self._settle_if_dropped()

    def reset_begins(self) -> None:
        """Called before the engine drops its own cache, with all transfers in progress."""
        with self._lock:
            self._resets += 1

    def reset_ends(self) -> None:
        """Called after the engine has dropped its own cache."""
        with self._lock:
            self._resets -= 1
            if self._is_mixed:
                self._was_dropped = True
                self._settle_if_dropped()
                if self._open and not self._updates and not self._has_warned:
                    self._has_warned = True
                    self._logger.warning(
                        "the engine has flushed its cache while an update of its weights is open: "
                        "nothing is read or stored until /end_weight_update has succeeded"
                    )
                return
            version = self._read_version()
            if version is not None and version != self._seen:
                self._seen = version
                self._tell(version)
            elif self.weights.reset():
                self._use(self.weights.fingerprint)
                self._warn(
                    "the engine's cache was reset, and the reason is not known",
                    '; if resets never change the weights, set "on_reset": "same_weights" in the extra config',
                )

    def tell(self, version: str | None) -> None:
        """Sets the version that the engine or the operator names. All pages in the engine's cache must be of these
        weights, or the cache must be dropped next."""
        with self._lock:
            if self._is_mixed:
                self._told = (version,)
            else:
                self._tell(version)

    # Consequences

    def _mix(self) -> None:
        if not self._is_mixed:
            self._version_before, self._told = self._read_version(), None
            self._is_mixed = True
            self._forget()
            self._logger.info(
                "the weights are changing: nothing is read or stored until the engine has flushed its cache"
            )
        self._was_dropped = self._has_warned = False

    def _settle_if_dropped(self) -> None:
        if self._was_dropped and not self._updates and not self._open:
            self._settle()

    def _settle(self) -> None:
        """Ends a change: all weights are new, and the engine's cache has no pages of former ones."""
        self._is_mixed = self._was_dropped = False
        named = self._read_version()
        self._seen = named
        if self._told is not None:
            self._tell(*self._told)
        elif named is not None and named != self._version_before:
            self._tell(named)
        else:
            self._forget()
            self._warn("the weights have changed")

    def _tell(self, version: str | None) -> None:
        before = self.weights.fingerprint
        if self.weights.told(version):
            self._use(self.weights.fingerprint)
            self._logger.info("the weights have the fingerprint %s (before: %s)", self.weights.fingerprint, before)

    def _forget(self) -> None:
        self.weights.forget()
        self._use(self.weights.fingerprint)

    def _warn(self, why: str, more: str = "") -> None:
        self._logger.warning(
            "%s: until this engine is told the version of its weights, it reads no pages from before, and shares none; give weight_version with the "
            'update, call /update_weight_version or meshcache.sglang.set_fingerprint, or run "meshcache fingerprint" for each rank%s',
            why,
            more,
        )
