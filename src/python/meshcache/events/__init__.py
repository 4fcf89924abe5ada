"""What becomes of a node's pages, for programs that keep a list of them, and the form in which engines publish the same."""

from .kv_events import kv_event_batch, kv_events
from .records import PageChange, PageEvent, PageList
from .stream import PageEventStream

__all__ = ["PageChange", "PageEvent", "PageEventStream", "PageList", "kv_event_batch", "kv_events"]
