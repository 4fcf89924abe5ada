"""Moves pages: directly, through staging memory, or on the socket."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final

from .._memory.copies import bytes_of, touch
from .._memory.region import Region
from .._wire import protocol
from .._wire.connection import ANSWERED, Call
from ..attachment import Attachment
from ..counters import Counters
from ..link import Link
from ..pages import Pages, Piece
from ..requests import Requests, Told
from .on_socket import SocketPages
from .staged import StagedPages


#: Counters of pages moved, pages not moved, and bytes, by the type of the request and how pages move.
_COUNTED: Final = {
    (type_, way): (done, failed, f"bytes_{verb}_{way}")
    for type_, done, failed, verb in (
        (protocol.GET, "hits", "misses", "read"),
        (protocol.SET, "sets", "sets_failed", "written"),
    )
    for way in ("direct", "staged", "bytes")
}


class Transfer:
    """Moves pages by the node itself if it has mapped their memory, else through staging memory, else on the socket."""

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

    def store(
        self, attachment: Attachment, keys: Sequence[str], datas: Sequence[memoryview], told: Told, deadline: float
    ) -> list[bool]:
        """Writes pages from any memory of this process."""
        return self._move_parts(attachment, protocol.SET, keys, [[data] for data in datas], told, deadline)

    def fetch(self, attachment: Attachment, keys: Sequence[str], told: Told, deadline: float) -> list[bytes | None]:
        """Reads pages of any length."""
        pages: list[bytes | None] = [None] * len(keys)
        left = list(range(len(keys)))
        staging = None
        if attachment.hello.capabilities & protocol.CAN_READ_STAGED:
            staging = self._link.staging(attachment, deadline)
        if staging is not None:

            def take(index: int, page: memoryview) -> None:
                pages[index] = bytes_of(page)

            left = StagedPages(attachment, staging, self._requests, self._counters).fetch(keys, told, deadline, take)
            self._count_fetched("staged", pages, len(keys) - len(left))
        if left:
            found: list[bytes | None] = [None] * len(left)

            def visit(index: int, page: memoryview) -> None:
                found[index] = bytes(page)

            SocketPages(attachment, self._requests).fetch([keys[index] for index in left], told, deadline, visit)
            self._count_fetched("bytes", found, len(left))
            for index, page in zip(left, found):
                pages[index] = page
        return pages

    def _move(
        self,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
    ) -> list[bool]:
        if attachment.direct.issuperset([region.region_id for region in pages.regions]):
            return self._direct(attachment, type_, keys, pages, told, deadline)
        if any(region.mode == "none" for region in pages.regions):
            return [False] * len(keys)
        held = {region: region.hold() for region in pages.regions}
        memories = {region: memory for region, memory in held.items() if memory is not None}
        if len(memories) < len(held):
            return [False] * len(keys)
        parts = [
            [memories[region].view[offset : offset + length] for region, offset, length in page] for page in pages.pages
        ]
        return self._move_parts(attachment, type_, keys, parts, told, deadline)

    def _direct(
        self,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Pages,
        told: Told,
        deadline: float,
        first: int = 0,
        refused: bytes | None = None,
    ) -> list[bool]:
        """Moves the pages from `first` on, one per key.

        `refused` is the head of a request for them that the node has rejected because their memory was absent. This
        process has touched the memory since, and sends the request once more.
        """
        step = 16 * pages.pieces

        def tail(low: int, high: int) -> bytes:
            return pages.packed[step * (first + low) : step * (first + high)]

        under_way: list[Call] = []
        heads: list[bytes] = []

        def head() -> bytes:
            heads.append(told.transfer(attachment.hello, pages.pieces) if refused is None else refused)
            return heads[-1]

        attachment.moving.append(under_way)
        try:
            sent = self._requests.send(attachment, type_, head, keys, tail, deadline, under_way)
            for _, _, call in sent:
                attachment.connection.wait(call, deadline)
        finally:
            try:
                # However the wait ends, the caller gets its memory back only when the node no longer touches it.
                for call in under_way:
                    if call.state != ANSWERED:
                        self._link.fence(attachment, under_way, deadline)
                        break
            finally:
                attachment.moving.pop()
        results = [False] * len(keys)
        sizes = pages.sizes()
        if len(sizes) > len(keys):
            sizes = sizes[first : first + len(keys)]
        absent: list[tuple[int, int, bytes]] = []
        for (low, high, call), asked in zip(sent, heads):
            results[low:high] = self._requests.flags(attachment, call, high - low)
            if call.status == protocol.ABSENT and refused is None:
                absent.append((low, high, asked))
            elif call.status in (protocol.NO_REGION, protocol.REGION_GONE):
                self._region_is_gone(attachment, pages.regions, call)
        if not absent:
            self._count(type_, "direct", results, sizes)
            return results
        again = {index for low, high, _ in absent for index in range(low, high)}
        moved = [index for index in range(len(keys)) if index not in again]
        self._count(type_, "direct", [results[index] for index in moved], [sizes[index] for index in moved])
        for low, high, asked in absent:
            # The node does not allocate untouched memory at its own expense.
            _touch(pages.pages[first + low : first + high])
            some = keys[low:high]
            results[low:high] = self._direct(attachment, type_, some, pages, told, deadline, first + low, asked)
        return results

    def _region_is_gone(self, attachment: Attachment, regions: set[Region], call: Call) -> None:
        """Handles a region that the node has dropped. A region whose file was truncated is no longer used; otherwise
        all regions are registered again on a new connection."""
        for region in regions:
            if call.status == protocol.REGION_GONE and region.is_cut_short():
                attachment.drop_region(region)
                region.mode = "none"
                return
        attachment.connection.fail("the node does not know a region")

    def _move_parts(
        self,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Sequence[Sequence[memoryview]],
        told: Told,
        deadline: float,
    ) -> list[bool]:
        """Moves pages in memory that the node cannot map: through staging memory, or on the socket if too long."""
        sizes = [sum(map(len, page)) for page in pages]
        staging = self._link.staging(attachment, deadline)
        longest = 0 if staging is None else min(staging.length, attachment.hello.max_page_bytes)
        if sizes and 0 < min(sizes) and max(sizes) <= longest:
            return self._move_by("staged", attachment, type_, keys, pages, sizes, told, deadline)
        ways: dict[str, list[int]] = {"staged": [], "bytes": []}
        for index, size in enumerate(sizes):
            ways["staged" if 0 < size <= longest else "bytes"].append(index)
        results = [False] * len(keys)
        for way, indices in ways.items():
            if not indices:
                continue
            some_keys, some = [keys[index] for index in indices], [pages[index] for index in indices]
            some_sizes = [sizes[index] for index in indices]
            flags = self._move_by(way, attachment, type_, some_keys, some, some_sizes, told, deadline)
            for index, flag in zip(indices, flags):
                results[index] = flag
        return results

    def _move_by(
        self,
        way: str,
        attachment: Attachment,
        type_: int,
        keys: Sequence[str],
        pages: Sequence[Sequence[memoryview]],
        sizes: Sequence[int],
        told: Told,
        deadline: float,
    ) -> list[bool]:
        """Moves pages in one way: "staged" or "bytes"."""
        staging = attachment.staging
        if way == "staged" and staging is not None:
            staged = StagedPages(attachment, staging, self._requests, self._counters)
            move = staged.read if type_ == protocol.GET else staged.write
        else:
            on_socket = SocketPages(attachment, self._requests)
            move = on_socket.read if type_ == protocol.GET else on_socket.write
        flags = move(keys, pages, told, deadline)
        self._count(type_, way, flags, sizes)
        return flags

    def _count_fetched(self, way: str, pages: Sequence[bytes | None], asked: int) -> None:
        sizes = [len(page) for page in pages if page is not None]
        self._counters.add_moved(_COUNTED[protocol.GET, way], len(sizes), asked - len(sizes), sum(sizes))

    def _count(self, type_: int, way: str, results: list[bool], sizes: Sequence[int]) -> None:
        good = results.count(True)
        size = sum(sizes if good == len(results) else compress(sizes, results))
        self._counters.add_moved(_COUNTED[type_, way], good, len(results) - good, size)


def _touch(pages: Sequence[Sequence[Piece]]) -> None:
    """Touches the memory of pages, so that the kernel charges it to this process."""
    for page in pages:
        for region, offset, length in page:
            memory = region.hold()
            # Reading past the end of a truncated file would crash the process.
            if memory is None or region.is_cut_short():
                continue
            touch(memory.address + offset, length)
