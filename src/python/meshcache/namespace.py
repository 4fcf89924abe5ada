"""Whose pages a client sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Namespace:
    """What must be equal for two clients to share pages. None leaves a part out.

    With `is_mla` every tensor-parallel rank has the same pages, and `tp_rank` does not count.
    """

    model: str | None = None
    dtype: str | None = None
    layout: str | None = None
    tag: str | None = None
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    is_mla: bool = False

    def __post_init__(self) -> None:
        for name in ("model", "dtype", "layout", "tag"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a string or None, got {value!r}")
        for kind in ("tp", "pp"):
            rank, size = getattr(self, f"{kind}_rank"), getattr(self, f"{kind}_size")
            if not isinstance(rank, int) or not isinstance(size, int):
                raise TypeError(f"{kind}_rank and {kind}_size must be integers, got {rank!r} and {size!r}")
            if not 0 <= rank < size < 1 << 32:
                raise ValueError(f"{kind}_rank must be below {kind}_size, from 0 on; got {rank} of {size}")
