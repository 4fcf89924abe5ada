"""How many bytes each piece of a page has, as a host pool reports it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .memory import attribute


class _Indices(list[int]):
    """Indices where there is no torch, with what pools use of tensors."""

    def tolist(self) -> list[int]:
        return list(self)

    def numel(self) -> int:
        return len(self)


def _first_page(page_size: int) -> Any:
    """The indices of a pool's first page. Torch is taken only when the engine has loaded it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return _Indices(range(page_size))
    return torch.arange(page_size, dtype=torch.int64, device="cpu")


def piece_sizes(pool: Any) -> list[int] | None:
    """The bytes of each piece of one page; None when the pool cannot be asked.

    Pools that may have no memory on some ranks are not asked: all ranks must come to the same namespace. The bytes of
    their tokens, which every rank knows, stand for the sizes.
    """
    if attribute(pool, "_is_dummy") is not None and attribute(pool, "size_per_token"):
        return None
    try:
        meta = pool.get_page_buffer_meta(_first_page(max(1, int(attribute(pool, "page_size") or 1))))
        sizes: Iterable[Any] = () if meta is None else meta[1]
        return [int(size) for size in sizes] or None
    except Exception:
        return None
