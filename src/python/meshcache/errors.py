"""What the client raises: mistakes of its caller, and a node that is required and not there. A miss is a value."""

from __future__ import annotations


class Error(Exception):
    """Everything of this package that is not a TypeError or a ValueError."""


class NotAvailable(Error):
    """No node answers, and the client was made with `required=True`; or the node is too old for what it is asked for."""


class Denied(NotAvailable):
    """A node answers, and refuses this client because of who it is: its token, its user or the tag of its namespace."""


class ClosedError(Error):
    """The client was used after `close()`."""


class RegionError(Error, ValueError):
    """A piece lies outside its region or overlaps another piece, or its region is unknown to the client or cannot be written."""
