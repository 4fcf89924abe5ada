"""A host pool of the engine: the layout of its pages, and the pieces of memory of each page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .memory import Memory, NotInMemory, Piece, attribute

#: Most pieces of one page in a request.
MAX_PIECES = 255

KV = "kv"

_SHARDED_CLASSES = frozenset({"MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost", "MambaPoolHost"})
_REPLICATED_CLASSES = frozenset(
    {"MLATokenToKVPoolHost", "DSAIndexerPoolHost", "NSAIndexerPoolHost", "DeepSeekV4PagedHostPool"}
)


class PoolError(Exception):
    """A transfer that does not fit its pool. Its pages are misses."""


def pool_name(name: Any) -> str:
    """The name of a pool, which SGLang gives as a string or as a member of an enumeration."""
    return str(getattr(name, "value", name))


def differs_by_rank(pool: Any, name: str) -> bool:
    """Whether each tensor-parallel rank of an MLA model has different data in this pool. True for unknown pools.

    The main pool of such a model is the same on every rank, but states of linear attention and drafts with ordinary
    attention are not.
    """
    classes = {kind.__name__ for kind in type(pool).__mro__}
    if classes & _SHARDED_CLASSES:
        return True
    if classes & _REPLICATED_CLASSES:
        return False
    return name != KV and name not in ("indexer", "draft_indexer", "swa") and not name.startswith("deepseek_v4_")


def usable_key(key: Any) -> bool:
    """Whether it is a key. If only the number of pages matters, SGLang fills lists of keys with placeholders."""
    return isinstance(key, str) and key != ""


class HostPool:
    """A registered pool: the names under which its pages are stored, and their pieces."""

    def __init__(self, pool: Any, name: str, memory: Memory, *, key_pool: str, parts: Sequence[str] = ()) -> None:
        self.pool = pool
        self.name = name
        #: The node's pool for these pages.
        self.key_pool = key_pool
        #: Suffixes of the page's key for separately stored parts of its heads; empty if pages are stored whole.
        self.parts = tuple(parts)
        self.page_size = max(1, int(attribute(pool, "page_size") or 1))
        self._memory = memory
        empty = memory.add_pool(pool, name) == 0
        #: Whether this rank has no memory for the pool, as its pages are in other pools, or come from another rank. It
        #: is determined only once, so that a pool that the engine has destroyed does not count as such.
        self.holds_nothing = bool(attribute(pool, "_is_dummy")) or (
            empty and name == KV and not attribute(pool, "size_per_token")
        )

    @property
    def is_logical(self) -> bool:
        """Whether this is an anchor of indices, whose pages have no bytes on any rank."""
        return self.holds_nothing and not attribute(self.pool, "size_per_token")

    def pieces(self, indices: Any, pages: int) -> list[list[Piece]]:
        """The pieces of each page, or of each of its parts: one entry per key in ``keys``. Raises ``PoolError``."""
        given = 0 if indices is None else len(indices)
        if given != pages * self.page_size:
            raise PoolError(f"{pages} pages of {self.page_size} tokens need as many indices, got {given}")
        split = max(1, len(self.parts))
        if split > 1:
            meta = self.pool.get_split_heads_page_buffer_meta(indices, split)
        else:
            meta = self.pool.get_page_buffer_meta(indices)
        if meta is None:
            raise PoolError("the pool has no memory")
        if len(meta[0]) != len(meta[1]):
            raise PoolError(f"{len(meta[0])} pointers have {len(meta[1])} lengths")
        addresses, lengths = meta[0], meta[1]
        if lengths and min(lengths) <= 0:
            # Empty components, such as states that a model does not have, are not pieces.
            addresses = [address for address, length in zip(addresses, lengths) if length > 0]
            lengths = [length for length in lengths if length > 0]
        each, rest = divmod(len(addresses), pages * split)
        if each == 0 or rest != 0:
            raise PoolError(f"{pages * split} entries cannot have {len(addresses)} pieces")
        if each > MAX_PIECES:
            raise PoolError(f"a page has {each} pieces, at most {MAX_PIECES} can be moved: use a page-first layout")
        pieces = self._located(addresses, lengths)
        return [pieces[at : at + each] for at in range(0, len(pieces), each)]

    def owns(self, address: int, length: int) -> bool:
        """Whether all of these bytes are in one buffer of this pool, or of another registered pool."""
        if self._memory.holds(address, length):
            return True
        return self._memory.add_owner_of(self.pool, self.name, address) and self._memory.holds(address, length)

    def keys(self, keys: Sequence[str]) -> list[str]:
        """The keys of these pages or of their parts, in the order of ``pieces``."""
        return [key + part for key in keys for part in self.parts] if self.parts else list(keys)

    def per_page(self, results: Sequence[bool], pages: int) -> list[bool]:
        """Converts results of parts to results of pages: a page is true if all of its parts are."""
        parts = max(1, len(self.parts))
        if len(results) != pages * parts:
            return [False] * pages
        return [all(results[at : at + parts]) for at in range(0, len(results), parts)]

    def _located(self, addresses: Sequence[int], lengths: Sequence[int]) -> list[Piece]:
        """The pieces at these addresses. An unknown buffer is searched for in the pool, then registered."""
        for _ in range(16):
            try:
                return self._memory.pieces(addresses, lengths)
            except NotInMemory as missing:
                address, length = missing.args
                if not self._memory.add_owner_of(self.pool, self.name, address):
                    raise PoolError(f"{length} bytes at {address:#x} are in no buffer of the pool") from None
        raise PoolError("more buffers than are looked for in one call")
