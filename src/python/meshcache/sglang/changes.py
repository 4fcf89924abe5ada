"""Which weights the pages of an engine were computed with, while the weights change."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from meshcache._engines.weights import Weights


_live: weakref.WeakSet[WeightChanges] = weakref.WeakSet()

#: The weights of each engine, by its controller. They outlive its storage, which may be detached and attached again.
_of_engines: weakref.WeakKeyDictionary[object, WeightChanges] = weakref.WeakKeyDictionary()


def live() -> list[WeightChanges]:
    """The weights of all engines of this process."""
    return list(_live)


def of_engine(controller: object) -> WeightChanges | None:
    """The weights of the engine that has this controller; None: nobody has followed them."""
    return _of_engines.get(controller)


def remember(controller: object, changes: WeightChanges) -> None:
    """From now on these are followed for as long as the engine lives."""
    _of_engines[controller] = changes


class WeightChanges:
    """Follows the weights of one engine, and closes its storage while pages of two kinds of weights may be in its own cache.

    SGLang changes weights first, then names their version, and drops its own cache last, or not at all. Until it has, pages of the former weights are
    in its cache and on their way to the storage: nothing is read and nothing is stored. What SGLang has dropped without a reason that is known may
    have been computed with any weights.
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
        """``read_version``: what the engine calls its weights now. ``use`` switches to the pages of a fingerprint. ``owner``: the engine's storage.
        ``stated``: the fingerprint that the operator states for it.

        ``use`` must not keep the storage alive: its engine's weights are followed for as long as the engine lives.
        """
        self._owner = None if owner is None else weakref.ref(owner)
        self.weights = weights
        self._read_version = read_version
        self._use = use
        self._logger = logger
        self._lock = threading.RLock()
        self._seen = read_version()
        # Updates under way, the places where an update is open that takes several calls, and resets under way.
        self._updates = 0
        self._open: set[int] = set()
        self._resets = 0
        # Has the log said that the cache was flushed while an update is open?
        self._has_warned = False
        # The engine's own cache may have pages of the former weights.
        self._is_mixed = False
        # It was dropped since the last update began, while others go on.
        self._was_dropped = False
        # The version that was named when the weights began to change, and what has been told since, if anything: None may be told, too.
        self._version_before: str | None = None
        self._told: tuple[str | None] | None = None
        # What the operator has stated for the storage that was made last.
        self._stated = stated
        _live.add(self)

    def pass_on(self, owner: object, use: Callable[[str | None], None], stated: str | None, *, are_fixed: bool) -> None:
        """The engine gets another storage. What has happened to its weights meanwhile counts for that one.

        The same fingerprint stated again says nothing of changes that came after the first statement; another one does. ``are_fixed``: from now on, the
        operator states that no reset changes the weights.
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
        """May pages be read and stored? A version that the engine names anew is followed first."""
        version = self._read_version()
        if version != self._seen:
            self._follow(version)
        return not (self._is_mixed or self._resets)

    def _follow(self, version: str | None) -> None:
        with self._lock:
            if version == self._seen:
                return
            # While the weights change, the version counts when that has ended.
            if self._is_mixed or self._resets:
                return
            self._seen = version
            if version is not None:
                self._tell(version)
            else:
                self._forget()
                self._warn("the engine no longer names the version of its weights")

    def is_of(self, storage: object) -> bool:
        """Are these the weights of the engine with this storage?"""
        return self._owner is not None and self._owner() is storage

    # What happens in the engine

    def update_begins(self) -> None:
        """Weights are about to change in place."""
        with self._lock:
            self._updates += 1
            self._mix()

    def update_ends(self, version: str | None, *, has_told: bool) -> None:
        """A change of weights has ended. ``has_told``: the caller could have named the version, and None says that it did not."""
        with self._lock:
            self._updates -= 1
            if has_told:
                self._told = None if version is None else (version,)
                if version is None:
                    self._version_before = self._read_version()
            self._settle_if_dropped()

    def opened(self, place: int) -> None:
        """An update of several calls is open in this place. SGLang has several such places, which open and close together."""
        with self._lock:
            self._open.add(place)
            self._mix()

    def closed(self, place: int) -> None:
        """The update in this place has ended. One that is not open there changes nothing."""
        with self._lock:
            if place in self._open:
                self._open.remove(place)
                self._settle_if_dropped()

    def reset_begins(self) -> None:
        """The engine drops its own cache, with all pages that are under way."""
        with self._lock:
            self._resets += 1

    def reset_ends(self) -> None:
        """The engine has dropped its own cache."""
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
        """The engine or the operator names the weights. Pages in the engine's cache must be of these, or the cache must be dropped next."""
        with self._lock:
            if self._is_mixed:
                self._told = (version,)
            else:
                self._tell(version)

    # What follows

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
        """All weights are new, and all pages in the engine's cache will be of these."""
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
