"""Page events, and a list of pages built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Tier = Literal["memory", "disk"]
EventKind = Literal["reset", "listed", "complete", "changed"]


class PageChange(NamedTuple):
    """The tier in which the node has a page now."""

    #: The key as it was set: a string, or bytes.
    key: str | bytes
    pool: str
    #: Where the page is; None: the node no longer has it.
    tier: Tier | None


@dataclass(frozen=True)
class PageEvent:
    """An event of the stream. The last statement about a page counts; statements may be repeated.

    reset     everything known about the node's pages is void, and a list of them begins
    listed    pages of that list
    complete  the list is complete
    changed   pages have been added, moved or removed since
    """

    kind: EventKind
    changes: tuple[PageChange, ...] = ()
    #: Position after which a stream can be resumed. None for `reset` and `listed`: an unfinished list starts over.
    position: str | None = None
    #: Seconds since 1970 at which the node recorded the changes; None for kinds other than `changed`.
    at: float | None = None


class PageList:
    """The pages of a node, derived from its events."""

    def __init__(self) -> None:
        #: Where each page is, by pool and key.
        self.pages: dict[tuple[str, str | bytes], Tier] = {}
        #: Position at which to resume a stream; None: it must begin with a list.
        self.position: str | None = None
        #: Whether all pages are known. Some are not while a list is being received.
        self.is_complete = False

    def take(self, event: PageEvent) -> None:
        """Applies an event."""
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
