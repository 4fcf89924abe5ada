"""How much of a prefix can be restored when several pools have a part in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def leading(flags: Sequence[bool]) -> int:
    """How many are true before the first that is not."""
    for index, flag in enumerate(flags):
        if not flag:
            return index
    return len(flags)


def is_trailing(policy: Any) -> bool:
    """Does the policy ask for the last pages of a prefix only?"""
    return str(getattr(policy, "value", policy)) == "trailing_pages"


def gates(policy: Any) -> bool:
    """Does the policy make a prefix shorter that the pool lacks pages of? Groups of blocks are another form of pages that are there anyway."""
    return str(getattr(policy, "value", policy)) != "block_groups"


def grouped(flags: Sequence[bool], group: int, block: int, pages: int) -> int:
    """Pages that the leading complete groups cover: each ``group`` flags stand for ``block`` pages of the prefix."""
    if group < 1 or block < 1:
        return 0
    return min(pages, leading(flags) // group * block)


def window(keys: Any) -> int:
    """Pages before the end of a prefix that a trailing pool needs. Keys are placeholders: only their number counts."""
    return max(1, len(keys)) if keys is not None else 1


def prefixes(flags: Sequence[bool], trailing: int) -> list[int]:
    """Lengths of the prefixes that a pool can restore, ascending.

    ``trailing`` is how many last pages of a prefix the pool needs; 0: all of its pages.
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
    """Prefixes that both pools can restore. As trailing pools have gaps, the shorter of two longest need not be one."""
    members = set(other)
    return [length for length in one if length in members]
