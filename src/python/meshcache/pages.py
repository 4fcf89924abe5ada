"""The pages of one call, checked and encoded for requests."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import cast

from ._memory.region import Region
from ._wire.protocol import MAX_PIECES, encode_pieces
from .errors import RegionError

#: A part of a page: region, offset in it, length in bytes.
Piece = tuple[Region, int, int]
_MAX_PIECE_BYTES = 0xFFFFFFFF


class Pages:
    """Pages with equal numbers of pieces, which lie in regions of this client and, for GET, do not overlap."""

    __slots__ = ("packed", "pages", "pieces", "regions")

    def __init__(self, client_id: int, pages: Sequence[Sequence[Piece]], pieces: int, *, writing: bool) -> None:
        """`writing` says whether pages are written into the regions, as by GET. Raises TypeError and RegionError."""
        self.pages = pages
        self.pieces = pieces
        self.regions: set[Region] = set()
        # Two numbers per piece: offset in the file, and length + (region id << 32).
        flat: list[int] = []
        spans: list[tuple[int, int]] = []
        known: object = self
        for page in pages:
            for region, offset, length in page:
                if region is not known:
                    _check_region(region, client_id, writing)
                    self.regions.add(region)
                    known = region
                    high, base, end = region.region_id << 32, region.base, region.length
                    file_offset = region.file_offset
                if type(offset) is not int or type(length) is not int:
                    offset, length = operator.index(offset), operator.index(length)
                if offset < 0 or length < 1 or offset + length > end or length > _MAX_PIECE_BYTES:
                    raise RegionError(
                        f"a piece of {length} bytes at {offset} does not lie in {region!r}; a piece has at least 1 byte"
                    )
                flat.append(file_offset + offset)
                flat.append(high | length)
                if writing:
                    spans.append((base + offset, base + offset + length))
        #: All pieces, encoded for requests in 16 bytes each.
        self.packed = encode_pieces(flat)
        if writing:
            _check_apart(spans)

    def size(self, index: int) -> int:
        """Length of a page in bytes."""
        return sum(length for _, _, length in self.pages[index])

    def sizes(self) -> list[int]:
        """Length of each page in bytes."""
        if self.pieces == 1:
            return [page[0][2] for page in self.pages]
        return [self.size(index) for index in range(len(self.pages))]


def as_lists(pages: Sequence[Piece] | Sequence[Sequence[Piece]]) -> Sequence[Sequence[Piece]]:
    """Pages as lists of pieces. If all pages have one piece, the pieces may be given without lists."""
    if not pages or not isinstance(pages[0], tuple):
        return cast(Sequence[Sequence[Piece]], pages)
    if all(isinstance(page, tuple) and len(page) == 3 and isinstance(page[0], Region) for page in pages):
        return [[cast(Piece, page)] for page in pages]
    return cast(Sequence[Sequence[Piece]], pages)


def pages_by_pieces(pages: Sequence[Sequence[Piece]]) -> dict[int, Sequence[int]]:
    """Indices of pages by their number of pieces, which is equal within a request. Raises TypeError and ValueError."""
    try:
        counts = set(map(len, pages))
    except TypeError:
        raise TypeError("a page is a list of pieces (region, offset, length)") from None
    for count in counts:
        if not 1 <= count <= MAX_PIECES:
            raise ValueError(f"a page has 1 to {MAX_PIECES} pieces, got {count}")
    if len(counts) == 1:
        return {counts.pop(): range(len(pages))}
    return {count: [index for index, page in enumerate(pages) if len(page) == count] for count in sorted(counts)}


def check_apart(client_id: int, pages: Sequence[Sequence[Piece]]) -> None:
    """Checks that no pieces of the pages of a GET overlap. Raises TypeError and RegionError."""
    spans = []
    for page in pages:
        for region, offset, length in page:
            _check_region(region, client_id, True)
            spans.append((region.base + offset, region.base + offset + length))
    _check_apart(spans)


def _check_region(region: object, client_id: int, writing: bool) -> None:
    if not isinstance(region, Region):
        raise TypeError(f"a piece is (region, offset, length); got {region!r} for its region")
    if region.client_id != client_id:
        raise RegionError(f"{region!r} is not registered with this client")
    if writing and not region.writable:
        raise RegionError(f"{region!r} is for reading only: GET cannot write into it")


def _check_apart(spans: list[tuple[int, int]]) -> None:
    if len(spans) == 1:
        return
    spans.sort()
    last = 0
    for start, end in spans:
        if start < last:
            raise RegionError("pieces of a GET overlap; each page needs memory of its own")
        last = end
