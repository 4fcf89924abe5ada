"""Moves the pages of a job between the memory of LMCache and the node."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from .. import Client, Region
from .._memory.memory import Memory
from .jobs import Job
from .memory import Piece, PoolMemory

#: The longest piece of a page that a request can have.
_MAX_PIECE_BYTES: Final = 0xFFFFFFFF

#: The page that stands for an empty one: a page of a node has at least one byte. A page with just these bytes is not
#: stored, so that no other page is taken for an empty one.
EMPTY_PAGE: Final = bytes.fromhex("7c0e65d2f94b4a86b1d83a2fc5907e14")


class Transfer:
    """Reads pages into memory, and stores pages from it. One result a page; what fails is false."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._memory = PoolMemory(client)

    def move(self, job: Job) -> list[bool]:
        """A job that reads or stores. Raises what the client raises for wrong arguments."""
        results = [False] * len(job.keys)
        empty = [index for index, memory in enumerate(job.memories) if memory.length == 0]
        if job.operation == "set":
            # A page that is too long for any request is not stored, and so is a miss.
            self._move_some(job, [index for index in _whole(job) if not _is_marker(job.memories[index])], results)
        else:
            self._move_some(job, _whole(job), results)
            for index, memory in enumerate(job.memories):
                results[index] = results[index] and not _is_marker(memory)
        if empty:
            _scatter(results, empty, self._move_empty(job, [job.keys[index] for index in empty]))
        return results

    def _move_some(self, job: Job, chosen: Sequence[int], results: list[bool]) -> None:
        """Pages in one request for each region that they lie in."""
        groups: dict[Region, tuple[list[int], list[Piece]]] = {}
        for index, piece in zip(chosen, self._memory.pieces([job.memories[index] for index in chosen])):
            indices, pieces = groups.setdefault(piece[0], ([], []))
            indices.append(index)
            pieces.append(piece)
        for indices, pieces in groups.values():
            keys = [job.keys[index] for index in indices]
            if job.operation == "get":
                flags = self._client.get_into(keys, pieces, timeout=job.left())
            else:
                flags = self._client.set_from(keys, pieces, named=False, timeout=job.left())
            _scatter(results, indices, flags)

    def _move_empty(self, job: Job, keys: list[str]) -> list[bool]:
        if job.operation == "set":
            return self._client.set_many(keys, [EMPTY_PAGE] * len(keys), named=False, timeout=job.left())
        return [page == EMPTY_PAGE for page in self._client.get_many(keys, timeout=job.left())]


def _whole(job: Job) -> list[int]:
    return [index for index, memory in enumerate(job.memories) if 0 < memory.length <= _MAX_PIECE_BYTES]


def _is_marker(memory: Memory) -> bool:
    """Has this memory the page that stands for an empty one?"""
    return memory.length == len(EMPTY_PAGE) and ctypes.string_at(memory.address, memory.length) == EMPTY_PAGE


def _scatter(results: list[bool], indices: Sequence[int], flags: Sequence[bool]) -> None:
    for index, flag in zip(indices, flags):
        results[index] = flag
