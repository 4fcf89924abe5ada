"""Reads the page events of a node over separate connections, so that waiting requests do not delay others."""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Iterator, Sequence
from time import monotonic
from types import TracebackType
from typing import Final

from .._wire import protocol
from .._wire.connection import Connection
from .._wire.protocol import EventsAnswer, Violation
from ..attachment import Attachment, AttachError
from ..errors import Denied, NotAvailable
from ..settings import Settings
from .records import PageChange, PageEvent

#: Most pools of one stream. Each takes two pools of a request, because keys that are bytes have their own pool.
MAX_POOLS: Final = protocol.MAX_EVENT_POOLS // 2

#: How long a node waits for a change before it answers that there was none.
_WAIT_SECONDS: Final = 10.0
#: A node that still has not answered this long after that counts as lost.
_SILENCE_SECONDS: Final = 3.0
_FIRST_DELAY_SECONDS: Final = 0.05
_LAST_DELAY_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 1.0

_streams: weakref.WeakSet[PageEventStream] = weakref.WeakSet()


class PageEventStream:
    """An iterator over page events, made by `Client.page_events`. Threads may share it; each event goes to one of them.

    It waits while nothing happens, and reattaches by itself: after a restart of the node it continues with a new list.
    It ends when it, or its client, is closed.
    """

    def __init__(self, settings: Settings, after: str | None, pools: Sequence[str], bytes_pools: Sequence[str]) -> None:
        self._settings = settings
        #: Names that callers see, and names in the protocol: first pools for string keys, then those for bytes keys.
        self._pools = list(pools)
        self._wire_pools = [*pools, *bytes_pools]
        #: Position at which the next connection resumes; empty: it begins with a list.
        self._after = after or ""
        self._position = self._after
        self._delay = _FIRST_DELAY_SECONDS
        self._random = random.Random()
        self._last_problem = ""
        self._reset()
        _streams.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._connection: Connection | None = None

    def __iter__(self) -> Iterator[PageEvent]:
        return self

    def __next__(self) -> PageEvent:
        """The next event. Raises NotAvailable if the node's version has no page events, Denied if the client may not
        read, and ValueError if the node refuses the pools."""
        with self._lock:
            while not self._closed.is_set():
                connection = self._connection or self._connect()
                if connection is None:
                    self._pause()
                    continue
                answer = self._ask(connection)
                if answer is None:
                    self._drop()
                    self._pause()
                    continue
                self._delay = _FIRST_DELAY_SECONDS
                event = self._take(answer)
                if event is not None:
                    return event
            self._drop()
        raise StopIteration

    @property
    def is_connected(self) -> bool:
        """Whether the stream is connected to a node, as far as is known. If not, the last list may be out of date."""
        connection = self._connection
        return connection is not None and not connection.closed

    def close(self) -> None:
        """Ends the stream, even for a thread that waits for an event."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            connection.fail("the stream was closed")
        if self._lock.acquire(timeout=_CLOSE_SECONDS):
            try:
                self._drop()
            finally:
                self._lock.release()

    def __enter__(self) -> PageEventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()

    def _connect(self) -> Connection | None:
        """Makes a new connection that resumes at the last position valid on any connection; None without a node."""
        try:
            attachment = Attachment.connect(self._settings, lambda: None)
        except AttachError as error:
            problem = str(error)
            if problem != self._last_problem:
                self._settings.logger.warning(
                    "no page events from %s: %s; trying again", self._settings.socket, problem
                )
            self._last_problem = problem
            return None
        self._last_problem = ""
        self._connection = attachment.connection
        hello = attachment.hello
        if not hello.capabilities & protocol.CAN_TELL_EVENTS:
            self._drop()
            raise NotAvailable(
                f"node {hello.node_id} has version {hello.package_version}, which has no page events for clients; update the node"
            )
        if self._closed.is_set():
            self._drop()
            return None
        self._position = self._after
        return self._connection

    def _ask(self, connection: Connection) -> EventsAnswer | None:
        """Requests one event; None if the connection must be given up."""
        body = protocol.events_body(self._position, self._wire_pools)
        deadline = monotonic() + _WAIT_SECONDS
        call = connection.submit(protocol.EVENTS, body, deadline)
        if call is None or not connection.wait(call, deadline + _SILENCE_SECONDS):
            return None
        if call.status == protocol.BAD_REQUEST:
            raise ValueError(f"the node refuses this stream of page events: {call.body.decode(errors='replace')}")
        if call.status == protocol.DENIED:
            raise Denied(f"the node denies page events: {call.body.decode(errors='replace')}")
        if call.status != protocol.DONE:
            return None
        try:
            return protocol.decode_events(call.body, len(self._wire_pools))
        except Violation as violation:
            self._settings.logger.error("the node does not keep to the protocol: %s", violation)
            return None

    def _take(self, answer: EventsAnswer) -> PageEvent | None:
        """The event for callers in an answer, if any."""
        self._position = answer.position
        changes = tuple(self._changes(answer))
        match answer.kind:
            case protocol.EVENTS_RESET:
                # A list that was not sent completely cannot be resumed on another connection.
                self._after = ""
                return PageEvent("reset")
            case protocol.EVENTS_LISTED:
                return PageEvent("listed", changes) if changes else None
            case protocol.EVENTS_COMPLETE:
                self._after = answer.position
                return PageEvent("complete", position=answer.position)
            case protocol.EVENTS_CHANGED:
                self._after = answer.position
                return PageEvent("changed", changes, answer.position, answer.at_ms / 1000)
        return None

    def _changes(self, answer: EventsAnswer) -> Iterator[PageChange]:
        count = len(self._pools)
        for pool, tier, keys in answer.groups:
            if pool < count:
                for key in keys:
                    yield PageChange(key, self._pools[pool], tier)
                continue
            for key in keys:
                try:
                    yield PageChange(bytes.fromhex(key), self._pools[pool - count], tier)
                except ValueError:
                    # The key was not set by a client of this package.
                    continue

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.fail("the stream does not use it any more")
            connection.discard()

    def _pause(self) -> None:
        """Waits before the next connection; longer each time until an event arrives."""
        self._closed.wait(self._delay * self._random.uniform(0.5, 1.0))
        self._delay = min(_LAST_DELAY_SECONDS, 2 * self._delay)

    def after_fork(self) -> None:
        """Leaves the connection to the parent process. The child makes a new one for its next event."""
        connection = self._connection
        is_closed = self._closed.is_set()
        if connection is not None:
            connection.close_after_fork()
        self._reset()
        if is_closed:
            self._closed.set()


def _after_fork() -> None:
    for stream in list(_streams):
        stream.after_fork()


os.register_at_fork(after_in_child=_after_fork)
