"""Requests about keys, split to fit the node's limits and pipelined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ._wire import protocol
from ._wire.connection import LOST, PENDING, Call
from ._wire.deadline import is_reached
from ._wire.protocol import Hello, Violation
from .attachment import Attachment
from .counters import Counters
from .errors import NotAvailable
from .settings import Settings

#: Range of keys, from `low` to `high`, and their request.
Sent = tuple[int, int, Call]
Tail = Callable[[int, int], bytes]


class Told:
    """What the requests of one call say in addition to keys. All but the first are marked as continuing the call."""

    def __init__(
        self, pool: str, *, named: bool = False, hint: int = 0, expires_in_ms: int | None = None, priority: int = 0
    ) -> None:
        self.pool = pool
        self._named = named
        self._hint = hint
        self._expires_in_ms = expires_in_ms
        self._priority = priority
        self._has_begun = False

    def check(self, hello: Hello) -> None:
        """Raises NotAvailable if the pages are to expire but the node's pages cannot."""
        if self._expires_in_ms is not None and not hello.capabilities & protocol.CAN_EXPIRE:
            raise NotAvailable(
                f"expires_in needs a node whose pages can expire; node {hello.node_id} has version {hello.package_version}: update it"
            )

    def _flags(self, hello: Hello) -> bytes:
        # A priority is only a hint. On a node that does not know priorities, pages have the normal one.
        priority = self._priority if hello.capabilities & protocol.CAN_RANK else 0
        if not hello.capabilities & protocol.CAN_TAKE_HINTS:
            return protocol.flags_of(self._named, expires_in_ms=self._expires_in_ms, priority=priority)
        continues, self._has_begun = self._has_begun, True
        return protocol.flags_of(self._named, self._hint, continues, self._expires_in_ms, priority)

    def staged(self, hello: Hello, offset: int, room: int) -> bytes:
        """Head of GET_STAGED, before its keys."""
        return protocol.staged_head(self.pool, self._flags(hello), offset, room)

    def transfer(self, hello: Hello, pieces: int) -> bytes:
        """Head of GET and SET, before their keys."""
        return protocol.transfer_head(self.pool, self._flags(hello), pieces)

    def bytes(self, hello: Hello) -> bytes:
        """Head of GET_BYTES and SET_BYTES, before their keys."""
        return protocol.bytes_head(self.pool, self._flags(hello))


def _fit(keys: Sequence[str], room: int) -> bool:
    """Whether keys surely fit into `room` bytes of a body, however many bytes their characters take."""
    if len(keys) * (2 + protocol.MAX_TEXT_BYTES) + 4 <= room:
        return True
    return 4 + 2 * len(keys) + 4 * sum(map(len, keys)) <= room


def _no_tail(low: int, high: int) -> bytes:
    return b""


class Requests:
    """Sends requests about keys and reads their answers. Unexpected answers are misses; only `pin` raises for one."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters

    def send(
        self,
        attachment: Attachment,
        type_: int,
        head: Callable[[], bytes],
        keys: Sequence[str],
        tail: Tail,
        deadline: float,
        under_way: list[Call] | None = None,
        max_keys: int = 1 << 31,
    ) -> list[Sent]:
        """Sends all keys, in order. Keys that could not be sent are missing in the result. `head` makes the part of a
        request before its keys, `tail` the part after them."""
        limits = attachment.hello
        sent: list[Sent] = []
        step = min(max_keys, limits.max_keys)
        if 0 < len(keys) <= step:
            ranges = [(0, len(keys))]
        else:
            ranges = [(low, min(low + step, len(keys))) for low in range(0, len(keys), step)]
            ranges.reverse()
        next_head = head()
        while ranges:
            low, high = ranges.pop()
            body = next_head + protocol.encode_keys(keys[low:high]) + tail(low, high)
            if len(body) > limits.max_body_bytes:
                if high - low > 1:
                    middle = (low + high) // 2
                    ranges += ((middle, high), (low, middle))
                continue
            call = self.submit(attachment, type_, body, deadline, under_way=under_way)
            next_head = head() if ranges else b""
            if call is None:
                break
            sent.append((low, high, call))
        return sent

    def submit(
        self,
        attachment: Attachment,
        type_: int,
        body: bytes,
        deadline: float,
        pages: Sequence[memoryview] = (),
        under_way: list[Call] | None = None,
    ) -> Call | None:
        """Sends a request, as `Connection.submit` does, and counts it."""
        call = attachment.connection.submit(type_, body, deadline, under_way, pages=pages)
        if call is not None:
            self._counters.add("requests")
        return call

    def wait(self, attachment: Attachment, call: Call, deadline: float) -> bool:
        """Waits for an answer; returns whether its status is 0. A request that timed out is cancelled and abandoned."""
        if attachment.connection.wait(call, deadline):
            return self.is_done(attachment, call)
        if call.state == PENDING:
            if is_reached(deadline):
                self._counters.add("timeouts")
            attachment.connection.cancel(call, deadline)
            attachment.connection.abandon(call)
        return False

    def is_done(self, attachment: Attachment, call: Call) -> bool:
        """Whether an answer has status 0. Any other status is counted, and logged at DEBUG."""
        if call.state in (PENDING, LOST):
            return False
        if call.status == protocol.DONE:
            return True
        text = call.body[:500].decode(errors="replace")
        self.failed(attachment, f"request of type {call.type} has failed (status {call.status}): {text}")
        if call.status == protocol.DENIED and attachment.first_denial(call.type):
            # A missing permission deserves a warning, unlike ordinary misses.
            log, node = self._settings.logger, attachment.hello.node_id
            log.warning("node %s has denied a request, and everything of its kind is a miss: %s", node, text)
        return False

    def flags(self, attachment: Attachment, call: Call, count: int) -> list[bool]:
        """Decodes an answer of one byte per key; all False if it is not valid."""
        if self.is_done(attachment, call):
            try:
                return protocol.decode_flags(call.body, count)
            except Violation as violation:
                self.failed(attachment, str(violation))
        return [False] * count

    def per_key(
        self,
        attachment: Attachment,
        type_: int,
        head: bytes,
        keys: Sequence[str],
        deadline: float,
        tail: Tail = _no_tail,
    ) -> list[bool]:
        """Makes requests that are answered with one byte per key."""
        results = [False] * len(keys)
        sent = self.send(attachment, type_, lambda: head, keys, tail, deadline)
        for low, high, call in sent:
            if self.wait(attachment, call, deadline):
                results[low:high] = self.flags(attachment, call, high - low)
        return results

    def pin(self, attachment: Attachment, head: bytes, keys: Sequence[str], deadline: float) -> list[bool]:
        """Pins pages. Raises ValueError if the node does not allow the time, or a further name."""
        results = [False] * len(keys)
        for low, high, call in self.send(attachment, protocol.PIN, lambda: head, keys, _no_tail, deadline):
            if self.wait(attachment, call, deadline):
                results[low:high] = self.flags(attachment, call, high - low)
            elif call.state not in (PENDING, LOST) and call.status == protocol.BAD_REQUEST:
                raise ValueError(call.body.decode(errors="replace"))
        return results

    def send_only(
        self,
        attachment: Attachment,
        type_: int,
        head: Callable[[], bytes],
        keys: Sequence[str],
        deadline: float,
    ) -> None:
        """Makes requests whose answers do not matter, at least one."""
        if keys:
            calls = [call for _, _, call in self.send(attachment, type_, head, keys, _no_tail, deadline)]
        else:
            call = self.submit(attachment, type_, head() + protocol.encode_keys([]), deadline)
            calls = [] if call is None else [call]
        for call in calls:
            attachment.connection.abandon(call)

    def exists(
        self,
        attachment: Attachment,
        keys: Sequence[str],
        pool: str,
        suffixes: tuple[str, ...],
        per_key: bool,
        deadline: float,
        counts: bool,
    ) -> tuple[int, list[bool], bool]:
        """Returns the length of the leading run of keys that exist, one flag per key if `per_key`, and whether the node
        has counted the lookup. `counts` asks it to, which works only if one request suffices for all keys."""
        limits = attachment.hello
        head = protocol.exists_head(pool, suffixes, per_key)
        max_keys = max(1, limits.max_keys // max(1, len(suffixes)))
        is_counted = counts and len(keys) <= max_keys and _fit(keys, limits.max_body_bytes - len(head))
        if not is_counted and limits.capabilities & protocol.CAN_COUNT:
            head = protocol.exists_head(pool, suffixes, per_key, uncounted=True)
        flags = [False] * len(keys) if per_key else []
        prefix = 0
        sent = self.send(attachment, protocol.EXISTS, lambda: head, keys, _no_tail, deadline, max_keys=max_keys)
        answered = 0
        for low, high, call in sent:
            if not self.wait(attachment, call, deadline):
                continue
            try:
                found, found_flags = protocol.decode_exists(call.body, high - low, per_key)
            except Violation as violation:
                self.failed(attachment, str(violation))
                continue
            answered += 1
            if prefix == low:
                prefix += found
            if per_key:
                flags[low:high] = found_flags
        return prefix, flags, is_counted and answered == 1

    def failed(self, attachment: Attachment, problem: str) -> None:
        """Counts an unusable answer, and logs it at DEBUG."""
        self._counters.add("errors")
        self._settings.logger.debug("node %s: %s", attachment.hello.node_id, problem)
