"""Moves pages on the socket, where nothing can be mapped."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from .._wire import protocol
from .._wire.connection import Call
from .._wire.protocol import Violation
from ..attachment import Attachment
from ..requests import Requests, Told
from .slices import Limits, Slices
from .staged import Span

#: What is done with a page: its index and bytes, which belong to nobody else.
Visit = Callable[[int, memoryview], None]

#: Bytes of pages in one request or answer, unless a single page is larger.
_SLICE_BYTES: Final = 4 << 20
#: Requests of one call that are under way at once: the node works on one while another is on its way.
_UNDER_WAY_COUNT: Final = 2
#: Bytes of the lengths that come with pages.
_LENGTH_BYTES: Final = 4
#: An expiry, and counts.
_FIXED_BYTES: Final = 16


class SocketPages:
    """Pages as bytes on the socket of one connection, in slices.

    What is sent is sent from where it lies. What comes is received into memory of its own and copied once: an answer that
    comes late must not be written into memory of the caller.
    """

    def __init__(self, attachment: Attachment, requests: Requests) -> None:
        self._attachment = attachment
        self._requests = requests

    def write(self, keys: Sequence[str], sources: Sequence[Sequence[Span]], told: Told, deadline: float) -> list[bool]:
        """Sets pages from these places."""
        results = [False] * len(keys)
        hello = self._attachment.hello
        head_bytes = len(protocol.text16(told.pool)) + _FIXED_BYTES
        sizes = [sum(length for _, length in source) for source in sources]
        fits = [
            index
            for index, (key, size) in enumerate(zip(keys, sizes))
            if size <= hello.max_page_bytes
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
            parts = [_view(*part) for index in indices for part in sources[index]]
            call = self._requests.submit(self._attachment, protocol.SET_BYTES, body, deadline, parts)
            if call is None:
                break
            under_way.append((indices, call))
        while under_way:
            finish()
        return results

    def read(self, keys: Sequence[str], targets: Sequence[Sequence[Span]], told: Told, deadline: float) -> list[bool]:
        """Reads pages to these places."""
        results = [False] * len(keys)
        sizes = [sum(length for _, length in target) for target in targets]

        def visit(index: int, page: memoryview) -> None:
            if len(page) != sizes[index]:
                return
            at = 0
            for address, length in targets[index]:
                _view(address, length)[:] = page[at : at + length]
                at += length
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
        """Reads pages of any length; `visit` gets those that are there. `sizes`: those that are expected."""
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
                # An answer has much room: what did not fit is large.
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
        # Half of a body at most, so that keys and lengths have room beside the pages.
        return Limits(hello.max_keys, hello.max_body_bytes // 2, min(_SLICE_BYTES, hello.max_body_bytes // 2))


def _view(address: int, length: int) -> memoryview:
    """The bytes at an address; whoever has them keeps them there."""
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")
