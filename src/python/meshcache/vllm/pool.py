"""vLLM's pool in host memory: slots of equal size in contiguous memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshcache import Client, Piece, Region


class PrimaryPool:
    """Locates the slots. It holds no reference to the memory, as the engine unmaps it after the tier's shutdown."""

    def __init__(self, view: Any) -> None:
        """``view`` has the shape (slots, bytes). Raises ``ValueError`` if it is not contiguous or not writable."""
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
        """Registers the memory with the client, which passes its file to the node if there is one."""
        return client.register(view, name="primary")

    def pieces(self, region: Region, slots: Sequence[int]) -> list[Piece]:
        """The pieces for these slots. The client rejects pieces outside of the pool."""
        size = self.slot_bytes
        return [(region, slot * size, size) for slot in slots]
