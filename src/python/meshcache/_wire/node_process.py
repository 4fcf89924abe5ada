"""The process at the other end of the socket, which can be watched and, if it is frozen, killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from typing import Final

_PEER_CREDENTIALS: Final = struct.Struct("=iII")


class NodeProcess:
    """Holds a pidfd, which refers to the same process even if its PID is reused."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    @classmethod
    def behind(cls, sock: socket.socket) -> NodeProcess | None:
        """The process that the kernel reports as the peer; None if it is not visible, or is this process itself."""
        if sys.platform != "linux":
            return None
        try:
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
            pid: int = _PEER_CREDENTIALS.unpack(credentials)[0]
            # A process that is not visible in this PID namespace has the PID 0.
            return cls(pid, os.pidfd_open(pid)) if pid > 0 and pid != os.getpid() else None
        except OSError:
            return None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pidfd)

    def is_called(self, process_id: int) -> bool:
        """Whether this is the process's PID in its own PID namespace. The creator of the socket need not be the node:
        with socket activation it is systemd."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if line.startswith("NSpid:"):
                        return int(line.split()[-1]) == process_id
        except (OSError, ValueError):
            pass
        return self.pid == process_id

    @property
    def may_be_ended(self) -> bool:
        """Whether this process may send SIGKILL to it."""
        if sys.platform != "linux":
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, 0)
            return True
        except OSError:
            return False

    @property
    def shares_numbers(self) -> bool:
        """Whether both processes are in the same PID namespace, so that PIDs mean the same to both."""
        try:
            return os.stat(f"/proc/{self.pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
        except OSError:
            return False

    def wait(self, seconds: float) -> bool:
        """Waits for its end. True if it has ended, and the kernel has released its memory and devices."""
        # Each call has its own poll object, as only one thread at a time may use one.
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end(self) -> None:
        """Sends SIGKILL, which also ends a stopped process."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
