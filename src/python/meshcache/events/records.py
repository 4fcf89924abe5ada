"""Page events, and the list of pages that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Tier = Literal["memory", "disk"]
EventKind = Literal["reset", "listed", "complete", "changed"]


class PageChange(NamedTuple):
    """Where the node has a page now."""

    #: The key as it was set: a string, or bytes.
    key: str | bytes
    pool: str
    #: None: the node does not have the page any more.
    tier: Tier | None


@dataclass(frozen=True)
class PageEvent:
    """A part of the stream. What is told of a page last counts; it may be told twice.

    reset     all that is known of the node's pages is void, and a list of them begins
    listed    pages of that list
    complete  the list is whole
    changed   pages have come, moved or gone since
    """

    kind: EventKind
    changes: tuple[PageChange, ...] = ()
    #: A stream can be gone on with after this. None for `reset` and `listed`: a list that was not read to its end begins anew.
    position: str | None = None
    #: Seconds since 1970 at which the node has noted the changes; None for other kinds than `changed`.
    at: float | None = None


class PageList:
    """The pages of a node, kept from its events alone."""

    def __init__(self) -> None:
        #: Where each page is, by pool and key.
        self.pages: dict[tuple[str, str | bytes], Tier] = {}
        #: What a stream is gone on with; None: it has to begin with a list.
        self.position: str | None = None
        #: Whether all pages are here. While a list arrives, some are not.
        self.is_complete = False

    def take(self, event: PageEvent) -> None:
        """Takes over what the event tells."""
        if event.kind == "reset":
            self.pages.clear()
            self.is_complete = False
        elif event.kind == "complete":
            self.is_complete = True
        for key, pool, tier in event.changes:
            if tier is None:
                self.pages.pop((pool, key), None)
            else:
                self.pages[pool, key] = tier
        if event.kind != "listed":
            self.position = event.position
