"""Real nodes for the tests: processes of the built command, with a client socket each."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from sglang_support import ROOT

COMMAND = os.path.join(ROOT, "build", "dist", "cli.js")

#: A node is ready within this time on a machine that has much else to do.
START_SECONDS = 60.0

PORT_ATTEMPTS = 5


@functools.lru_cache(maxsize=None)
def missing() -> str | None:
    """Why there can be no nodes here; None: there can."""
    if shutil.which("node") is None:
        return "needs Node"
    if not os.path.exists(COMMAND):
        return "needs the built command: npm run build"
    text = subprocess.run(["node", COMMAND, "node", "--help"], capture_output=True, text=True, check=False).stdout
    return None if "--client-socket" in text else "the built command has no --client-socket"


def copied_way() -> str:
    """How pages go that cannot go direct: by staging memory, which takes a node with the native addon, else as bytes."""
    has_addon = os.path.exists(os.path.join(ROOT, "build", "native", "meshcache.node"))
    return "staged" if has_addon and os.environ.get("MESHCACHE_NATIVE") != "off" else "bytes"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One node. ``discovery`` is the port of the node that was started first; 0: this is the first one."""

    def __init__(self, discovery: int = 0, pool: str = "64mb") -> None:
        self.folder = tempfile.mkdtemp(prefix="meshcache-")
        self.client_socket = os.path.join(self.folder, "client.sock")
        self.discovery = discovery or free_port()
        self._pool = pool
        self._process: subprocess.Popen[bytes] | None = None
        for attempt in range(PORT_ATTEMPTS):
            try:
                self.start()
                return
            except RuntimeError:
                # Somebody else may have taken the port meanwhile.
                if discovery != 0 or attempt == PORT_ATTEMPTS - 1:
                    self.remove()
                    raise
                self.discovery = free_port()

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self._log = open(os.path.join(self.folder, "log"), "wb")
        arguments = ["--discovery-addr", f"127.0.0.1:{self.discovery}", "--client-socket", self.client_socket]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("MESHCACHE_") or name == "MESHCACHE_NATIVE"
        }
        self._process = subprocess.Popen(
            ["node", COMMAND, "node", *arguments, "--pool", self._pool],
            stdout=self._log,
            stderr=self._log,
            env=environment,
        )
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            status = self._process.poll()
            if status is not None or time.monotonic() > end:
                self.kill()
                with open(os.path.join(self.folder, "log"), encoding="utf8", errors="replace") as log:
                    raise RuntimeError(f"the node did not start, status {status}: {log.read()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.client_socket)
            except OSError:
                return False
        return True

    def freeze(self) -> None:
        """Stops it without ending it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on, if it is still there."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def has_ended(self) -> bool:
        """Is its process gone?"""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._log.close()

    def remove(self) -> None:
        """Ends it and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
