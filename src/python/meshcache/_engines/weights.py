"""The weights that an engine computes with: the fingerprint of its namespace, which changes when the weights do."""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from typing import Final

_FINGERPRINT: Final = re.compile(r"[!-~]{1,128}")
#: Prefix of the fingerprint of unknown weights. Every engine with unknown weights has a new one after each reset.
_UNKNOWN: Final = "unknown-"


def fingerprint_of(version: str) -> str:
    """Converts a version of the weights to a fingerprint: the text itself if it is a valid one, else a digest of it."""
    if _FINGERPRINT.fullmatch(version) and not version.startswith(_UNKNOWN):
        return version
    return "sha256:" + hashlib.sha256(version.encode()).hexdigest()


def nobodys_fingerprint() -> str:
    """A fingerprint that no other engine has, now or later."""
    return _UNKNOWN + uuid.uuid4().hex


class Weights:
    """The weights of one engine. Threads may share it.

    The weights are usually known at first, from a fingerprint that the operator states, the version that the engine
    names, or the model's files. They become unknown after a reset for an unknown reason, until the engine or the
    operator tells the version. With unknown weights, an engine shares nothing: it reads no earlier pages, and its own
    are not mistaken for pages of other weights.
    """

    def __init__(self, fingerprint: str | None, *, are_fixed: bool = False) -> None:
        """``fingerprint``: None if the model's name identifies the weights. ``are_fixed``: resets never change them."""
        self._lock = threading.Lock()
        self._fingerprint = fingerprint
        #: Whether the operator states that no reset changes the weights.
        self.are_fixed = are_fixed
        self._epoch = 0

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the engine's namespace now."""
        return self._fingerprint

    @property
    def epoch(self) -> int:
        """Number of changes of the fingerprint. Work begun in one epoch must not be finished in another."""
        return self._epoch

    @property
    def are_known(self) -> bool:
        """Whether the engine may share pages with others."""
        return not (self._fingerprint or "").startswith(_UNKNOWN)

    def reset(self) -> bool:
        """Called when the engine dropped its cache for an unknown reason. Returns whether the fingerprint changed."""
        with self._lock:
            if self.are_fixed:
                return False
            self._change(nobodys_fingerprint())
            return True

    def forget(self) -> None:
        """Changes to unknown weights, regardless of the operator's statement on resets."""
        with self._lock:
            self._change(nobodys_fingerprint())

    def told(self, version: str | None) -> bool:
        """Sets the version of the weights; None: the model's name identifies them. Returns whether it changed."""
        with self._lock:
            fingerprint = None if version is None else fingerprint_of(version)
            if fingerprint == self._fingerprint:
                return False
            self._change(fingerprint)
            return True

    def _change(self, fingerprint: str | None) -> None:
        self._fingerprint = fingerprint
        self._epoch += 1
