"""The process at the other end of the socket, which can be watched and, when it is frozen, ended."""

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
    """Holds a pidfd: a name of the process that stays right when its number is given to another one."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    @classmethod
    def behind(cls, sock: socket.socket) -> NodeProcess | None:
        """The process that the kernel names as the other end; None when it is out of sight, or this process itself."""
        if sys.platform != "linux":
            return None
        try:
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
            pid: int = _PEER_CREDENTIALS.unpack(credentials)[0]
            # A process of another PID namespace has the number 0.
            return cls(pid, os.pidfd_open(pid)) if pid > 0 and pid != os.getpid() else None
        except OSError:
            return None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pidfd)

    def is_called(self, process_id: int) -> bool:
        """Whether this is its number in its own PID namespace. Whoever made the socket need not be the node: with socket
        activation it is systemd."""
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
        """Whether this process may send it SIGKILL."""
        if sys.platform != "linux":
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, 0)
            return True
        except OSError:
            return False

    @property
    def shares_numbers(self) -> bool:
        """Whether it sees this process under the number that this process has for itself."""
        try:
            return os.stat(f"/proc/{self.pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
        except OSError:
            return False

    def wait(self, seconds: float) -> bool:
        """Waits for its end; True when it has ended, and the kernel has taken its memory and its devices back."""
        # One for each call: a poll object is for one thread at a time.
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end(self) -> None:
        """Sends SIGKILL, which a stopped process obeys too."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
