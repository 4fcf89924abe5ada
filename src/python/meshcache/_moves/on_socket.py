"""Moves pages on the socket, for use when no memory can be mapped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from .._memory.copies import copy
from .._wire import protocol
from .._wire.connection import Call
from .._wire.protocol import Violation
from ..attachment import Attachment
from ..requests import Requests, Told
from .slices import Limits, Slices

#: Takes a page: its index, and its bytes, which the callee may keep.
Visit = Callable[[int, memoryview], None]

#: Most bytes of pages in one request or answer, unless a single page is larger.
_SLICE_BYTES: Final = 4 << 20
#: Requests of one call in flight at a time, so that the node works on one while another one is transferred.
_UNDER_WAY_COUNT: Final = 2
#: Bytes of the length that comes with each page.
_LENGTH_BYTES: Final = 4
#: Bytes of the expiry and of counts.
_FIXED_BYTES: Final = 16


class SocketPages:
    """Pages as bytes on the socket of one connection, in slices.

    Pages are sent without a copy. Pages are received into separate memory and copied once, because a late answer must
    not be written into the caller's memory.
    """

    def __init__(self, attachment: Attachment, requests: Requests) -> None:
        self._attachment = attachment
        self._requests = requests

    def write(
        self, keys: Sequence[str], sources: Sequence[Sequence[memoryview]], told: Told, deadline: float
    ) -> list[bool]:
        """Sets pages from these sources. One result per page; those without bytes, or too long, are not set."""
        results = [False] * len(keys)
        hello = self._attachment.hello
        head_bytes = len(protocol.text16(told.pool)) + _FIXED_BYTES
        sizes = [sum(map(len, source)) for source in sources]
        fits = [
            index
            for index, (key, size) in enumerate(zip(keys, sizes))
            if 0 < size <= hello.max_page_bytes
            and head_bytes + len(key.encode()) + 2 + _LENGTH_BYTES + size <= hello.max_body_bytes
        ]
        slices = Slices([keys[index] for index in fits], [sizes[index] for index in fits])
        under_way: deque[tuple[list[int], Call]] = deque()

        def finish() -> None:
            indices, call = under_way.popleft()
            if self._requests.wait(self._attachment, call, deadline):
                for index, flag in zip(indices, self._requests.flags(self._attachment, call, len(indices))):
                    results[index] = flag

        while True:
            chosen, _ = slices.next(self._limits())
            if not chosen:
                break
            indices = [fits[index] for index in chosen]
            if len(under_way) >= _UNDER_WAY_COUNT:
                finish()
            body = told.bytes(hello) + protocol.encode_keys([keys[index] for index in indices])
            body += protocol.encode_lengths([sizes[index] for index in indices])
            parts = [part for index in indices for part in sources[index]]
            call = self._requests.submit(self._attachment, protocol.SET_BYTES, body, deadline, parts)
            if call is None:
                break
            under_way.append((indices, call))
        while under_way:
            finish()
        return results

    def read(
        self, keys: Sequence[str], targets: Sequence[Sequence[memoryview]], told: Told, deadline: float
    ) -> list[bool]:
        """Reads pages into these targets. One result per page."""
        results = [False] * len(keys)
        sizes = [sum(map(len, target)) for target in targets]

        def visit(index: int, page: memoryview) -> None:
            if len(page) != sizes[index]:
                return
            at = 0
            for part in targets[index]:
                copy(part, page[at : at + len(part)])
                at += len(part)
            results[index] = True

        self.fetch(keys, told, deadline, visit, sizes)
        return results

    def fetch(
        self,
        keys: Sequence[str],
        told: Told,
        deadline: float,
        visit: Visit,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """Reads pages of any length; `visit` gets the existing ones. `sizes` are the expected lengths, if known."""
        attachment = self._attachment
        slices = Slices(keys, sizes, attachment.page_bytes.get(told.pool, 0))
        under_way: deque[tuple[list[int], Call]] = deque()

        def take(index: int, length: int, page: memoryview) -> None:
            if length == protocol.ASK_AGAIN:
                again.append(index)
            elif length != protocol.MISS:
                if sizes is None:
                    attachment.page_bytes[told.pool] = slices.guess = max(length, 1)
                visit(index, page)

        def finish() -> None:
            indices, call = under_way.popleft()
            if not self._requests.wait(attachment, call, deadline):
                return
            try:
                protocol.decode_pages(call.body, len(indices), lambda i, length, page: take(indices[i], length, page))
            except Violation as violation:
                self._requests.failed(attachment, str(violation))
                again.clear()

        again: list[int] = []
        while True:
            while under_way and (slices.is_guessing or slices.is_empty or len(under_way) >= _UNDER_WAY_COUNT):
                finish()
                # A page that did not fit must be large, as an answer has much room.
                slices.ask_again(again, [_SLICE_BYTES] * len(again))
                again.clear()
            indices, _ = slices.next(self._limits())
            if not indices:
                break
            body = told.bytes(attachment.hello) + protocol.encode_keys([keys[index] for index in indices])
            call = self._requests.submit(attachment, protocol.GET_BYTES, body, deadline)
            if call is None:
                break
            under_way.append((indices, call))
        while under_way:
            finish()

    def _limits(self) -> Limits:
        hello = self._attachment.hello
        # Pages get at most half of a body, so that there is room for keys and lengths.
        return Limits(hello.max_keys, hello.max_body_bytes // 2, min(_SLICE_BYTES, hello.max_body_bytes // 2))
