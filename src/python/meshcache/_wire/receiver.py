"""Splits the data from a node into answers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from .protocol import HEADER, Violation

_BUFFER_BYTES: Final = 1 << 16
_HEADER_BYTES: Final = HEADER.size


class Receiver:
    """Reads answers from a socket. Bodies that do not fit into its buffer are read directly to their own memory."""

    def __init__(self, deliver: Callable[[int, int, int, bytes], None]) -> None:
        self._deliver = deliver
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._large: memoryview | None = None
        self._large_body = bytearray()
        self._large_header = (0, 0, 0)
        self._large_end = 0
        self.max_body_bytes = _BUFFER_BYTES

    def receive(self, sock: socket.socket, flags: int = 0) -> bool:
        """Reads once and delivers complete answers. False if the peer has closed. Raises OSError and Violation."""
        if self._large is not None:
            count = sock.recv_into(self._large[self._large_end :], 0, flags)
            self._large_end += count
            if self._large_end == len(self._large):
                self._large = None
                body, self._large_body = self._large_body, bytearray()
                self._deliver(*self._large_header, body)
            return count > 0
        count = sock.recv_into(self._view[self._end :] if self._end > 0 else self._view, 0, flags)
        self._end += count
        self._cut()
        return count > 0

    def _cut(self) -> None:
        at = 0
        end = self._end
        while end - at >= _HEADER_BYTES:
            length, type_, status, request_id, _ = HEADER.unpack_from(self._buffer, at)
            if length > self.max_body_bytes:
                raise Violation(f"an answer of {length} bytes, the limit is {self.max_body_bytes}")
            body_at = at + _HEADER_BYTES
            if body_at + length <= end:
                at = body_at + length
                self._deliver(type_, status, request_id, bytes(self._view[body_at:at]))
            elif _HEADER_BYTES + length > _BUFFER_BYTES:
                self._large_body = bytearray(length)
                self._large = memoryview(self._large_body)
                self._large[: end - body_at] = self._view[body_at:end]
                self._large_end = end - body_at
                self._large_header = (type_, status, request_id)
                at = end
            else:
                break
        if at == end:
            self._end = 0
        elif at > 0:
            self._view[: end - at] = self._view[at:end]
            self._end = end - at
