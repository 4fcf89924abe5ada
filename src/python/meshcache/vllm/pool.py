"""vLLM's pool in host memory, as the tier sees it: slots of equal size in one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshcache import Client, Piece, Region


class PrimaryPool:
    """Where the slots are. It keeps nothing of the memory: the engine unmaps it after the tier's shutdown."""

    def __init__(self, view: Any) -> None:
        """Raises ``ValueError`` for a view that is not what vLLM passes: slots by bytes, in one piece, to be written."""
        if not isinstance(view, memoryview):
            raise ValueError(f"the primary pool must be a memoryview, got {type(view).__name__}")
        shape, strides = view.shape or (), view.strides or ()
        if len(shape) != 2 or len(strides) != 2 or not view.c_contiguous or 0 in shape:
            raise ValueError(
                "the primary pool must be a memoryview of slots by bytes, in one piece; "
                f"got the shape {shape} with strides {strides}"
            )
        if view.readonly:
            raise ValueError("the primary pool is read-only: chunks could not be loaded into it")
        self.count = shape[0]
        self.slot_bytes = strides[0]

    def register(self, client: Client, view: memoryview) -> Region:
        """Makes the memory known to the node, straight by its file where there is one."""
        return client.register(view, name="primary")

    def pieces(self, region: Region, slots: Sequence[int]) -> list[Piece]:
        """Where these slots are. The client refuses what lies outside of the pool."""
        size = self.slot_bytes
        return [(region, slot * size, size) for slot in slots]
