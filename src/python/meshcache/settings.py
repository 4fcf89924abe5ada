"""The settings with which a client was created."""

from __future__ import annotations

import logging
import os
import re
import stat
from dataclasses import dataclass, field
from typing import Final, Literal

from ._wire.namespace import Namespace

Mode = Literal["auto", "direct", "staged", "bytes"]
MODES: Final = ("auto", "direct", "staged", "bytes")
DEFAULT_STAGING_BYTES: Final = 64 << 20

#: Longest path of a socket. The kernel allows 108 bytes, including a terminating zero and the second socket's ".fds".
MAX_SOCKET_PATH_BYTES: Final = 103

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

_NAME: Final = re.compile(r"[A-Za-z0-9._\-:@/]{1,64}")
_TOKEN: Final = re.compile(r"[!-~]{1,1024}")
_MAX_TOKEN_FILE_CHARACTERS: Final = 4096
#: What the client calls on its logger.
_LOGGER_METHODS: Final = ("debug", "info", "warning", "error", "exception")


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
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None

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
        missing = [name for name in _LOGGER_METHODS if not callable(getattr(self.logger, name, None))]
        if missing:
            raise TypeError(f"logger must be a logging.Logger, got {self.logger!r}, which has no method {missing[0]}")
        if self.token is not None and not (isinstance(self.token, str) and _TOKEN.fullmatch(self.token)):
            raise ValueError("token must be 1 to 1,024 visible characters without spaces")

    def shown_token(self) -> str | None:
        """The token to send to the node now, or None. The file is read each time, so that a token can change while the
        program runs. Raises OSError, and ValueError for a file without a token."""
        if self.token is not None or self.token_file is None:
            return self.token
        with open(self.token_file, encoding="ascii") as file:
            token = file.read(_MAX_TOKEN_FILE_CHARACTERS).strip()
        if not _TOKEN.fullmatch(token):
            raise ValueError(
                f"the token file {self.token_file} has no token; it must be one line, as meshcache token prints it"
            )
        return token


def default_socket() -> str:
    """$MESHCACHE_SOCKET, or else the default socket of this user's `meshcache node`."""
    named = os.environ.get("MESHCACHE_SOCKET")
    if named:
        return named
    return os.path.join(_default_folder(), "node.sock")


def default_token_file() -> str | None:
    """$MESHCACHE_TOKEN_FILE, if it is set."""
    return os.environ.get("MESHCACHE_TOKEN_FILE") or None


def distrust_of(path: str) -> str:
    """Why a socket at `path` may be another user's, who could answer with forged pages. An empty string: it cannot be,
    or the path is not in the default folder, and the user who chose it vouches for it.

    In /tmp, anyone can create the folder of a user who has none yet. If others may write into its parent, the folder
    must therefore belong to the user or to root, and be closed to others. They cannot replace it, as /tmp is sticky.
    """
    folder = os.path.dirname(path)
    if folder != _default_folder():
        return ""
    try:
        parent, found = os.stat(os.path.dirname(folder)), os.lstat(folder)
    except OSError:
        # Connecting to a socket there fails as well, with an error that says why.
        return ""
    user = os.geteuid()
    own = (user, 0)
    if parent.st_uid in own and not parent.st_mode & _WRITABLE_BY_OTHERS:
        return ""
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder"
    if found.st_uid not in own:
        return f"{folder} belongs to user {found.st_uid}, not to user {user}"
    if found.st_mode & _WRITABLE_BY_OTHERS:
        return f"other users may write into {folder}; it must have mode 0700"
    return ""


def _default_folder() -> str:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder:
        return os.path.join(folder, "meshcache")
    user = os.geteuid()
    return "/run/meshcache" if user == 0 else f"/tmp/meshcache-{user}"
