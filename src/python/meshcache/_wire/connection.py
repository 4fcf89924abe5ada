"""A connection to a node: requests from many threads, answers in any order."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from socket import MSG_DONTWAIT
from time import monotonic
from typing import Final

from . import protocol
from .deadline import Deadline, EndableDeadline
from .protocol import Violation
from .receiver import Receiver

PENDING: Final = 0
ANSWERED: Final = 1
LOST: Final = 2

#: Longest single wait for the socket, so that a thread notices when another one has given up the connection.
_SLICE_SECONDS: Final = 0.1
#: The same as a `struct timeval`.
_SLICE: Final = struct.pack("ll", 0, int(_SLICE_SECONDS * 1e6))
#: Time for which a thread that waits for an answer looks for it without sleeping: a processor that sleeps takes tens of
#: microseconds to wake up. A node that sleeps must be able to answer within this time; otherwise both sides sleep in
#: each call, each because the other one has. With one processor, the node could not answer meanwhile.
_SPIN_SECONDS: Final = 300e-6 if len(os.sched_getaffinity(0)) > 1 else 0.0
#: Time without looking after it was in vain: the answer takes longer, or the node waits for this processor. It doubles
#: each time, and halves when an answer is found.
_REST_MIN_SECONDS: Final = 1e-3
_REST_MAX_SECONDS: Final = 0.1
#: A thread that still seems to use a closed connection after this time was interrupted.
_INTERRUPTED_SECONDS: Final = 5.0
#: An answer that takes longer than this is overdue; the node is then given _PROBE_SECONDS to answer a PING.
_OVERDUE_SECONDS: Final = 0.25
_PROBE_SECONDS: Final = 0.05
#: Most pieces of memory sent in one system call; the kernel allows 1,024.
_PARTS_AT_ONCE: Final = 256
#: A node that sends nothing for this long, although a request is waiting, counts as frozen.
_SILENCE_SECONDS: Final = 1.0


def _node_milliseconds(left: float) -> int:
    """The time limit for the node. It ends a little before the caller's deadline, so that answers arrive in time."""
    left_ms = int(min(left * 1000, 0xFFFFFFF))
    return max(1, left_ms * 9 // 10)


class Call:
    """A request in progress. Only the thread that made it waits for it."""

    __slots__ = ("abandoned", "body", "keep", "request_id", "sent_at", "state", "status", "type", "waiting", "wake")

    #: Held while the call's thread sleeps; None until it does so for the first time.
    wake: threading.Lock | None

    def __init__(self, type_: int, keep: object = None) -> None:
        self.type = type_
        #: Object that must live until this call is answered or lost.
        self.keep = keep
        self.state = PENDING
        self.status = 0
        self.body = b""
        self.request_id = 0
        self.sent_at = 0.0
        self.waiting = False
        self.abandoned = False
        self.wake = None

    def signal(self) -> None:
        """Wakes the thread that waits for this call. Repeated signals count as one."""
        if self.wake is not None:
            with contextlib.suppress(RuntimeError):
                self.wake.release()


class Connection:
    """Requests and answers over a connected socket, which it owns.

    There is no dedicated reader thread: one of the waiting threads has the read role and hands the others their
    answers. When it has its own answer, it wakes another waiting thread, which takes over the role.
    """

    def __init__(self, sock: socket.socket, notify: Callable[[], None]) -> None:
        # Reads end after _SLICE_SECONDS. Other uses do not block.
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SLICE)
        self._sock = sock
        #: Called when the background thread has something to do: the connection is lost, or a call was abandoned.
        self._notify = notify
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._read_role = threading.Lock()
        self._receiver = Receiver(self._deliver)
        self._read_poll = select.poll()
        #: Until then no thread looks for answers without sleeping.
        self._rest_until = 0.0
        self._rest = _REST_MIN_SECONDS
        self._read_poll.register(sock, select.POLLIN)
        self._write_poll = select.poll()
        self._write_poll.register(sock, select.POLLOUT)
        self._pending: dict[int, Call] = {}
        #: Requests that wait until fewer are in flight, in their order, by the calls that their threads wait for.
        self._room: OrderedDict[Call, Call] = OrderedDict()
        self._next_id = 1
        self._max_in_flight = 1
        self._abandoned = 0
        self._heard_at = monotonic()
        self.closed = False
        self.reason = ""
        #: Whether the node, or the kernel on its behalf, has ended the connection.
        self.ended_by_node = False
        #: Whether the node counts as frozen. If so, requests are refused until it sends something.
        self.silent = False
        self._is_draining = False
        #: Whether requests carry the time of their call, because the node supports that and reads the same clock.
        self.says_instants = False
        self._fingerprints: list[str | None] = []
        #: The last PING sent to find out whether the node answers.
        self._probe: Call | None = None

    def fileno(self) -> int:
        """Descriptor of the socket."""
        return self._sock.fileno()

    def listen(self) -> None:
        """Reads unsolicited messages if no call is in progress, as no other thread reads then."""
        if not self._pending:
            self._read(self._read_until, None, 0.0, True)
            self._promote()

    @property
    def has_fingerprints(self) -> bool:
        """Whether the node has sent fingerprints that were not taken yet."""
        return len(self._fingerprints) > 0

    def take_fingerprints(self) -> list[str | None]:
        """Takes the fingerprints that the node has sent since the last call, oldest first. None: no fingerprint."""
        with self._lock:
            told, self._fingerprints = self._fingerprints, []
        return told

    @property
    def abandoned(self) -> int:
        """Number of requests in progress that no thread waits for."""
        return self._abandoned

    def set_limits(self, max_in_flight: int, max_body_bytes: int) -> None:
        """Applies limits from the node's answer to HELLO."""
        self._max_in_flight = max_in_flight
        self._receiver.max_body_bytes = max_body_bytes

    def submit(
        self,
        type_: int,
        body: bytes,
        deadline: float,
        under_way: list[Call] | None = None,
        keep: object = None,
        pages: Sequence[memoryview] = (),
    ) -> Call | None:
        """Sends a request. None means that nothing was sent that a node could act on.

        The call is in `under_way`, and refers to `keep`, before the first byte is sent, whatever interrupts this.
        `pages` are views of bytes that are the end of the body; they are sent without a copy.
        """
        call = Call(type_, keep)
        try:
            if not self._admit(call, deadline):
                return None
            if under_way is not None:
                under_way.append(call)
            call.sent_at = sent_at = monotonic()
            left = deadline - sent_at
            page_bytes = sum(map(len, pages)) if pages else 0
            deadline_ms = _node_milliseconds(left)
            asked: float | None = None
            if self.says_instants:
                asked = deadline.asked if isinstance(deadline, Deadline) else sent_at
                deadline_ms += int((sent_at - asked) * 1000)
            head = protocol.frame(type_, call.request_id, deadline_ms, body, page_bytes, asked)
            if left > 0 and self._send(head, deadline, pages):
                return call
            self._forget(call)
            if under_way is not None:
                under_way.remove(call)
            return None
        except BaseException:
            if call.request_id > 0:
                # It is unknown whether the request was sent, so it may never be answered.
                self.fail("interrupted")
            raise

    def wait(self, call: Call, deadline: float) -> bool:
        """Waits for a call; True if it is answered. False on a timeout, or if the connection is lost (state LOST)."""
        call.waiting = True
        if isinstance(deadline, EndableDeadline):
            deadline.ending.wake = partial(self._hurry, call)
        try:
            while call.state == PENDING:
                if self._read(self._read_until, call, deadline):
                    break
                left = deadline - monotonic()
                if left <= 0:
                    break
                if call.wake is None:
                    wake = threading.Lock()
                    wake.acquire()
                    call.wake = wake
                    # A reader that has released its role since found no lock with which to wake this thread.
                    continue
                call.wake.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            call.waiting = False
            self._promote()
        if call.state == PENDING:
            self._note_silence()
        return call.state == ANSWERED

    def _hurry(self, call: Call) -> None:
        """Has the thread that waits for a call look at its deadline again; without waiting, from another thread."""
        call.signal()
        if call.state == PENDING and call.request_id > 0:
            # If that thread reads from the socket, the answer to the ended request wakes it.
            self.cancel(call, monotonic())

    def is_answering(self) -> bool:
        """Whether the node answers. If an answer is overdue, a PING is sent, which the node answers without waiting."""
        with self._lock:
            if self.closed or self.silent:
                return False
            if self._silent_seconds() <= _OVERDUE_SECONDS:
                return True
            if self._probe is not None and self._probe.state == PENDING:
                return False
        deadline = monotonic() + _PROBE_SECONDS
        probe = self.submit(protocol.PING, b"", deadline)
        if probe is None:
            return False
        self._probe = probe
        if self.wait(probe, deadline):
            return True
        self.abandon(probe)
        return False

    def cancel(self, call: Call, deadline: float) -> None:
        """Asks the node to end a request as soon as it can."""
        self.tell(protocol.CANCEL, protocol.number_body(call.request_id), deadline)

    def tell(self, type_: int, body: bytes, deadline: float) -> bool:
        """Sends a message that has no answer. False means that nothing was sent that a node could act on."""
        with self._lock:
            request_id = self._take_id()
        return self._send(protocol.frame(type_, request_id, 0, body), deadline)

    def abandon(self, call: Call) -> None:
        """Stops waiting for a call. The next reader takes its answer."""
        with self._lock:
            is_pending = call.state == PENDING and not call.abandoned
            if is_pending:
                call.abandoned = True
                self._abandoned += 1
        if is_pending:
            self._notify()

    def serve(self, seconds: float) -> None:
        """Reads answers to abandoned calls, if no other thread reads."""
        self._read(self._read_until, None, monotonic() + seconds)
        self._promote()

    def read_to_end(self) -> None:
        """Reads what the node sent before it closed the connection, then fails."""
        if not self._read_role.acquire(timeout=_SLICE_SECONDS):
            return
        try:
            self._read_until(None, monotonic() + _SLICE_SECONDS, True)
        finally:
            self._read_role.release()
            self._promote()

    def drain(self, deadline: float) -> None:
        """Refuses new requests, cancels those in progress, and waits until they have ended."""
        with self._lock:
            self._is_draining = True
            calls = list(self._pending.values())
            self._lose(self._room)
            self._room.clear()
        for call in calls:
            self.cancel(call, deadline)
        fence = self.submit(protocol.FENCE, protocol.number_body(0), deadline) if calls else None
        if fence is not None:
            self.wait(fence, deadline)

    def fail(self, reason: str, *, ended_by_node: bool = False) -> None:
        """Ends the connection. All calls are lost, and it is unknown what the node does with them."""
        with self._lock:
            self.ended_by_node |= ended_by_node
            if self.closed:
                return
            self.closed = True
            self.reason = reason
            self._lose(self._pending.values())
            self._pending.clear()
            self._lose(self._room)
            self._room.clear()
            self._abandoned = 0
        # The node sees the shutdown, ends the requests in progress, and closes its side; see finish().
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        self._notify()

    def _lose(self, calls: Iterable[Call]) -> None:
        """Ends calls without an answer. The caller holds the lock."""
        for call in calls:
            call.state = LOST
            call.keep = None
            call.signal()

    def finish(self, deadline: float) -> bool:
        """After fail(): waits until the node has closed its side, then closes the socket. False if it has not yet."""
        with self._last_use():
            while not self.ended_by_node:
                left = deadline - monotonic()
                self._read_poll.poll(max(0.0, left) * 1000)
                try:
                    while len(self._sock.recv(1 << 16, MSG_DONTWAIT)) > 0:
                        pass
                    self.ended_by_node = True
                except BlockingIOError:
                    if left <= 0:
                        return False
                except OSError:
                    self.ended_by_node = True
            self._sock.close()
            return True

    def discard(self) -> None:
        """After fail(): closes the socket, whether or not the node has closed its side."""
        with self._last_use():
            self._sock.close()

    @contextlib.contextmanager
    def _last_use(self) -> Iterator[None]:
        """After fail(): waits until no thread reads or sends, except threads that were interrupted as they began to."""
        if not self._read_role.acquire(timeout=_INTERRUPTED_SECONDS):
            self._read_role = threading.Lock()
            self._read_role.acquire()
        if not self._send_lock.acquire(timeout=_INTERRUPTED_SECONDS):
            self._send_lock = threading.Lock()
            self._send_lock.acquire()
        try:
            yield
        finally:
            self._send_lock.release()
            self._read_role.release()

    def close_after_fork(self) -> None:
        """Closes the child process's copy of the socket, and leaves the connection to the parent."""
        self.closed = True
        self._sock.close()

    def _admit(self, call: Call, deadline: float) -> bool:
        """Waits until a request may be in flight: first come, first served. False on a timeout, a lost connection or a
        silent node, and for all but the last request of a connection that ends."""
        with self._lock:
            if self.closed or self.silent or (self._is_draining and call.type != protocol.FENCE):
                return False
            if len(self._pending) < self._max_in_flight and not self._room:
                self._take_place(call)
                return True
            ticket = Call(0)
            self._room[ticket] = call
        try:
            self.wait(ticket, deadline)
        finally:
            with self._lock:
                self._room.pop(ticket, None)
        return call.request_id > 0

    def _take_place(self, call: Call) -> None:
        """Puts a request in flight. The caller holds the lock."""
        call.request_id = self._take_id()
        self._pending[call.request_id] = call

    def _give_room(self) -> None:
        """Puts the first waiting request in flight. The caller holds the lock, and has taken one out."""
        if self._room:
            ticket, call = self._room.popitem(last=False)
            self._take_place(call)
            ticket.state = ANSWERED
            ticket.signal()

    def _take_id(self) -> int:
        request_id = self._next_id
        while request_id in self._pending:
            request_id = request_id % 0xFFFFFFFF + 1
        self._next_id = request_id % 0xFFFFFFFF + 1
        return request_id

    def _forget(self, call: Call) -> None:
        with self._lock:
            self._pending.pop(call.request_id, None)
            self._give_room()

    def _send(self, data: bytes, deadline: float, pages: Sequence[memoryview] = ()) -> bool:
        """Sends all of it, or nothing that matters; if part of it was sent, the connection ends."""
        # A call that is ended early sends the rest of its request, because the connection belongs to others as well.
        deadline = float(deadline)
        try:
            if not self._send_lock.acquire(False):
                left = max(0.0, min(deadline - monotonic(), threading.TIMEOUT_MAX))
                if not self._send_lock.acquire(timeout=left):
                    return False
            try:
                if self.closed:
                    return False
                sent = 0
                if not pages:
                    try:
                        sent = self._sock.send(data, MSG_DONTWAIT)
                    except BlockingIOError:
                        pass
                    if sent == len(data):
                        return True
                return self._send_rest([memoryview(data)[sent:], *pages], deadline, sent > 0)
            finally:
                self._send_lock.release()
        except OSError as error:
            self.fail(str(error), ended_by_node=True)
            return False
        except BaseException:
            # It is unknown what was sent, and whether the lock was released.
            self.fail("interrupted")
            raise

    def _send_rest(self, parts: list[memoryview], deadline: float, has_begun: bool) -> bool:
        """Sends all parts. `has_begun`: the parts before them were sent. The caller holds the send lock."""
        at = 0
        while at < len(parts):
            try:
                sent = self._sock.sendmsg(parts[at : at + _PARTS_AT_ONCE], [], MSG_DONTWAIT)
            except BlockingIOError:
                left = deadline - monotonic()
                if left <= 0:
                    if has_begun:
                        self.fail("the node does not take requests")
                    return False
                self._wait_to_send(min(left, _SLICE_SECONDS))
                if self.closed:
                    return False
                continue
            has_begun = has_begun or sent > 0
            while at < len(parts) and sent >= len(parts[at]):
                sent -= len(parts[at])
                at += 1
            if sent > 0:
                parts[at] = parts[at][sent:]
        return True

    def _wait_to_send(self, seconds: float) -> None:
        """Waits for room in the socket. Reads answers meanwhile, as the node may not read requests until then."""

        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        if self._read(self._read_arrived, poll, seconds):
            self._promote()
        else:
            self._write_poll.poll(seconds * 1000)

    def _read(self, read: Callable[..., None], *args: object) -> bool:
        """Takes the read role and calls `read`. False if another thread has it. The caller promotes another thread."""
        try:
            if not self._read_role.acquire(False):
                return False
            try:
                read(*args)
            finally:
                self._read_role.release()
        except BaseException:
            # The role may have been taken just before the interruption, and would never be released.
            self.fail("interrupted")
            raise
        return True

    def _read_until(self, call: Call | None, deadline: float, to_end: bool = False) -> None:
        """Hands out answers until the call has ended or its time is over. The caller has the read role."""
        try:
            while not self.closed and (to_end or (self._abandoned > 0 if call is None else call.state == PENDING)):
                left = deadline - monotonic()
                try:
                    if left > _SLICE_SECONDS:
                        self._look()
                        goes_on = self._receiver.receive(self._sock)
                    elif self._read_poll.poll(max(0.0, left) * 1000):
                        goes_on = self._receiver.receive(self._sock, MSG_DONTWAIT)
                    elif left <= 0:
                        return
                    else:
                        continue
                except BlockingIOError:
                    continue
                self._heard_at = monotonic()
                self.silent = False
                if not goes_on:
                    self.fail("the node has closed the connection", ended_by_node=True)
                elif left <= 0:
                    return
        except OSError as error:
            self.fail(str(error), ended_by_node=True)
        except Violation as violation:
            self.fail(f"the node does not keep to the protocol: {violation}")
        except BaseException:
            # Part of an answer may be lost.
            self.fail("interrupted")
            raise

    def _look(self) -> None:
        """Looks for an answer for a moment without sleeping. The caller has the read role."""
        now = monotonic()
        if now < self._rest_until:
            return
        until = now + _SPIN_SECONDS
        while now < until:
            if self._read_poll.poll(0):
                self._rest = max(self._rest / 2, _REST_MIN_SECONDS)
                return
            now = monotonic()
        self._rest_until = now + self._rest
        self._rest = min(2 * self._rest, _REST_MAX_SECONDS)

    def _read_arrived(self, poll: select.poll, seconds: float) -> None:
        """Reads what has arrived when `poll` reports an event, or after this time. The caller has the read role."""
        poll.poll(seconds * 1000)
        self._read_until(None, 0.0, True)

    def _deliver(self, type_: int, status: int, request_id: int, body: bytes) -> None:
        if request_id == 0:
            self._deliver_notice(type_, status, body)
            return
        with self._lock:
            call = self._pending.get(request_id)
            if call is None or call.type != type_:
                raise Violation(f"an answer of type {type_} to request {request_id}, which is not under way")
            call.status = status
            call.body = body
            call.keep = None
            call.state = ANSWERED
            # Only now, so that an interruption before this loses the call, and nobody waits for it forever.
            del self._pending[request_id]
            self._abandoned -= call.abandoned
            if self._room:
                self._give_room()
        if call.wake is not None:
            call.signal()

    def _deliver_notice(self, type_: int, status: int, body: bytes) -> None:
        """Takes a message that answers no request."""
        if type_ == protocol.FINGERPRINT:
            fingerprint = protocol.decode_fingerprint_notice(body)
            with self._lock:
                self._fingerprints.append(fingerprint)
            self._notify()
            return
        text = body[:200].decode(errors="replace")
        if status != protocol.CLOSING:
            raise Violation(f"status {status}: {text}")
        self.fail(text)

    def _promote(self) -> None:
        """Wakes a waiting thread if no thread reads."""
        if not (self._pending or self._room) or self._read_role.locked():
            return
        with self._lock:
            for call in self._pending.values():
                if call.waiting:
                    call.signal()
                    return
            for call in self._room:
                if call.waiting:
                    call.signal()
                    return

    def _note_silence(self) -> None:
        with self._lock:
            if self.silent:
                return
            self.silent = self._silent_seconds() > _SILENCE_SECONDS
        if self.silent:
            self._notify()

    def _silent_seconds(self) -> float:
        """How long the node has sent nothing while a request waits; 0 if none waits. The caller holds the lock."""
        oldest = next(iter(self._pending.values()), None)
        if oldest is None or oldest.sent_at == 0:
            return 0.0
        return monotonic() - max(oldest.sent_at, self._heard_at)
