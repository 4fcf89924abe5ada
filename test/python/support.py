"""What tests of the client share."""

from __future__ import annotations

import json
import logging
import mmap
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, os.environ.get("MESHCACHE_PYTHON_PATH", str(ROOT / "src" / "python")))

from meshcache import Client  # noqa: E402

#: For what must happen at some time: long, as the machine may be busy.
PATIENCE_SECONDS = float(os.environ.get("MESHCACHE_TEST_PATIENCE", "60"))


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Until it holds; a failure says what did not."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.002)


def shared_memory(size: int) -> mmap.mmap:
    """A mapping of a memfd of its own, whose descriptor is closed."""
    descriptor = os.memfd_create("pool")
    os.ftruncate(descriptor, size)
    memory = mmap.mmap(descriptor, size)
    os.close(descriptor)
    return memory


class FakeProcess:
    """A fake node in a process of its own."""

    def __init__(self, path: str, **options: Any) -> None:
        script = str(Path(__file__).with_name("fake_node.py"))
        self.process = subprocess.Popen(
            [sys.executable, script, path, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError("the fake node has not started")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class NodeTest(unittest.TestCase):
    """Tests with a fake node; what they start ends with them."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meshcache-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "node.sock")
        self.log = logging.getLogger(self.id())
        self.log.propagate = False
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
        self.log.addHandler(handler)
        self.log.setLevel(logging.DEBUG)

    def node(self, **options: Any) -> FakeProcess:
        """Starts a fake node."""
        node = FakeProcess(self.path, **options)
        self.addCleanup(node.kill)
        return node

    def client(self, **settings: Any) -> Client:
        """Makes a client that has patience, unless the test says otherwise."""
        settings = {"timeout": PATIENCE_SECONDS, "connect_timeout": PATIENCE_SECONDS, "logger": self.log, **settings}
        client = Client(self.path, **settings)
        self.addCleanup(client.close)
        return client

    def wait_for_log(self, part: str) -> None:
        wait_for(f"log with {part!r}, got {self.lines}", lambda: any(part in line for line in self.lines))
