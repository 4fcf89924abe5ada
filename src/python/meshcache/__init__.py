"""Client of a meshcache node: moves KV pages directly into and out of the memory of a Python process."""

from ._memory.region import Region
from ._version import __version__
from ._wire.namespace import Namespace
from .client import Client
from .errors import ClosedError, Denied, Error, NotAvailable, RegionError
from .events import PageChange, PageEvent, PageEventStream, PageList
from .pages import Piece

__all__ = [
    "Client",
    "ClosedError",
    "Denied",
    "Error",
    "Namespace",
    "NotAvailable",
    "PageChange",
    "PageEvent",
    "PageEventStream",
    "PageList",
    "Piece",
    "Region",
    "RegionError",
    "__version__",
]
