"""A connection after HELLO: the node's limits, the regions registered on it, and its staging memory."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Final

from ._memory.region import Region
from ._memory.staging import Staging
from ._wire import protocol
from ._wire.connection import Connection
from ._wire.node_process import NodeProcess
from ._wire.protocol import Hello, Violation
from .settings import Settings, distrust_of


#: Constants of Linux, which an interpreter built for an old libc does not define.
_F_GET_SEALS: Final = 1034
_F_SEAL_SHRINK: Final = 2

#: Instants are rounded to this many seconds.
_INSTANT_STEP: Final = 1e-6

#: Used instead of a status: no node is at the descriptor socket, or it has not answered in time.
UNREACHABLE, LATE = -1, -2


class AttachError(Exception):
    """The node cannot be attached to now. The text says why."""


class Refused(AttachError):
    """The node refuses this client. The text says why."""


class Denied(Refused):
    """The node denies this client access because of its token, its user or the tag of its namespace."""


class Attachment:
    """All state that lasts as long as one connection."""

    def __init__(self, settings: Settings, connection: Connection, hello: Hello, process: NodeProcess | None) -> None:
        self.connection = connection
        self.hello = hello
        self.process = process
        self._settings = settings
        #: Whether a node that does not answer may be killed, which bounds how long calls in direct mode block.
        self.may_end_node = process is not None and settings.end_frozen_node and process.may_be_ended
        #: Set when the node no longer touches the memory of this connection's requests.
        self.fenced = False
        #: Calls whose memory the caller gets back at the latest when `fenced` is set or the process has ended.
        self.moving: list[object] = []
        #: IDs of regions whose pages the node moves directly.
        self.direct: frozenset[int] = frozenset()
        self.staging: Staging | None = None
        self._is_staging_refused = False
        #: Length of the pages that were read last, by pool, as a guess for the next ones.
        self.page_bytes: dict[str, int] = {}
        #: Whether to attach again, instead of doing without, if the node is late to answer at the descriptor socket.
        self.insists = True
        #: Set when the client has left this connection for one with another namespace.
        self.is_outdated = False
        #: Types of requests that the node has denied.
        self._denied: set[int] = set()

    @classmethod
    def connect(cls, settings: Settings, notify: Callable[[], None]) -> Attachment:
        """Connects to the node and exchanges HELLO. Raises AttachError."""
        deadline = monotonic() + settings.connect_timeout
        distrust = distrust_of(settings.socket)
        if distrust:
            raise AttachError(f"{distrust}; remove it, or name a socket in another folder")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(settings.connect_timeout)
            sock.connect(settings.socket)
        except OSError as error:
            sock.close()
            raise AttachError(str(error)) from None
        process = NodeProcess.behind(sock)
        connection = Connection(sock, notify)
        try:
            return cls.open(settings, connection, process, deadline)
        except AttachError as error:
            connection.fail(str(error))
            connection.discard()
            raise

    @classmethod
    def open(
        cls, settings: Settings, connection: Connection, process: NodeProcess | None, deadline: float
    ) -> Attachment:
        """Exchanges HELLO on a connection. Raises AttachError."""
        try:
            token = settings.shown_token()
        except (OSError, ValueError) as error:
            raise AttachError(f"the token cannot be read: {error}") from None
        body = protocol.hello_body(settings.name, os.getpid(), settings.namespace, compares_clocks=True, token=token)
        before = monotonic()
        call = connection.submit(protocol.HELLO, body, deadline)
        if call is None or not connection.wait(call, deadline):
            raise AttachError(connection.reason or "the node does not answer")
        if call.status != protocol.DONE:
            kind = Denied if call.status == protocol.DENIED else Refused
            raise kind(f"the node refuses: {call.body.decode(errors='replace')} (status {call.status})")
        try:
            hello = protocol.decode_hello(call.body)
        except Violation as violation:
            raise AttachError(str(violation)) from None
        connection.set_limits(hello.max_in_flight, hello.max_body_bytes)
        connection.says_instants = bool(hello.capabilities & protocol.CAN_TAKE_INSTANTS) and _is_same_clock(
            hello, before
        )
        if process is not None and not process.is_called(hello.process_id):
            process = None
        return cls(settings, connection, hello, process)

    def first_denial(self, request_type: int) -> bool:
        """Records the denial of a request of this type. Returns whether it is the first one."""
        is_first = request_type not in self._denied
        self._denied.add(request_type)
        return is_first

    @property
    def may_go_direct(self) -> bool:
        """Whether pages of a region with a descriptor can be moved directly."""
        if self.process is None or self._settings.mode not in ("auto", "direct"):
            return False
        # If a frozen node cannot be killed, a call could block forever, so this is only done on request.
        if not self.may_end_node and self._settings.mode != "direct":
            return False
        return bool(self.hello.capabilities & (protocol.CAN_TAKE_DESCRIPTORS | protocol.CAN_OPEN_FILES))

    @property
    def may_stage(self) -> bool:
        """Whether pages may move through staging memory. They may not if the mode is "bytes"."""
        capabilities, most = self.hello.capabilities, self.hello.max_staging_bytes
        is_possible = bool(capabilities & protocol.CAN_GIVE_STAGING) and most > 0 and not self._is_staging_refused
        return is_possible and self._settings.mode != "bytes"

    def mode_without_regions(self) -> str:
        """How pages of a region that the node can map would move."""
        if self.may_go_direct:
            return "direct"
        if self.may_stage:
            return "staged"
        return "bytes"

    def add_region(self, region: Region, deadline: float) -> str:
        """Registers a region in the best possible mode. Returns why that mode is not direct, or not the one of the
        settings; an empty string if it is. Raises AttachError."""
        reason = self._add_direct(region, deadline)
        if not reason:
            self.direct |= {region.region_id}
            region.mode = "direct"
            return ""
        if self.may_stage and self.ensure_staging(deadline):
            region.mode = "staged"
        elif self._add_file(region, deadline):
            self.direct |= {region.region_id}
            region.mode = "direct"
            reason = ""
        else:
            region.mode = "bytes"
            if self._settings.mode == "staged":
                why = "; its log says why" if self._is_staging_refused else ", which needs its native addon"
                reason = "the node gives no staging memory" + why
        return "" if region.mode == self._settings.mode else reason

    def drop_region(self, region: Region) -> None:
        """Records that the node no longer knows this region."""
        self.direct -= {region.region_id}

    def remove_region(self, region: Region, deadline: float) -> None:
        """Has the node release a region, and waits for it."""
        if region.region_id not in self.direct:
            return
        self.drop_region(region)
        call = self.connection.submit(protocol.UNREGION, protocol.number_body(region.region_id), deadline)
        if call is not None and not self.connection.wait(call, deadline):
            self.connection.abandon(call)

    def ensure_staging(self, deadline: float) -> bool:
        """Requests staging memory unless there is some. Returns whether there is. Raises AttachError."""
        if self.staging is None and self.may_stage:
            wanted = min(self._settings.staging_bytes, self.hello.max_staging_bytes)
            record = protocol.staging_record(self.hello.attach_token, wanted)
            status, length, descriptor = self._exchange(record, None, deadline)
            if status == LATE and self.insists:
                raise AttachError("the node did not give staging memory in time")
            self._is_staging_refused = status not in (protocol.DONE, LATE)
            if descriptor is None:
                return False
            if status == protocol.DONE and 0 < length <= wanted and _stays(descriptor, length):
                try:
                    self.staging = Staging(descriptor, length)
                except (OSError, ValueError):
                    return False
                return True
            os.close(descriptor)
            # The node would return the same unusable memory again.
            self._is_staging_refused = True
        return self.staging is not None

    def _add_direct(self, region: Region, deadline: float) -> str:
        if region.backing is None:
            return "the memory is not a shared mapping of a file"
        if self._settings.mode in ("staged", "bytes"):
            return f"mode is {self._settings.mode}"
        if self.process is None:
            return "the node's process cannot be seen from here, as from another PID namespace"
        if not self.hello.capabilities & (protocol.CAN_TAKE_DESCRIPTORS | protocol.CAN_OPEN_FILES):
            return "the node cannot map or open memory of clients"
        if not self.may_go_direct:
            return "the node could not be ended if it froze"
        if not self.hello.capabilities & protocol.CAN_TAKE_DESCRIPTORS:
            if self._settings.mode == "direct" and self._add_file(region, deadline):
                return ""
            return "the node does not take descriptors"
        record = protocol.region_record(self.hello.attach_token, region.region_id, region.writable, region.file_length)
        status, allowed, descriptor = self._exchange(record, region.backing.descriptor, deadline)
        if descriptor is not None:
            os.close(descriptor)
        if status == LATE and self.insists:
            raise AttachError("the node did not take a descriptor in time")
        if status == protocol.TOO_MUCH:
            return f"the node takes at most {allowed} bytes more of this process, and not {region.file_length} (status {status})"
        return "" if status == protocol.DONE else f"the node has refused the region (status {status})"

    def _add_file(self, region: Region, deadline: float) -> bool:
        if region.backing is None or self.process is None or not self.may_go_direct:
            return False
        if not self.hello.capabilities & protocol.CAN_OPEN_FILES or not self.process.shares_numbers:
            return False
        body = protocol.file_body(
            region.region_id, region.writable, region.file_length, os.getpid(), region.backing.descriptor
        )
        call = self.connection.submit(protocol.FILE, body, deadline)
        return call is not None and self.connection.wait(call, deadline) and call.status == protocol.DONE

    def _exchange(self, record: bytes, descriptor: int | None, deadline: float) -> tuple[int, int, int | None]:
        """Exchanges a record on the descriptor socket. Returns the status (or UNREACHABLE or LATE), a length, and the
        descriptor that came with the answer, which the caller must close."""
        received: list[int] = []
        answer = b""
        failure = UNREACHABLE
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(max(0.001, deadline - monotonic()))
                sock.connect(f"{self._settings.socket}.fds")
                socket.send_fds(sock, [record], [] if descriptor is None else [descriptor])
                while len(answer) < protocol.RECORD_ANSWER.size:
                    sock.settimeout(max(0.001, deadline - monotonic()))
                    data, descriptors = _receive(sock, protocol.RECORD_ANSWER.size - len(answer))
                    received += descriptors
                    if not data:
                        break
                    answer += data
        except TimeoutError:
            failure = LATE
        except OSError:
            pass
        kept = received.pop(0) if received else None
        for extra in received:
            with contextlib.suppress(OSError):
                os.close(extra)
        if len(answer) < protocol.RECORD_ANSWER.size:
            if kept is not None:
                os.close(kept)
            return failure, 0, None
        status, _, length = protocol.RECORD_ANSWER.unpack(answer)
        return status, length, kept


def _is_same_clock(hello: Hello, before: float) -> bool:
    """Whether the node reads the same monotonic clock: its reading lies between `before`, the request, and now."""
    return hello.instant is not None and before - _INSTANT_STEP <= hello.instant <= monotonic() + _INSTANT_STEP


def _stays(descriptor: int, length: int) -> bool:
    """Whether the file has `length` bytes and cannot be truncated. Touching missing pages would crash this process."""
    try:
        is_sealed = bool(fcntl.fcntl(descriptor, _F_GET_SEALS) & _F_SEAL_SHRINK)
    except OSError:
        return False
    return is_sealed and os.fstat(descriptor).st_size >= length


def _receive(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Like socket.recv_fds, but received descriptors are closed on exec."""
    descriptors = array.array("i")
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(4 * descriptors.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return data, list(descriptors)
