"""Errors that the client raises: for mistakes of the caller, and for a required node that is absent. A miss is none."""

from __future__ import annotations


class Error(Exception):
    """Base class of the errors of this package."""


class NotAvailable(Error):
    """No node answers although the client was made with `required=True`, or the node is too old for the request."""


class Denied(NotAvailable):
    """The node denies this client access because of its token, its user or the tag of its namespace."""


class ClosedError(Error):
    """The client was used after `close()`."""


class RegionError(Error, ValueError):
    """A piece lies outside its region or overlaps another piece, or its region is unknown or not writable."""
