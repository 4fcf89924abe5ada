"""Keeps a client attached to its node, and proves that an old connection's requests have ended."""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Final

from ._memory.region import Region
from ._memory.staging import Staging
from ._wire.connection import ANSWERED, LOST, PENDING, Call, Connection
from .attachment import Attachment, AttachError, Denied, Refused
from .counters import Counters
from .settings import Settings

_FIRST_DELAY_SECONDS: Final = 0.05
_LAST_DELAY_SECONDS: Final = 2.0
#: After a connection that has lasted this long, the next one is made without delay.
_GOOD_SECONDS: Final = 2.0
#: How often abandoned answers are read, and a silent node is checked.
_TICK_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 1.0
#: The connection to a silent node is given up after this.
_SILENT_SECONDS: Final = 2.0
#: How often to check for proof that a lost connection's requests have ended.
_PROOF_SECONDS: Final = 0.01
#: Attempts to attach to a node that is late to take regions; then their pages move in another way.
_LATE_MAX_COUNT: Final = 3
_READ_HANG_UP: Final = getattr(select, "POLLRDHUP", select.POLLHUP)

_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """Owns the connection and the thread that makes it. `attachment` is None while there is no node."""

    _thread: threading.Thread | None
    _wake_read: int
    _wake_write: int

    def __init__(self, settings: Settings, counters: Counters, on_fingerprint: Callable[[str | None], None]) -> None:
        """``on_fingerprint`` is called in a thread of its own when the node sends a fingerprint for this client."""
        self._settings = settings
        self._on_fingerprint = on_fingerprint
        self._counters = counters
        self._random = random.Random()
        self.attachment: Attachment | None = None
        self.regions: dict[int, Region] = {}
        self._boot_token = b""
        self._last_problem = ""
        #: Whether a node refused this client at the last attempt.
        self.is_refused = False
        #: Whether that was for lack of permission.
        self.is_denied = False
        self._stopping = False
        #: Attempts in a row that failed because an answering node did not take regions in time.
        self._late = 0
        self._reset()
        _links.add(self)

    def start(self) -> None:
        """Starts the thread unless it runs, and waits for its first attempt to attach."""
        with self._start_lock:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="meshcache", daemon=True)
                self._thread.start()
        self._tried.wait(2 * self._settings.connect_timeout)

    def current(self) -> Attachment | None:
        """The attachment for requests now, or None."""
        attachment = self.attachment
        if attachment is None:
            if self._thread is None:
                self.start()
                return self.attachment
            return None
        return None if attachment.connection.closed else attachment

    @property
    def changing(self) -> contextlib.AbstractContextManager[bool]:
        """Lock to hold while the settings change in the client and here."""
        return self._attach_lock

    def use(self, settings: Settings) -> None:
        """Leaves the node and attaches again with new settings. After this returns, no request uses the former ones."""
        with self._attach_lock:
            self._settings = settings
            attachment = self.attachment
            if attachment is not None:
                attachment.is_outdated = True
                attachment.connection.fail("the namespace of the client has changed")
        self._notify()

    def stop(self, wait: bool = True) -> None:
        """Ends the thread and the connection."""
        attachment = self.attachment
        if attachment is not None:
            if wait:
                attachment.connection.drain(monotonic() + self._settings.fence_timeout)
        self._stopping = True
        if attachment is not None:
            attachment.connection.fail("the client was closed")
        self._notify()
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join(2 * self._settings.connect_timeout + self._settings.fence_timeout)

    def add_region(self, region: Region, deadline: float) -> None:
        """Registers a region with the node, now or as soon as there is one."""
        self.current()
        with self._attach_lock:
            self.regions[region.region_id] = region
            attachment = self.attachment
            if attachment is not None:
                try:
                    self._add_region(attachment, region, deadline)
                except AttachError as error:
                    attachment.connection.fail(str(error))

    def staging(self, attachment: Attachment, deadline: float) -> Staging | None:
        """Staging memory of the connection, requested if there is none yet; None if the node gives none in time."""
        if attachment.staging is not None or not attachment.may_stage:
            return attachment.staging
        if not self._attach_lock.acquire(timeout=max(0.0, min(deadline - monotonic(), threading.TIMEOUT_MAX))):
            return attachment.staging
        try:
            attachment.ensure_staging(deadline)
        except AttachError:
            # It may come in time for a later call.
            return None
        finally:
            self._attach_lock.release()
        return attachment.staging

    def remove_region(self, region: Region, deadline: float) -> None:
        """Has the node, if there is one, release a region."""
        with self._attach_lock:
            self.regions.pop(region.region_id, None)
            attachment = self.attachment
        if attachment is not None:
            attachment.remove_region(region, deadline)

    def fence(self, attachment: Attachment, calls: list[Call], deadline: float) -> None:
        """Returns when the node no longer touches the memory of these calls, however long that takes.

        A node counts as frozen if this is still not proven `fence_timeout` seconds after the calls' deadline.
        """
        connection, process = attachment.connection, attachment.process
        until = max(monotonic(), deadline) + self._settings.fence_timeout
        if any(call.state == PENDING for call in calls):
            self._counters.add("fences")
        for call in calls:
            if call.state == PENDING:
                connection.cancel(call, until)
        has_acted = False
        while not self._is_fenced(attachment, calls):
            if not has_acted and monotonic() >= until:
                has_acted = True
                self._end_frozen_node(attachment)
            pending = next((call for call in calls if call.state == PENDING), None)
            if pending is not None:
                connection.wait(pending, monotonic() + _TICK_SECONDS)
            elif process is not None:
                process.wait(_PROOF_SECONDS)
            else:
                threading.Event().wait(_PROOF_SECONDS)

    def _is_fenced(self, attachment: Attachment, calls: list[Call]) -> bool:
        if all(call.state == ANSWERED or (call.state == LOST and attachment.fenced) for call in calls):
            return True
        return attachment.process is not None and attachment.process.wait(0)

    def _end_frozen_node(self, attachment: Attachment) -> None:
        process, log = attachment.process, self._settings.logger
        if process is not None and attachment.may_end_node and self._settings.end_frozen_node:
            log.error(
                "node %s (process %d) is frozen: killing it, so that it cannot write into memory that is used again",
                *self._names(attachment),
            )
            self._counters.add("nodes_ended")
            process.end()
        else:
            log.error("node %s (process %d) is frozen: calls in progress wait until it ends", *self._names(attachment))

    @staticmethod
    def _names(attachment: Attachment) -> tuple[str, int]:
        return attachment.hello.node_id, attachment.process.pid if attachment.process is not None else 0

    def _run(self) -> None:
        delay = 0.0
        while not self._is_over():
            began = monotonic()
            try:
                attachment = self._attach()
            except Exception:
                self._settings.logger.exception("attaching to the node at %s has failed", self._settings.socket)
                attachment = None
            self._tried.set()
            if attachment is not None:
                self._watch(attachment)
                self._lose(attachment)
                if monotonic() - began >= _GOOD_SECONDS or delay == 0.0:
                    # The next attempt is immediate. Later ones are delayed if the new connection does not last either.
                    delay = _FIRST_DELAY_SECONDS / 2
                    continue
            delay = min(_LAST_DELAY_SECONDS, max(_FIRST_DELAY_SECONDS, delay * 2))
            if self._is_waited_for():
                # A live node must not count as frozen only because it was not asked for proof.
                delay = _FIRST_DELAY_SECONDS
            self._sleep(delay * self._random.uniform(0.5, 1.0))
        for earlier in self._unfenced:
            earlier.connection.discard()

    def _is_over(self) -> bool:
        """Whether the thread may end. Even if the client is closed, calls may still wait for proof."""
        return self._stopping and not self._is_waited_for()

    def _is_waited_for(self) -> bool:
        return any(earlier.moving for earlier in self._unfenced)

    def _attach(self) -> Attachment | None:
        settings = self._settings
        ended = self._ended()
        try:
            attachment = Attachment.connect(settings, self._notify)
        except AttachError as error:
            self.is_refused, self.is_denied = isinstance(error, Refused), isinstance(error, Denied)
            self._problem(str(error))
            return None
        connection = attachment.connection
        if not self._fence_earlier(attachment, ended):
            # The node may have answered HELLO while requests of an earlier connection were in progress.
            connection.fail("an earlier connection has not ended")
            connection.discard()
            return None
        with self._attach_lock:
            deadline = monotonic() + settings.connect_timeout
            attachment.insists = self._late < _LATE_MAX_COUNT
            try:
                for region in list(self.regions.values()):
                    self._add_region(attachment, region, deadline)
                self._late = 0
            except AttachError as error:
                self._late += 1
                connection.fail(str(error))
            if settings is not self._settings:
                # The namespace was changed meanwhile; the next attempt uses the new one.
                connection.fail("the namespace of the client has changed")
                connection.discard()
                return None
            if connection.closed or self._stopping:
                attachment.connection.fail("closed while attaching")
                connection.discard()
                self._problem(connection.reason)
                return None
            self.attachment = attachment
        self._report(attachment)
        return attachment

    def _add_region(self, attachment: Attachment, region: Region, deadline: float) -> None:
        if not region.registered:
            return
        reason = attachment.add_region(region, deadline)
        log, wanted, name = self._settings.logger, self._settings.mode, region.name or region.region_id
        if not reason:
            log.info("region %s: pages go %s", name, region.mode)
        elif wanted == "auto":
            log.info("region %s: pages go %s: %s", name, region.mode, reason)
        else:
            log.warning("region %s: pages go %s, and not %s as asked for: %s", name, region.mode, wanted, reason)

    def _ended(self) -> list[Attachment]:
        """Earlier attachments whose connection the node has closed."""
        return [earlier for earlier in self._unfenced if earlier.connection.finish(0)]

    def _fence_earlier(self, attachment: Attachment, ended: list[Attachment]) -> bool:
        """Marks earlier attachments as fenced whose connections the node had closed before this HELLO: it answers HELLO
        only after their requests have ended. Returns False if it has not closed one of them."""
        for earlier in list(self._unfenced):
            if earlier in ended and earlier.hello.boot_token == attachment.hello.boot_token:
                earlier.fenced = True
            if earlier.fenced or earlier.process is None or earlier.process.wait(0):
                earlier.connection.discard()
                self._unfenced.remove(earlier)
        return all(earlier.hello.boot_token != attachment.hello.boot_token for earlier in self._unfenced)

    def _report(self, attachment: Attachment) -> None:
        log, hello = self._settings.logger, attachment.hello
        restarted = self._boot_token not in (b"", hello.boot_token)
        what = "attached again" if self._boot_token else "attached"
        also = " (the node has restarted)" if restarted else ""
        # How pages move is logged for each region when it is registered; it is not known without regions.
        log.info("%s to node %s at %s%s", what, hello.node_id, self._settings.socket, also)
        if self._settings.mode == "staged" and not attachment.may_stage:
            log.warning(
                "pages go bytes, and not staged as asked for: the node gives no staging memory, which needs its native addon"
            )
        if self._boot_token:
            self._counters.add("reconnects")
        self._boot_token = hello.boot_token
        self._last_problem = ""

    @property
    def mode(self) -> str:
        """How pages of the largest region move now; without regions, how they would move."""
        attachment = self.current()
        if attachment is None:
            return "none"
        regions = list(self.regions.values())
        if not regions:
            return attachment.mode_without_regions()
        return max(regions, key=lambda region: region.length).mode

    @property
    def problem(self) -> str:
        """Why the last attempt to attach failed; empty if it succeeded."""
        return self._last_problem

    def _problem(self, problem: str) -> None:
        """Logs a problem, once, that prevents attaching."""
        if problem != self._last_problem and not self._stopping:
            self._settings.logger.warning("no node at %s: %s; everything is a miss", self._settings.socket, problem)
        self._last_problem = problem

    def _watch(self, attachment: Attachment) -> None:
        """Watches a connection until it is lost, and reads abandoned answers."""
        connection = attachment.connection
        poll = select.poll()
        poll.register(connection.fileno(), _READ_HANG_UP)
        poll.register(self._wake_read, select.POLLIN)
        silent_since: float | None = None
        while not connection.closed and not self._stopping:
            is_busy = connection.abandoned > 0 or connection.silent
            events = dict(poll.poll((_TICK_SECONDS if is_busy else _IDLE_SECONDS) * 1000))
            self._drain_wake()
            if not events:
                connection.listen()
            if connection.has_fingerprints:
                # An adapter may wait for calls in progress, which need this thread.
                threading.Thread(
                    target=self._follow, args=(connection,), name="meshcache-fingerprint", daemon=True
                ).start()
            if connection.closed:
                return
            if connection.fileno() in events:
                connection.read_to_end()
            elif connection.abandoned > 0:
                connection.serve(_TICK_SECONDS)
            if not connection.silent:
                silent_since = None
            elif silent_since is None:
                silent_since = monotonic()
            elif monotonic() - silent_since > _SILENT_SECONDS:
                connection.fail("the node is silent")

    def _follow(self, connection: Connection) -> None:
        with self._follow_lock:
            for fingerprint in connection.take_fingerprints():
                try:
                    self._on_fingerprint(fingerprint)
                except Exception:
                    self._settings.logger.exception(
                        "the client was told a fingerprint, and switching to its pages has failed"
                    )

    def _lose(self, attachment: Attachment) -> None:
        connection = attachment.connection
        self.attachment = None
        self._unfenced.append(attachment)
        for region in list(self.regions.values()):
            region.mode = "none"
        if attachment.staging is not None:
            attachment.staging.close()
        connection.fail("closed")
        connection.finish(monotonic() + self._settings.fence_timeout)
        log = self._settings.logger
        if attachment.is_outdated:
            log.info("left node %s: %s", attachment.hello.node_id, connection.reason)
        elif not self._stopping:
            self._counters.add("connections_lost")
            log.warning("lost node %s: %s; everything is a miss", attachment.hello.node_id, connection.reason)

    def _notify(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _sleep(self, seconds: float) -> None:
        """Sleeps, but only until the node closes an earlier connection, which proves that it is not frozen."""
        silent = [earlier for earlier in self._unfenced if not earlier.connection.ended_by_node]
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for earlier in silent:
            poll.register(earlier.connection.fileno(), select.POLLIN)
        until = monotonic() + seconds
        while not self._is_over() and monotonic() < until:
            poll.poll((until - monotonic()) * 1000 + 1)
            self._drain_wake()
            if any(earlier.connection.finish(0) for earlier in silent):
                return

    def _drain_wake(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake_read, 4096)

    def _reset(self) -> None:
        """Starts afresh: no thread, no connection, and new locks."""
        self._start_lock = threading.Lock()
        self._attach_lock = threading.RLock()
        self._follow_lock = threading.Lock()
        self._tried = threading.Event()
        self._thread = None
        self._unfenced: list[Attachment] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def _close_wake(self) -> None:
        for descriptor in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self._close_wake()

    def after_fork(self) -> None:
        """Leaves the connection to the parent process. The next call in the child makes a new one."""
        attachment, self.attachment = self.attachment, None
        for earlier in [*self._unfenced, *([] if attachment is None else [attachment])]:
            earlier.connection.close_after_fork()
        self._close_wake()
        self._reset()
        self._boot_token = b""
        for region in self.regions.values():
            region.mode = "none"


def _after_fork() -> None:
    for link in list(_links):
        link.after_fork()


os.register_at_fork(after_in_child=_after_fork)
