"""Computes how much of a prefix can be restored if several pools are needed for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def leading(flags: Sequence[bool]) -> int:
    """Number of leading true flags."""
    for index, flag in enumerate(flags):
        if not flag:
            return index
    return len(flags)


def is_trailing(policy: Any) -> bool:
    """Whether the policy needs only the last pages of a prefix."""
    return str(getattr(policy, "value", policy)) == "trailing_pages"


def gates(policy: Any) -> bool:
    """Whether pages missing in the pool shorten the prefix. Groups of blocks do not: they duplicate existing pages."""
    return str(getattr(policy, "value", policy)) != "block_groups"


def grouped(flags: Sequence[bool], group: int, block: int, pages: int) -> int:
    """Number of pages covered by leading complete groups: ``group`` flags stand for ``block`` pages of the prefix."""
    if group < 1 or block < 1:
        return 0
    return min(pages, leading(flags) // group * block)


def window(keys: Any) -> int:
    """Number of last pages of a prefix that a trailing pool needs. Only the number of keys, placeholders, counts."""
    return max(1, len(keys)) if keys is not None else 1


def prefixes(flags: Sequence[bool], trailing: int) -> list[int]:
    """Lengths of the prefixes that a pool can restore, ascending.

    ``trailing`` is the number of last pages of a prefix that the pool needs; 0: all pages.
    """
    if trailing == 0:
        return list(range(1, leading(flags) + 1))
    found: list[int] = []
    run = 0
    for index, flag in enumerate(flags):
        run = run + 1 if flag else 0
        if run >= min(trailing, index + 1):
            found.append(index + 1)
    return found


def common(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Prefixes that both pools can restore. Trailing pools have gaps, so the shorter of the longest need not be one."""
    members = set(other)
    return [length for length in one if length in members]
