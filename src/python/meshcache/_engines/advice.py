"""What hints of requests are for: the node hears of sessions, and has pages before the engine asks for them."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

from .._wire import protocol
from .complaints import Complaints
from .hints import SessionHint

#: How long before a session's next request its pages are asked for. The node begins no earlier either.
LEAD_SECONDS: Final = protocol.PREFETCH_LEAD_MS / 1000
#: Sessions that are remembered, and pages of all of them. The sessions told the longest time ago are forgotten.
_MAX_SESSIONS: Final = 4_096
_MAX_KEYS: Final = 1 << 18
#: Hints that may wait for the node.
_MAX_WORK: Final = 1_024

Key = TypeVar("Key", str, bytes)
#: The same, of a node's arguments.
_Taken = TypeVar("_Taken", str, bytes, contravariant=True)


class Node(Protocol[_Taken]):
    """The node, as the thread of ``Advice`` uses it. Both methods may wait, and raise."""

    def tell(self, hint: SessionHint, keys: Sequence[_Taken], shared: int) -> None:
        """Tells what a session does next; ``keys`` are the pages of its present request."""

    def prefetch(self, keys: Sequence[_Taken], by: float) -> None:
        """Brings pages into the node's pool, in ``by`` seconds at the latest. Returns when that has been done."""


@dataclass
class _Session(Generic[Key]):
    #: Pages of the session, in the order in which they were told.
    keys: dict[Key, None] = field(default_factory=dict)
    #: Time of the next request; infinity: not known.
    next_at: float = math.inf


class Advice(Generic[Key]):
    """Tells the node of sessions, and has their pages brought back shortly before their next requests.

    One thread makes one request to the node at a time, so that hints never hold up reads and writes. All methods return
    at once and never raise, and any thread may call them.
    """

    def __init__(self, node: Node[Key], complaints: Complaints) -> None:
        self._node: Node[Key] = node
        self._complaints = complaints
        self._changed = threading.Condition()
        #: The session that was told last is the last one.
        self._sessions: OrderedDict[str, _Session[Key]] = OrderedDict()
        #: Number of keys of all sessions.
        self._key_count = 0
        self._work: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def fetch(self, keys: Sequence[Key]) -> None:
        """Has pages brought to the node as soon as possible."""
        if keys:
            with self._changed:
                self._put(functools.partial(self._node.prefetch, list(keys), 0.0))

    def begins(self, session: str) -> None:
        """Called when a session's next request is here: its pages need not be brought any more."""
        with self._changed:
            if session in self._sessions:
                self._sessions[session].next_at = math.inf

    def tell(self, hint: SessionHint, keys: Callable[[], Sequence[Key]], shared: int) -> None:
        """Called when a request of a session has ended. ``keys`` gives its pages, the head first, and is called in the
        thread; the first ``shared`` ones are used by other sessions as well.

        Unless it has branched, a session keeps the pages of its earlier requests. A short request, which has no page,
        can therefore tell when the session goes on.
        """
        told_at = time.monotonic()
        with self._changed:
            if self._put(functools.partial(self._tell, hint, keys, shared, told_at)):
                session = self._sessions.setdefault(hint.session, _Session())
                self._sessions.move_to_end(hint.session)
                session.next_at = math.inf if hint.waiting is None or hint.ended else told_at + hint.waiting

    def end(self) -> None:
        """Drops everything. A request to the node that is under way goes on."""
        with self._changed:
            self._closed = True
            self._work.clear()
            self._sessions.clear()
            self._changed.notify()

    def _put(self, work: Callable[[], None]) -> bool:
        """Queues work for the thread; the lock is held. Returns whether there was room."""
        if self._closed:
            return False
        if len(self._work) >= _MAX_WORK:
            self._complaints.log("many hints", f"hints of requests are left out: {_MAX_WORK} wait for the node")
            return False
        self._work.append(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="meshcache-hints", daemon=True)
            self._thread.start()
        self._changed.notify()
        return True

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception as error:
                self._complaints.log("hints lost", f"hints of requests do not reach the node: {error}")

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next piece of work. None: there will be none."""
        with self._changed:
            while not self._closed:
                if self._work:
                    return self._work.popleft()
                session = min(self._sessions.values(), key=lambda session: session.next_at, default=None)
                next_at = math.inf if session is None else session.next_at
                seconds = next_at - LEAD_SECONDS - time.monotonic()
                if session is not None and seconds <= 0:
                    session.next_at = math.inf
                    return functools.partial(self._bring, list(session.keys), next_at)
                self._changed.wait(None if seconds == math.inf else min(seconds, threading.TIMEOUT_MAX))
            return None

    def _bring(self, keys: list[Key], next_at: float) -> None:
        if keys:
            self._node.prefetch(keys, max(0.0, next_at - time.monotonic()))

    def _tell(self, hint: SessionHint, keys: Callable[[], Sequence[Key]], shared: int, told_at: float) -> None:
        own = keys()
        with self._changed:
            self._note(hint, own)
        if hint.waiting is not None:
            hint = replace(hint, waiting=max(0.0, hint.waiting - (time.monotonic() - told_at)))
        self._node.tell(hint, own, shared)

    def _note(self, hint: SessionHint, keys: Sequence[Key]) -> None:
        """Records the pages of a session; the lock is held."""
        session = self._sessions.get(hint.session)
        if session is None:
            return
        before = len(session.keys)
        if hint.branched:
            session.keys = {}
        session.keys.update(dict.fromkeys(keys))
        self._key_count += len(session.keys) - before
        if hint.ended:
            self._forget(hint.session)
        while self._sessions and (len(self._sessions) > _MAX_SESSIONS or self._key_count > _MAX_KEYS):
            self._forget(next(iter(self._sessions)))

    def _forget(self, name: str) -> None:
        self._key_count -= len(self._sessions.pop(name).keys)
