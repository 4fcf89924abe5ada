"""Moves pages of regions: directly, through staging memory, or on the socket."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Final

from ._memory.memory import Memory
from ._memory.region import Region
from ._memory.staging import Slot, Staging
from ._wire import protocol
from ._wire.connection import ANSWERED, PENDING, Call
from .attachment import Attachment
from .counters import Counters
from .link import Link
from .pages import Pages
from .requests import Requests, Told

#: How long a call waits at a time for slots of other calls.
_PAUSE_SECONDS: Final = 0.001


class Transfer:
    """GET and SET of pages in regions."""

    def __init__(self, link: Link, requests: Requests, counters: Counters) -> None:
        self._link = link
        self._requests = requests
        self._counters = counters

    def read(
        self, attachment: Attachment, keys: Sequence[str], pages: Pages, told: Told, deadline: float
    ) -> list[bool]:
        """Reads pages into their regions."""
        return self._move(attachment, protocol.GET, keys, pages, told, deadline)

    def write(
        self, attachment: Attachment, keys: Sequence[str], pages: Pages, told: Told, deadline: float
    ) -> list[bool]:
        """Writes pages from their regions."""
        return self._move(attachment, protocol.SET, keys, pages, told, deadline)

    def _move(
        self,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
    ) -> list[bool]:
        modes = {region.mode for region in pages.regions}
        if "none" in modes:
            return [False] * len(keys)
        if all(region.region_id in attachment.direct for region in pages.regions):
            return self._direct(attachment, type_, keys, pages, told, deadline)
        held = {region: region.hold() for region in pages.regions}
        memories = {region: memory for region, memory in held.items() if memory is not None}
        if len(memories) < len(held):
            return [False] * len(keys)
        staging = attachment.staging
        if "bytes" not in modes and staging is not None and max(pages.sizes()) <= staging.length:
            return self._staged(attachment, staging, type_, keys, pages, told, deadline, memories)
        if type_ == protocol.GET:
            return self._get_bytes(attachment, keys, pages, told, deadline, memories)
        return self._set_bytes(attachment, keys, pages, told, deadline, memories)

    def _direct(
        self,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
    ) -> list[bool]:
        connection = attachment.connection
        step = 16 * pages.pieces

        def tail(low: int, high: int) -> bytes:
            return pages.packed[step * low : step * high]

        under_way: list[Call] = []
        results = [False] * len(keys)

        def head() -> bytes:
            return told.transfer(attachment.hello, pages.pieces)

        attachment.moving.append(under_way)
        try:
            sent = self._requests.send(attachment, type_, head, keys, tail, deadline, under_way)
            for _, _, call in sent:
                connection.wait(call, deadline)
        finally:
            try:
                # Whatever ends the wait: the caller gets its memory back only when nothing touches it any more.
                if any(call.state != ANSWERED for call in under_way):
                    self._link.fence(attachment, under_way, deadline)
            finally:
                attachment.moving.pop()
        for low, high, call in sent:
            results[low:high] = self._requests.flags(attachment, call, high - low)
            if call.status in (protocol.NO_REGION, protocol.REGION_GONE):
                self._region_is_gone(attachment, pages.regions, call)
        self._count(type_, "direct", results, pages)
        return results

    def _region_is_gone(self, attachment: Attachment, regions: set[Region], call: Call) -> None:
        """The node has dropped a region. Whose file was cut short is not touched again; the others are registered anew."""
        for region in regions:
            if call.status == protocol.REGION_GONE and region.is_cut_short():
                attachment.drop_region(region)
                region.mode = "none"
                return
        attachment.connection.fail("the node does not know a region")

    def _staged(
        self,
        attachment: Attachment,
        staging: Staging,
        type_: int,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
        memories: dict[Region, Memory],
    ) -> list[bool]:
        """In several requests that overlap, so that copies run while the node works."""
        connection = attachment.connection
        results = [False] * len(keys)
        sizes = pages.sizes()
        under_way: deque[tuple[int, int, Slot, Call]] = deque()
        is_get = type_ == protocol.GET

        def copy(index: int, address: int) -> None:
            for region, offset, length in pages.pages[index]:
                own = memories[region].address + offset
                if is_get:
                    ctypes.memmove(own, address, length)
                else:
                    ctypes.memmove(address, own, length)
                address += length

        def give_up() -> None:
            """The call keeps its slot until the node has answered, or the connection has ended."""
            call = under_way.popleft()[3]
            if call.state == PENDING:
                connection.cancel(call, monotonic() + 0.001)
            connection.abandon(call)

        def finish() -> None:
            low, high, slot, call = under_way[0]
            if not connection.wait(call, deadline):
                if call.state == PENDING:
                    self._counters.add("timeouts")
                return give_up()
            under_way.popleft()
            flags = self._requests.flags(attachment, call, high - low)
            results[low:high] = flags
            if is_get:
                address = staging.address + slot.offset
                for index, flag in enumerate(flags, low):
                    if flag:
                        copy(index, address)
                    address += sizes[index]

        def allocate(size: int) -> Slot | None:
            while True:
                slot = staging.allocate(size)
                # A slot that is free as the connection was lost may still be in use by the node.
                if connection.closed or staging.closed:
                    return None
                if slot is not None:
                    return slot
                if under_way:
                    finish()
                elif monotonic() >= deadline:
                    return None
                else:
                    # Slots of calls that were interrupted come back with answers that nobody else may read.
                    connection.pause(min(_PAUSE_SECONDS, deadline - monotonic()))

        limits = attachment.hello
        batches = _batches(keys, sizes, limits.max_keys, limits.max_body_bytes, max(staging.length // 4, 1))
        try:
            for low, high in batches:
                slot = allocate(sum(sizes[low:high]))
                if slot is None:
                    break
                flat: list[int] = []
                at = slot.offset
                for index in range(low, high):
                    if not is_get:
                        copy(index, staging.address + at)
                    flat += (at, sizes[index])
                    at += sizes[index]
                head = told.transfer(limits, 1)
                body = head + protocol.encode_keys(keys[low:high]) + protocol.encode_pieces(flat)
                call = connection.submit(type_, body, deadline, keep=slot)
                if call is None:
                    break
                under_way.append((low, high, slot, call))
                del slot
            while under_way:
                finish()
        finally:
            while under_way:
                give_up()
        self._count(type_, "staged", results, pages)
        return results

    def _get_bytes(
        self,
        attachment: Attachment,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
        memories: dict[Region, Memory],
    ) -> list[bool]:
        results = [False] * len(keys)
        sizes = pages.sizes()

        def visit(index: int, page: memoryview) -> None:
            if len(page) != sizes[index]:
                return
            at = 0
            for region, offset, length in pages.pages[index]:
                target = (ctypes.c_char * length).from_address(memories[region].address + offset)
                memoryview(target).cast("B")[:] = page[at : at + length]
                at += length
            results[index] = True

        self._requests.get_bytes(attachment, keys, told, deadline, visit, sizes)
        self._count(protocol.GET, "bytes", results, pages)
        return results

    def _set_bytes(
        self,
        attachment: Attachment,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
        memories: dict[Region, Memory],
    ) -> list[bool]:
        def page(index: int) -> bytes:
            return b"".join(
                ctypes.string_at(memories[region].address + offset, length)
                for region, offset, length in pages.pages[index]
            )

        results = self._requests.set_bytes(attachment, keys, pages.sizes(), page, told, deadline)
        self._count(protocol.SET, "bytes", results, pages)
        return results

    def _count(self, type_: int, way: str, results: list[bool], pages: Pages) -> None:
        good = results.count(True)
        size = 0
        if good == len(results):
            size = sum(pages.sizes())
        elif good > 0:
            size = sum(size for size, result in zip(pages.sizes(), results) if result)
        if type_ == protocol.GET:
            self._counters.add_all({"hits": good, "misses": len(results) - good, f"bytes_read_{way}": size})
        else:
            self._counters.add_all({"sets": good, "sets_failed": len(results) - good, f"bytes_written_{way}": size})


def _batches(
    keys: Sequence[str], sizes: Sequence[int], max_keys: int, max_body_bytes: int, max_bytes: int
) -> list[tuple[int, int]]:
    """Cuts pages into requests of at most so many keys and bytes, or one page."""
    batches: list[tuple[int, int]] = []
    low = 0
    bytes_ = 0
    body = 0
    for index, size in enumerate(sizes):
        key_bytes = 4 * len(keys[index]) + 18
        too_much = bytes_ + size > max_bytes or index - low >= max_keys or body + key_bytes + 1024 > max_body_bytes
        if index > low and too_much:
            batches.append((low, index))
            low, bytes_, body = index, 0, 0
        bytes_ += size
        body += key_bytes
    if low < len(sizes):
        batches.append((low, len(sizes)))
    return batches
