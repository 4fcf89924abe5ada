"""The lengths of the pieces of a page, as a host pool reports them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .memory import attribute


class _Indices(list[int]):
    """Stands in for a tensor of indices if there is no torch, with the methods that pools use."""

    def tolist(self) -> list[int]:
        return list(self)

    def numel(self) -> int:
        return len(self)


def _first_page(page_size: int) -> Any:
    """Indices of a pool's first page. Torch is used only if the engine has loaded it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return _Indices(range(page_size))
    return torch.arange(page_size, dtype=torch.int64, device="cpu")


def piece_sizes(pool: Any) -> list[int] | None:
    """Length of each piece of a page in bytes; None if the pool cannot be asked.

    Pools that may have no memory on some ranks are not asked, because all ranks must arrive at the same namespace. The
    bytes per token, which every rank knows, are used instead of the lengths.
    """
    if attribute(pool, "_is_dummy") is not None and attribute(pool, "size_per_token"):
        return None
    try:
        meta = pool.get_page_buffer_meta(_first_page(max(1, int(attribute(pool, "page_size") or 1))))
        sizes: Iterable[Any] = () if meta is None else meta[1]
        return [int(size) for size in sizes] or None
    except Exception:
        return None
