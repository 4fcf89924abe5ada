"""Which weights an engine computes with now: the fingerprint of its namespace, which changes when the weights do."""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from typing import Final

_FINGERPRINT: Final = re.compile(r"[!-~]{1,128}")
#: Begins the fingerprint of an engine that does not know its weights. Every such engine has another one after each reset.
_UNKNOWN: Final = "unknown-"


def fingerprint_of(version: str) -> str:
    """A version of the weights as a fingerprint: the text itself if it is a valid fingerprint, else a digest of it."""
    if _FINGERPRINT.fullmatch(version) and not version.startswith(_UNKNOWN):
        return version
    return "sha256:" + hashlib.sha256(version.encode()).hexdigest()


def nobodys_fingerprint() -> str:
    """A fingerprint that no other engine has, now or later."""
    return _UNKNOWN + uuid.uuid4().hex


class Weights:
    """The weights of one engine. Threads may share it.

    The weights are known at first: by a fingerprint that the operator states, by the version that the engine names, or by the model's files. They are
    unknown after a reset whose reason is not known, until the engine or the operator tells the version. An engine with unknown weights shares with
    nobody: neither does it read pages from before, nor are its pages taken for those of other weights.
    """

    def __init__(self, fingerprint: str | None, *, are_fixed: bool = False) -> None:
        """``fingerprint``: None if the model's name alone identifies the weights. ``are_fixed``: the operator states that no reset changes them."""
        self._lock = threading.Lock()
        self._fingerprint = fingerprint
        #: Whether the operator states that no reset changes the weights.
        self.are_fixed = are_fixed
        self._epoch = 0

    @property
    def fingerprint(self) -> str | None:
        """What the engine's namespace has as its fingerprint now."""
        return self._fingerprint

    @property
    def epoch(self) -> int:
        """Counts the changes of the fingerprint: what was begun in another epoch must not be finished in this one."""
        return self._epoch

    @property
    def are_known(self) -> bool:
        """Whether the engine may share pages with others."""
        return not (self._fingerprint or "").startswith(_UNKNOWN)

    def reset(self) -> bool:
        """The engine has dropped its own cache, and the reason is not known. Returns whether the fingerprint has changed."""
        with self._lock:
            if self.are_fixed:
                return False
            self._change(nobodys_fingerprint())
            return True

    def forget(self) -> None:
        """The weights change to unknown ones. What the operator states of resets does not concern this."""
        with self._lock:
            self._change(nobodys_fingerprint())

    def told(self, version: str | None) -> bool:
        """The engine or the operator tells the version of the weights; None: the model's name alone identifies them. Returns whether the fingerprint has changed."""
        with self._lock:
            fingerprint = None if version is None else fingerprint_of(version)
            if fingerprint == self._fingerprint:
                return False
            self._change(fingerprint)
            return True

    def _change(self, fingerprint: str | None) -> None:
        self._fingerprint = fingerprint
        self._epoch += 1
