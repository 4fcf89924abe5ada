"""What LMCache's compiled module has of bitmaps."""

from __future__ import annotations


class Bitmap:
    """So many bits, none of which is set at first."""

    def __init__(self, size: int) -> None:
        self._bits = [False] * size

    def set(self, index: int) -> None:
        self._bits[index] = True

    def test(self, index: int) -> bool:
        return self._bits[index]

    def popcount(self) -> int:
        return sum(self._bits)
