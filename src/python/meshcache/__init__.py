"""Client of a meshcache node: KV pages straight into and out of the memory of a process in Python."""

from ._version import __version__
from .client import Client
from .errors import ClosedError, Error, NotAvailable, RegionError
from .namespace import Namespace
from .pages import Piece
from .region import Region

__all__ = [
    "Client",
    "ClosedError",
    "Error",
    "Namespace",
    "NotAvailable",
    "Piece",
    "Region",
    "RegionError",
    "__version__",
]
