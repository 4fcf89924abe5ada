"""Real nodes: processes of the built command on this machine, with a client socket each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ROOT / "build" / "dist" / "cli.js"
#: For what must happen at some time. Long: the machine may be busy.
PATIENCE_SECONDS = float(os.environ.get("MESHCACHE_TEST_PATIENCE", "120"))
STOP_SECONDS = 30.0
PORT_ATTEMPTS = 5
#: What readers of a node's metrics and page events must present.
METRICS_TOKEN = "for-tests-0123456789abcdef"


def wait_for(what: str, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Waits until a condition holds, and returns what it returned. A failure says what did not happen."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.01)
    return found


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One node. It keeps its name, its folder and its client socket over restarts.

    ``options`` are configuration keys. The node is not started yet.
    """

    def __init__(self, name: str, discovery: str, folder: Path, pool: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.discovery = discovery
        self.pool = pool
        self.options = {"metrics_port": 0, "local_hostname": "127.0.0.1", **options, "node_id": name}
        self.client_socket = str(folder / f"{name}.sock")
        self.log_path = folder / f"{name}.log"
        #: What the node said of itself when it was ready: its ports and its process.
        self.facts: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the node, and waits until it is ready."""
        command = ["node", str(COMMAND), "node", "--json", "--discovery-addr", self.discovery, "--pool", self.pool]
        command += ["--client-socket", self.client_socket]
        for key, value in self.options.items():
            command += ["-o", f"{key}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MESHCACHE_")}
        with open(self.log_path, "a") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**environment, "MESHCACHE_LOG": "info", "MESHCACHE_METRICS_TOKEN": METRICS_TOKEN},
                # Ctrl-C is for the tests, which then stop their nodes.
                start_new_session=True,
            )
        self._process = process
        assert process.stdout is not None
        # A node that never becomes ready must not hold the tests for ever.
        limit = threading.Timer(PATIENCE_SECONDS, process.kill)
        limit.start()
        line = process.stdout.readline()
        limit.cancel()
        if not line:
            status = process.wait()
            raise RuntimeError(f"node {self.name} did not start, status {status}: {self.log_text()[-2000:]}")
        self.facts = json.loads(line)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"node {self.name} has not been started"
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends the node as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> None:
        """Ends the node as an operator does: it leaves the cluster. A node that does not end is killed."""
        if self._process is None or not self.is_running():
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def freeze(self) -> None:
        """Stops the node's process without ending it."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a frozen node go on."""
        if self.is_running():
            os.kill(self.pid, signal.SIGCONT)

    def log_text(self) -> str:
        """The log since the first start."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""


class Cluster:
    """Nodes that find each other, in a folder of their own. A context: they end with it.

    with Cluster(2, pool="256mb") as cluster:
        first, second = cluster.nodes
    """

    def __init__(self, count: int = 1, pool: str = "256mb", **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="meshcache-"))
        self.discovery = ""
        self.nodes: list[Node] = []
        self._pool = pool
        self._options = options
        try:
            for _ in range(count):
                self.add()
        except BaseException:
            self.close()
            raise

    def add(self, pool: str = "", **options: Any) -> Node:
        """Starts one more node."""
        for attempt in range(PORT_ATTEMPTS):
            discovery = self.discovery or f"127.0.0.1:{free_port()}"
            name = f"node-{len(self.nodes) + 1}"
            node = Node(name, discovery, self.folder, pool or self._pool, {**self._options, **options})
            try:
                node.start()
            except RuntimeError:
                # Another process may have taken the port meanwhile.
                if self.discovery or attempt == PORT_ATTEMPTS - 1:
                    raise
            else:
                self.discovery = discovery
                self.nodes.append(node)
                return node
        raise AssertionError("unreachable")

    def command(self, *arguments: str) -> str:
        """What a subcommand of `meshcache` prints about this cluster."""
        command = ["node", str(COMMAND), *arguments, "--discovery-addr", self.discovery]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout

    def status(self) -> dict[str, Any]:
        """What `meshcache status --json` prints."""
        found: dict[str, Any] = json.loads(self.command("status", "--json"))
        return found

    def close(self) -> None:
        """Ends all nodes and removes their folder."""
        for node in self.nodes:
            node.resume()
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
