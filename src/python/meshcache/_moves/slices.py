"""Cuts the pages of one call into requests of a bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: A page that changes its length again and again is asked for no more often than this.
_ASKED_MAX_COUNT: Final = 4
#: Pages of unknown length that are asked for in one request.
_UNKNOWN_MAX_COUNT: Final = 64
#: Bytes of a request for each key, beside four for each character, and beside its keys.
_KEY_BYTES: Final = 18
_HEAD_BYTES: Final = 1024


class Limits:
    """What one request may have: keys, bytes of its body without pages, and bytes of pages."""

    __slots__ = ("body_bytes", "bytes", "keys")

    def __init__(self, keys: int, body_bytes: int, bytes_: int) -> None:
        self.keys = keys
        self.body_bytes = body_bytes
        self.bytes = bytes_


class Slices:
    """Pages that are still to be asked for, in the order of their keys.

    Of a page whose length is not known, `guess` is taken to be it, until the node says how long it is.
    """

    def __init__(self, keys: Sequence[str], sizes: Sequence[int] | None = None, guess: int = 0) -> None:
        self._keys = keys
        self._left = deque(range(len(keys)))
        self._sizes = [0] * len(keys) if sizes is None else list(sizes)
        self._asked = [0] * len(keys)
        #: The length of pages of which none is known; 0: nothing is.
        self.guess = guess

    @property
    def is_empty(self) -> bool:
        """Whether there are none left."""
        return not self._left

    @property
    def is_guessing(self) -> bool:
        """Whether nothing is known of the next page's length, so that the answer to one request tells how to cut the others."""
        return bool(self._left) and not self._sizes[self._left[0]] and not self.guess

    def next(self, limits: Limits) -> tuple[list[int], int]:
        """The next pages to ask for, and their bytes: as many as the limits allow, or one. Empty when there are none left."""
        indices: list[int] = []
        size = body = 0
        most = min(limits.keys, _UNKNOWN_MAX_COUNT) if self.is_guessing else limits.keys
        while self._left and len(indices) < most:
            index = self._left[0]
            page = self._sizes[index] or self.guess
            key_bytes = 4 * len(self._keys[index]) + _KEY_BYTES
            if indices and (size + page > limits.bytes or body + key_bytes + _HEAD_BYTES > limits.body_bytes):
                break
            self._left.popleft()
            indices.append(index)
            size += page
            body += key_bytes
        return indices, size

    def ask_again(self, indices: Sequence[int], lengths: Sequence[int]) -> None:
        """These pages had no room; they have these lengths. They are asked for next."""
        for index, length in zip(reversed(indices), reversed(lengths)):
            self._asked[index] += 1
            if self._asked[index] < _ASKED_MAX_COUNT:
                self._sizes[index] = length
                self._left.appendleft(index)
