"""Pages in separate tensors, as SGLang passes them without ``interface_v1``, and in memory given by address."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from meshcache import Client
from meshcache._engines.complaints import Complaints
from meshcache._memory.memory import Memory as HeldMemory

from .memory import Memory, NotInMemory, Piece, Span, is_tensor, on_host, tensor_span
from .pool import HostPool, usable_key
from .stats import TransferStats


#: Whether the bytes at an address (with a length) may be touched.
Known = Callable[[int, int], bool]


def spans(location: Any, sizes: Any = None, known: Known | None = None) -> list[Span] | None:
    """The memory of one page, which is a contiguous tensor, an address with a length, or a list of these; else None.

    A tensor vouches for its memory. An address is accepted only if ``known`` returns true.
    """
    if is_tensor(location):
        contiguous = getattr(location, "is_contiguous", None)
        if not on_host(location) or (callable(contiguous) and not contiguous()):
            return None
        return [tensor_span(location)]
    if isinstance(location, int) and isinstance(sizes, int):
        usable = location > 0 and sizes > 0 and known is not None and known(location, sizes)
        return [(location, sizes)] if usable else None
    if isinstance(location, (list, tuple)) and location:
        given: Sequence[Any] = sizes if isinstance(sizes, (list, tuple)) else [None] * len(location)
        if len(given) != len(location):
            return None
        found: list[Span] = []
        for item, size in zip(location, given):
            part = spans(item, size, known)
            if part is None:
                return None
            found += part
        return found
    return None


def content(value: Any) -> tuple[Any, list[Span]] | None:
    """The memory of a bytes-like object or tensor (copied unless contiguous), and the object that keeps it alive."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        held = HeldMemory(value)
        return held, [(held.address, held.length)]
    if not is_tensor(value):
        return None
    make = getattr(value, "contiguous", None)
    # The result may be a copy, which has no other owner.
    kept = make() if callable(make) else value
    memory = spans(kept)
    return None if memory is None else (kept, memory)


def as_tensor(data: bytes) -> Any:
    """A tensor with a copy of the bytes; None without torch or without bytes."""
    try:
        import torch  # type: ignore
    except ImportError:
        return None
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else None


class TensorPages:
    """Reads and stores pages of the main pool that are outside of the pool's memory."""

    def __init__(
        self,
        client: Client,
        pool: HostPool,
        sides: Sequence[HostPool],
        memory: Memory,
        stats: TransferStats,
        complaints: Complaints,
        timeout: float,
    ) -> None:
        self._client = client
        self._pool = pool
        self._sides = sides
        self._complaints = complaints
        self._memory = memory
        self._stats = stats
        self._timeout = timeout

    def read(self, keys: Sequence[Any], locations: Any, sizes: Any) -> list[Any]:
        """Reads pages. Returns for each key its filled location, or None; without locations, new tensors of bytes."""
        missing: list[Any] = [None] * len(keys)
        if self._pool.holds_nothing:
            return list(locations) if locations is not None and len(locations) == len(keys) else missing
        if not keys or not all(usable_key(key) for key in keys):
            return missing
        if locations is None:
            pages = self._client.get_many(keys, pool=self._pool.key_pool, timeout=self._timeout)
            return [None if page is None else as_tensor(page) for page in pages] if len(pages) == len(keys) else missing
        targets = self._all_spans(locations, sizes, len(keys))
        if targets is None or not all(targets):
            return missing
        started = time.monotonic()
        pieces = self._pieces(targets)
        done = self._client.get_into(keys, pieces, pool=self._pool.key_pool, timeout=self._timeout)
        if len(done) != len(keys):
            return missing
        size = sum(sum(length for _, length in target) for target, ok in zip(targets, done) if ok)
        self._stats.note(written=False, pages=sum(done), size=size, seconds=time.monotonic() - started)
        return [location if ok else None for location, ok in zip(locations, done)]

    def _pieces(self, memories: Sequence[Sequence[Span]]) -> list[list[Piece]]:
        """Pieces of registered regions if all of this memory is in them; else of the process memory."""
        try:
            return [self._memory.pieces([span[0] for span in at], [span[1] for span in at]) for at in memories]
        except NotInMemory:
            process = self._client.process_memory
            return [[(process, address, length) for address, length in at] for at in memories]

    def write(self, keys: Sequence[Any], values: Any, locations: Any, sizes: Any) -> bool:
        """Stores pages from tensors, or from these locations. True if all were stored."""
        if self._pool.holds_nothing:
            return True
        if not keys or not all(usable_key(key) for key in keys):
            return False
        # `kept` keeps the memory of the pages alive.
        kept: list[Any] = []
        if values is not None:
            contents = [content(value) for value in values]
            kept = [found[0] for found in contents if found is not None]
            sources = [_filled(found[1]) for found in contents if found is not None]
        else:
            sources = self._all_spans(locations, sizes, len(keys)) or []
        if len(sources) != len(keys) or not all(sources):
            return False
        started = time.monotonic()
        pieces = self._pieces(sources)
        done = self._client.set_from(keys, pieces, named=False, pool=self._pool.key_pool, timeout=self._timeout)
        del kept
        size = sum(sum(length for _, length in source) for source, ok in zip(sources, done) if ok)
        self._stats.note(written=True, pages=sum(done), size=size, seconds=time.monotonic() - started)
        return len(done) == len(keys) and all(done)

    def _all_spans(self, locations: Any, sizes: Any, count: int) -> list[list[Span]] | None:
        if locations is None or len(locations) != count or (sizes is not None and len(sizes) != count):
            return None
        found: list[list[Span]] = []
        for index, location in enumerate(locations):
            memory = spans(location, None if sizes is None else sizes[index], self._known)
            if memory is None:
                return None
            found.append(_filled(memory))
        return found

    def _known(self, address: int, length: int) -> bool:
        """Whether this is memory of a registered pool. Touching any other memory could crash the process."""
        if any(pool.owns(address, length) for pool in (self._pool, *self._sides)):
            return True
        self._complaints.log(
            "unknown address",
            f"pages at addresses cannot be moved: {length} bytes at {address:#x} are not wholly in one buffer of a "
            "registered pool; pass a tensor, or register its pool",
        )
        return False


def _filled(parts: Sequence[Span]) -> list[Span]:
    """Removes empty parts."""
    return [part for part in parts if part[1] > 0]
