"""The engine's memory: buffers behind tensors, registered as regions, and lookups from pointers to regions.

Only ``data_ptr``, ``numel`` and ``element_size`` of tensors are used, so that torch is not needed.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import add
from typing import Any

from meshcache import Client, Region

#: Region, offset and length, as the client takes them.
Piece = tuple[Region, int, int]
#: Address and length.
Span = tuple[int, int]

_BUFFER_ATTRIBUTES = ("kv_buffer", "k_buffer", "v_buffer", "index_k_buffer", "index_k_scale_buffer")


class NotInMemory(Exception):
    """A pointer is not in any of the engine's known buffers."""


def is_tensor(value: Any) -> bool:
    """Whether it has the methods of tensors that are used here."""
    return all(hasattr(value, name) for name in ("data_ptr", "numel", "element_size"))


def tensor_span(tensor: Any) -> Span:
    """Address and length in bytes of a contiguous tensor."""
    return int(tensor.data_ptr()), int(tensor.numel()) * int(tensor.element_size())


def attribute(owner: Any, name: str) -> Any:
    """An attribute; None if it is absent or its property raises, as it does for pools without memory."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def _flat(value: Any) -> Iterator[Any]:
    """The tensors in a value that is a tensor, or a list or tuple of tensors."""
    if is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            if is_tensor(item):
                yield item


def on_host(tensor: Any) -> bool:
    """Whether the tensor is in host memory."""
    device = getattr(tensor, "device", None)
    return device is None or str(getattr(device, "type", device)).startswith("cpu")


def pool_tensors(pool: Any) -> list[Any]:
    """The host buffers of a pool, the largest views first."""
    values = [attribute(pool, name) for name in _BUFFER_ATTRIBUTES]
    listed = attribute(pool, "get_hybrid_pool_buffer")
    if callable(listed):
        try:
            values.insert(1, list(listed()))
        except Exception:
            pass
    return [tensor for value in values for tensor in _flat(value) if on_host(tensor)]


class Memory:
    """The regions of one client, found by address. Lookups take no lock; additions replace the lists."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        # Starts, and for each its end, region and tensor, which keeps memory alive. Updates replace the whole tuple.
        self._ranges: tuple[list[int], list[tuple[int, Region, Any]]] = ([], [])

    @property
    def regions(self) -> int:
        """Number of registered regions."""
        return len(self._ranges[0])

    def add(self, tensor: Any, name: str) -> None:
        """Registers a tensor's memory, unless it is part of registered memory."""
        start, length = tensor_span(tensor)
        if length == 0:
            return
        with self._lock:
            if self._find(start, length) is not None:
                return
            buffer = (ctypes.c_char * length).from_address(start)
            region = self._client.register(buffer, writable=True, name=name)
            starts, ends = list(self._ranges[0]), list(self._ranges[1])
            at = bisect_right(starts, start)
            starts.insert(at, start)
            ends.insert(at, (start + length, region, tensor))
            self._ranges = (starts, ends)

    def add_pool(self, pool: Any, name: str) -> int:
        """Registers all buffers of a pool. Returns the total bytes of its tensors, in which views count repeatedly."""
        tensors = pool_tensors(pool)
        for tensor in tensors:
            self.add(tensor, name)
        return sum(tensor_span(tensor)[1] for tensor in tensors)

    def add_owner_of(self, pool: Any, name: str, address: int) -> bool:
        """Registers the buffer that contains this address, in any attribute of the pool. False if there is none."""
        for value in list(getattr(pool, "__dict__", {}).values()):
            for tensor in _flat(value):
                start, length = tensor_span(tensor) if on_host(tensor) else (0, 0)
                if start <= address < start + length:
                    self.add(tensor, name)
                    return True
        return False

    def holds(self, address: int, length: int) -> bool:
        """Whether all of these bytes are in one region."""
        return self._find(address, length) is not None

    def pieces(self, addresses: Sequence[int], lengths: Sequence[int]) -> list[Piece]:
        """The pieces at these addresses. Raises ``NotInMemory`` with the first unknown address and its length."""
        starts, ends = self._ranges
        if len(starts) == 1 and addresses:
            # Usually, everything is in one buffer.
            start, (end, region, _) = starts[0], ends[0]
            if min(addresses) >= start and max(map(add, addresses, lengths)) <= end:
                return [(region, address - start, length) for address, length in zip(addresses, lengths)]
        pieces: list[Piece] = []
        for address, length in zip(addresses, lengths):
            piece = self._find(address, length)
            if piece is None:
                raise NotInMemory(address, length)
            pieces.append(piece)
        return pieces

    def _find(self, address: int, length: int) -> Any:
        starts, ends = self._ranges
        for at in range(bisect_right(starts, address) - 1, -1, -1):
            end, region, _ = ends[at]
            if address + length <= end:
                return (region, address - starts[at], length)
        return None
