"""What a client was told when it was made."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import Final, Literal

from ._wire.namespace import Namespace

Mode = Literal["auto", "direct", "staged", "bytes"]
MODES: Final = ("auto", "direct", "staged", "bytes")
DEFAULT_STAGING_BYTES: Final = 64 << 20

#: A socket's path: the kernel has 108 bytes for it, with its terminating zero and the ".fds" of the second socket beside it.
MAX_SOCKET_PATH_BYTES: Final = 103

_NAME: Final = re.compile(r"[A-Za-z0-9._\-:@/]{1,64}")


@dataclass(frozen=True)
class Settings:
    """Settings of a client, checked."""

    socket: str
    namespace: Namespace | None
    name: str
    mode: Mode
    timeout: float
    connect_timeout: float
    end_frozen_node: bool
    fence_timeout: float
    staging_bytes: int
    logger: logging.Logger

    def __post_init__(self) -> None:
        path_bytes = len(os.fsencode(self.socket))
        if path_bytes > MAX_SOCKET_PATH_BYTES:
            raise ValueError(
                f"the path of a client socket has at most {MAX_SOCKET_PATH_BYTES} bytes; this one has {path_bytes}: {self.socket}"
            )
        if self.namespace is not None and not isinstance(self.namespace, Namespace):
            raise TypeError(f"namespace must be a meshcache.Namespace or None, got {self.namespace!r}")
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"name must be 1 to 64 of A-Z a-z 0-9 . _ - : @ /, got {self.name!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {self.mode!r}")
        for setting in ("timeout", "connect_timeout", "fence_timeout"):
            seconds = getattr(self, setting)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                raise TypeError(f"{setting} must be a number of seconds, got {seconds!r}")
            if not 0 < seconds < 1e6:
                raise ValueError(f"{setting} must be a number of seconds above 0 and below 1,000,000, got {seconds!r}")
        if not isinstance(self.staging_bytes, int) or self.staging_bytes < 4096:
            raise ValueError(f"staging_bytes must be an integer, at least 4,096; got {self.staging_bytes!r}")


def default_socket() -> str:
    """$MESHCACHE_SOCKET, else where `meshcache node` of this user has its socket."""
    named = os.environ.get("MESHCACHE_SOCKET")
    if named:
        return named
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder:
        return os.path.join(folder, "meshcache", "node.sock")
    user = os.geteuid()
    return "/run/meshcache/node.sock" if user == 0 else f"/tmp/meshcache-{user}/node.sock"
