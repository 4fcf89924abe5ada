"""Moves the pages of a job between LMCache's memory and the node."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from .. import Client, Region
from .._memory.memory import Memory
from .jobs import Job
from .memory import Piece, PoolMemory

#: Longest piece of a page in a request.
_MAX_PIECE_BYTES: Final = 0xFFFFFFFF

#: Stands for an empty page, because a node's page has at least one byte. A real page with exactly these bytes is not
#: stored, so that it cannot be mistaken for an empty one.
EMPTY_PAGE: Final = bytes.fromhex("7c0e65d2f94b4a86b1d83a2fc5907e14")


class Transfer:
    """Reads pages into memory, and stores pages from it. One result per page; false if it failed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._memory = PoolMemory(client)

    def move(self, job: Job, names: Sequence[str | None]) -> list[bool]:
        """Reads or stores the pages of a job under these keys. Pages without a key are false. Raises what the client
        raises for wrong arguments.

        Only the job refers to the caller's memory, so that an exception, which keeps frames, does not keep the memory.
        """
        results = [False] * len(names)
        known = [(index, name) for index, name in enumerate(names) if name is not None]
        empty = [(index, name) for index, name in known if job.memories[index].length == 0]
        # A page that is too long for any request is never stored, so it is a miss.
        chosen = [(index, name) for index, name in known if 0 < job.memories[index].length <= _MAX_PIECE_BYTES]
        if job.operation == "set":
            chosen = [(index, name) for index, name in chosen if not _is_marker(job.memories[index])]
        self._move_some(job, chosen, results)
        if job.operation == "get":
            for index, _ in chosen:
                results[index] = results[index] and not _is_marker(job.memories[index])
        if empty:
            flags = self._move_empty(job, [name for _, name in empty])
            _scatter(results, [index for index, _ in empty], flags)
        return results

    def _move_some(self, job: Job, chosen: Sequence[tuple[int, str]], results: list[bool]) -> None:
        """Moves pages, with one call per region."""
        groups: dict[Region, tuple[list[tuple[int, str]], list[Piece]]] = {}
        for page, piece in zip(chosen, self._memory.pieces([job.memories[index] for index, _ in chosen])):
            pages, pieces = groups.setdefault(piece[0], ([], []))
            pages.append(page)
            pieces.append(piece)
        for pages, pieces in groups.values():
            keys = [name for _, name in pages]
            if job.operation == "get":
                flags = self._client.get_into(keys, pieces, timeout=job.left())
            else:
                flags = self._client.set_from(keys, pieces, named=False, timeout=job.left())
            _scatter(results, [index for index, _ in pages], flags)

    def _move_empty(self, job: Job, keys: list[str]) -> list[bool]:
        if job.operation == "set":
            return self._client.set_many(keys, [EMPTY_PAGE] * len(keys), named=False, timeout=job.left())
        return [page == EMPTY_PAGE for page in self._client.get_many(keys, timeout=job.left())]


def _is_marker(memory: Memory) -> bool:
    """Whether this memory holds the page that stands for an empty one."""
    return memory.length == len(EMPTY_PAGE) and ctypes.string_at(memory.address, memory.length) == EMPTY_PAGE


def _scatter(results: list[bool], indices: Sequence[int], flags: Sequence[bool]) -> None:
    for index, flag in zip(indices, flags):
        results[index] = flag
