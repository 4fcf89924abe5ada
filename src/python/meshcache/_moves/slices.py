"""Splits the pages of one call into requests of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: Most requests for a page whose length keeps changing.
_ASKED_MAX_COUNT: Final = 4
#: Most pages of unknown length in one request.
_UNKNOWN_MAX_COUNT: Final = 64
#: Bytes of a request per key, in addition to four per character; and bytes in addition to its keys.
_KEY_BYTES: Final = 18
_HEAD_BYTES: Final = 1024


class Limits:
    """Limits of one request: keys, bytes of its body without pages, and bytes of pages."""

    __slots__ = ("body_bytes", "bytes", "keys")

    def __init__(self, keys: int, body_bytes: int, bytes_: int) -> None:
        self.keys = keys
        self.body_bytes = body_bytes
        self.bytes = bytes_


class Slices:
    """Pages that have yet to be requested, in the order of their keys.

    The length of a page is assumed to be `guess` until it is known.
    """

    def __init__(self, keys: Sequence[str], sizes: Sequence[int] | None = None, guess: int = 0) -> None:
        self._keys = keys
        self._left = deque(range(len(keys)))
        self._sizes = [0] * len(keys) if sizes is None else list(sizes)
        self._asked = [0] * len(keys)
        #: Assumed length of pages whose length is unknown; 0: there is no guess.
        self.guess = guess

    @property
    def is_empty(self) -> bool:
        """Whether no pages are left."""
        return not self._left

    @property
    def is_guessing(self) -> bool:
        """Whether the next page's length cannot even be guessed, so that an answer is needed to split the others."""
        return bool(self._left) and not self._sizes[self._left[0]] and not self.guess

    def next(self, limits: Limits) -> tuple[list[int], int]:
        """The next pages to request, and their total length: as many as the limits allow, but at least one if any."""
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
        """Requests again, as the next ones, pages with these lengths that had no room in an answer."""
        for index, length in zip(reversed(indices), reversed(lengths)):
            self._asked[index] += 1
            if self._asked[index] < _ASKED_MAX_COUNT:
                self._sizes[index] = length
                self._left.appendleft(index)
