"""Moves pages through staging memory, which both sides map. Each side copies between it and its own memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final

from .._memory.copies import copy
from .._memory.staging import Slot, Staging
from .._wire import protocol
from .._wire.connection import PENDING, Call
from .._wire.deadline import is_reached
from .._wire.protocol import Violation
from ..attachment import Attachment
from ..counters import Counters
from ..requests import Requests, Told
from .slices import Limits, Slices

#: Takes a page: its index, and its bytes, which are only valid during the call.
Take = Callable[[int, memoryview], None]

#: Most bytes of pages in one request, unless a single page is larger, so that they stay in the processor's cache.
_SLICE_BYTES: Final = 4 << 20
#: A request takes at most the staging memory divided by this, so that other calls find room.
_SLICE_FRACTION: Final = 4
#: Requests of one call in flight at a time.
_UNDER_WAY_COUNT: Final = 4
#: Longest single wait for slots of other calls: those of interrupted calls become free without a word.
_PAUSE_SECONDS: Final = 0.01


class StagedPages:
    """Pages that go through the staging memory of one connection."""

    def __init__(self, attachment: Attachment, staging: Staging, requests: Requests, counters: Counters) -> None:
        self._attachment = attachment
        self._staging = staging
        self._requests = requests
        self._counters = counters

    def write(
        self, keys: Sequence[str], sources: Sequence[Sequence[memoryview]], told: Told, deadline: float
    ) -> list[bool]:
        """Sets pages from these sources, none of which is longer than the staging memory."""
        return self._move(protocol.SET, keys, sources, told, deadline)

    def read(
        self, keys: Sequence[str], targets: Sequence[Sequence[memoryview]], told: Told, deadline: float
    ) -> list[bool]:
        """Reads pages into these targets, none of which is longer than the staging memory."""
        return self._move(protocol.GET, keys, targets, told, deadline)

    def fetch(self, keys: Sequence[str], told: Told, deadline: float, take: Take) -> list[int]:
        """Reads pages of any length; `take` gets the existing ones. Returns indices of those that cannot be staged."""
        page_bytes = self._attachment.page_bytes
        slices = Slices(keys, guess=min(page_bytes.get(told.pool, 0), self._staging.length))
        too_long: list[int] = []
        limits = self._limits()
        with _StagedCall(self._attachment, self._staging, self._counters, deadline) as call:

            def done(slot: Slot, room: int, indices: list[int], answered: Call) -> None:
                places = self._places(answered, len(indices), room)
                longest = 0
                again: list[tuple[int, int]] = []
                for index, (at, length) in zip(indices, places):
                    if length > longest:
                        longest = length
                    if at < protocol.ASK_AGAIN:
                        start = slot.offset + at
                        take(index, self._staging.view[start : start + length])
                    elif at == protocol.ASK_AGAIN and length > self._staging.length:
                        too_long.append(index)
                    elif at == protocol.ASK_AGAIN:
                        again.append((index, length))
                if longest > 0:
                    page_bytes[told.pool] = slices.guess = min(longest, self._staging.length)
                if again:
                    slices.ask_again([index for index, _ in again], [length for _, length in again])

            while True:
                if slices.is_guessing or slices.is_empty:
                    call.finish()
                indices, size = slices.next(limits)
                if not indices:
                    break
                # Pages of unknown length get all the room that a request may have.
                room = size or limits.bytes
                slot = call.allocate(room)
                if slot is None:
                    break
                head = told.staged(self._attachment.hello, slot.offset, room)
                body = head + protocol.encode_keys([keys[index] for index in indices])
                if not call.submit(protocol.GET_STAGED, body, slot, partial(done, slot, room, indices)):
                    break
                del slot
            call.finish()
        return too_long

    def _places(self, answered: Call, count: int, room: int) -> list[tuple[int, int]]:
        if self._requests.is_done(self._attachment, answered):
            try:
                return protocol.decode_places(answered.body, count, room)
            except Violation as violation:
                self._requests.failed(self._attachment, str(violation))
        return [(protocol.MISS, 0)] * count

    def _move(
        self, type_: int, keys: Sequence[str], pages: Sequence[Sequence[memoryview]], told: Told, deadline: float
    ) -> list[bool]:
        results = [False] * len(keys)
        sizes = [sum(map(len, page)) for page in pages]
        slices = Slices(keys, sizes)
        limits = self._limits()

        def done(slot: Slot, indices: list[int], answered: Call) -> None:
            flags = self._requests.flags(self._attachment, answered, len(indices))
            at = slot.offset
            for index, flag in zip(indices, flags):
                results[index] = flag
                if flag and type_ == protocol.GET:
                    self._scatter(at, pages[index])
                at += sizes[index]

        with _StagedCall(self._attachment, self._staging, self._counters, deadline) as call:
            while not slices.is_empty:
                indices, size = slices.next(limits)
                slot = call.allocate(size)
                if slot is None:
                    break
                flat: list[int] = []
                at = slot.offset
                for index in indices:
                    if type_ == protocol.SET:
                        self._gather(at, pages[index])
                    flat += (at, sizes[index])
                    at += sizes[index]
                head = told.transfer(self._attachment.hello, 1)
                body = head + protocol.encode_keys([keys[index] for index in indices]) + protocol.encode_pieces(flat)
                if not call.submit(type_, body, slot, partial(done, slot, indices)):
                    break
                del slot
            call.finish()
        return results

    def _gather(self, at: int, parts: Sequence[memoryview]) -> None:
        """Copies the parts of a page to staging memory."""
        for part in parts:
            end = at + len(part)
            copy(self._staging.view[at:end], part)
            at = end

    def _scatter(self, at: int, parts: Sequence[memoryview]) -> None:
        """Copies a page from staging memory to its parts."""
        for part in parts:
            end = at + len(part)
            copy(part, self._staging.view[at:end])
            at = end

    def _limits(self) -> Limits:
        hello = self._attachment.hello
        bytes_ = min(_SLICE_BYTES, self._staging.length // _SLICE_FRACTION)
        return Limits(hello.max_keys, hello.max_body_bytes, max(1, bytes_))


class _StagedCall:
    """The requests of one call. Several are in flight at a time, so that copies run while the node works.

    After the call, an unanswered request keeps its slot until it is answered or the connection has ended.
    """

    def __init__(self, attachment: Attachment, staging: Staging, counters: Counters, deadline: float) -> None:
        self._connection = attachment.connection
        self._staging = staging
        self._counters = counters
        self._deadline = deadline
        self._under_way: deque[tuple[Call, Callable[[Call], None]]] = deque()

    def __enter__(self) -> _StagedCall:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._under_way:
            self._give_up()

    def allocate(self, size: int) -> Slot | None:
        """Allocates a slot; None if there is none in time, or the connection is lost."""
        while len(self._under_way) >= _UNDER_WAY_COUNT:
            self._finish_first()
        slot = self._staging.allocate(size)
        if slot is None:
            slot = self._wait_for_slot(size)
        # If the slot is free because the connection was lost, the node may still be using it.
        return None if self._connection.closed or self._staging.closed else slot

    def _wait_for_slot(self, size: int) -> Slot | None:
        """Waits in line for a slot. The requests of this call are finished meanwhile: their slots may be those it takes."""
        staging = self._staging
        turn = staging.line_up()
        try:
            while True:
                slot = staging.allocate(size, turn)
                if slot is not None or self._connection.closed or staging.closed:
                    return slot
                if self._under_way:
                    self._finish_first()
                else:
                    left = self._deadline - monotonic()
                    if left <= 0:
                        return None
                    turn.wait(min(_PAUSE_SECONDS, left))
        finally:
            del turn
            staging.call_first()

    def submit(self, type_: int, body: bytes, slot: Slot, finish: Callable[[Call], None]) -> bool:
        """Sends a request whose pages are in the slot. `finish` is called with its answer. False if it was not sent."""
        call = self._connection.submit(type_, body, self._deadline, keep=slot)
        if call is None:
            return False
        self._counters.add("requests")
        self._under_way.append((call, finish))
        return True

    def finish(self) -> None:
        """Waits for all requests."""
        while self._under_way:
            self._finish_first()

    def _finish_first(self) -> None:
        call, finish = self._under_way[0]
        if not self._connection.wait(call, self._deadline):
            if call.state == PENDING and is_reached(self._deadline):
                self._counters.add("timeouts")
            return self._give_up()
        # The slot is in use until its pages have been copied.
        finish(call)
        self._under_way.popleft()
        del finish
        self._staging.call_first()

    def _give_up(self) -> None:
        call = self._under_way.popleft()[0]
        if call.state == PENDING:
            self._connection.cancel(call, monotonic() + 0.001)
        self._connection.abandon(call)
