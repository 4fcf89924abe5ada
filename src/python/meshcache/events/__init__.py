"""Page events for programs that keep a list of a node's pages, and their conversion to the KV events of engines."""

from .kv_events import kv_event_batch, kv_events
from .records import PageChange, PageEvent, PageList
from .stream import PageEventStream

__all__ = ["PageChange", "PageEvent", "PageEventStream", "PageList", "kv_event_batch", "kv_events"]
