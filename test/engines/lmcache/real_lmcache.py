"""Real `lmcache server` processes with the plug-in, and engines: the adapters of vLLM's LMCacheMPConnector on CPU tensors."""

from __future__ import annotations

import atexit
import hashlib
import inspect
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import zmq
from harness.nodes import PATIENCE_SECONDS, Cluster, Node, free_port, wait_for
from lmcache.integration.vllm import vllm_multi_process_adapter as vllm_adapters

BLOCK_TOKENS = 16
CHUNK_TOKENS = 256
#: As many as tokens of a block: LMCache reads such a cache alike whichever of the two it takes to come first, which it asks vLLM.
HEADS = BLOCK_TOKENS
LAYERS = 2
BLOCKS = 160
MODEL = "example/model"
FACTS = {"engine": "vllm"}
PORT_ATTEMPTS = 5

_request_ids = itertools.count(1)
_instance_ids = itertools.count(os.getpid() << 16)


def end_events_first() -> None:
    """Has a client of LMCache end the events of its socket before it closes what listens for them.

    LMCache 0.5.6 closes the listener first. If the server ends before the socket is closed, too, the thread that does ZeroMQ's input and output waits for
    ever to tell the listener, and no socket of the process works any more.
    """
    try:
        from lmcache.v1.multiprocess.transport.zmq_impl import mq
    except ModuleNotFoundError:
        return
    unregister = mq.ClientPollingLoop.unregister

    def unregister_and_end(loop: Any, client: Any) -> None:
        unregister(loop, client)
        client.socket.disable_monitor()

    mq.ClientPollingLoop.unregister = unregister_and_end


end_events_first()


def version() -> tuple[int, ...]:
    """The release of LMCache."""
    from importlib.metadata import version as version_of

    return tuple(int(part) for part in version_of("lmcache").split(".")[:3])


class Nursery:
    """The process that servers are started from."""

    _of_this_process: Nursery | None = None

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("nursery.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        atexit.register(self._close)
        # LMCache may say something while it is loaded.
        while (line := self._line()) != "ready":
            if not line:
                raise RuntimeError("LMCache cannot be loaded")

    @classmethod
    def get(cls) -> Nursery:
        """The one of this process. It ends with it."""
        if cls._of_this_process is None:
            cls._of_this_process = cls()
        return cls._of_this_process

    def start(self, arguments: list[str], log: Path) -> int:
        """Starts a server, and returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def _close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class Server:
    """`lmcache server` with meshcache behind it, as examples/lmcache has it."""

    def __init__(self, node: Node, folder: Path, *, options: Sequence[str] = (), **params: Any) -> None:
        self._folder = folder
        adapter = {
            "type": "native_plugin",
            "module_path": "meshcache.lmcache",
            "class_name": "MeshCacheConnector",
            "adapter_params": {"client_socket": node.client_socket, "facts": FACTS, **params},
        }
        for attempt in range(PORT_ATTEMPTS):
            try:
                self._start(adapter, options)
                return
            except RuntimeError as error:
                # Another process may have taken a port meanwhile.
                if "in use" not in str(error) or attempt == PORT_ATTEMPTS - 1:
                    raise

    def _start(self, adapter: dict[str, Any], options: Sequence[str]) -> None:
        self.port, self.http_port = free_port(), free_port()
        self.log_path = self._folder / f"lmcache-{self.port}.log"
        arguments = ["server", "--l1-size-gb", "0.25", "--eviction-policy", "LRU", "--chunk-size", str(CHUNK_TOKENS)]
        arguments += ["--shm-name", f"test{self.port}", "--no-l1-use-lazy", "--port", str(self.port)]
        arguments += ["--http-host", "127.0.0.1", "--http-port", str(self.http_port), "--disable-observability"]
        if version() >= (0, 5):
            # Without a GPU, engines bring the pages themselves.
            arguments += ["--supported-transfer-mode", "auto"]
        arguments += ["--l2-adapter", json.dumps(adapter), *options]
        self._process_id = Nursery.get().start(arguments, self.log_path)
        until = time.monotonic() + PATIENCE_SECONDS
        while "cache server is running" not in self.log():
            if not self.is_running() or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"lmcache server did not start: {self.log()[-3000:]}")
            time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"tcp://localhost:{self.port}"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def is_running(self) -> bool:
        try:
            os.kill(self._process_id, 0)
        except ProcessLookupError:
            return False
        return True

    def lines(self, part: str) -> list[str]:
        """Lines of the log that have this."""
        return [line for line in self.log().splitlines() if part in line]

    def clear(self) -> None:
        """Has LMCache clear its memory, as engines and operators do."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{self._clear_path()}",
            data=json.dumps({"tier": "l1"}).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            response.read()

    @staticmethod
    def _clear_path() -> str:
        return "/cache/clear" if version() >= (0, 5) else "/clear-cache"

    def stop(self) -> None:
        """Ends the server at once: how it ends is not what these tests are about."""
        self.kill()
        wait_for("the server has ended", lambda: not self.is_running())
        for segment in Path("/dev/shm").glob(f"lmcache_l1_pool_test{self.port}*"):
            # It may end with the process that has made it.
            segment.unlink(missing_ok=True)

    def kill(self) -> None:
        if self.is_running():
            os.kill(self._process_id, signal.SIGKILL)


class Event:
    """The event of a device that has always finished."""

    def ipc_handle(self) -> bytes:
        return b""

    def synchronize(self) -> None:
        ...

    def record(self, *_: Any) -> None:
        ...

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None:
        ...


def tokens(name: str, count: int) -> list[int]:
    """Tokens that follow from a name."""
    digits = hashlib.shake_128(name.encode()).digest(2 * count)
    return [10 + int.from_bytes(digits[2 * at : 2 * at + 2], "big") % 30_000 for at in range(count)]


class Engine:
    """An engine's side of LMCache: its cache of blocks, and what its scheduler and its worker say to the server."""

    def __init__(
        self,
        server: Server,
        *,
        model: str = MODEL,
        dtype: torch.dtype = torch.float16,
        head: int = 32,
        salt: str = "",
        world_size: int = 1,
    ) -> None:
        # LMCache 0.4 has one thread for all connections of a process: a context that ends would end it.
        self._context = zmq.Context.instance()
        self.salt = salt
        # Names of releases from April to November 2026.
        known = {
            "use_mla": False,
            "mla_only": False,
            "kv_world_size": world_size,
            "kv_worker_id": 0,
            "actual_world_size": world_size,
            "actual_worker_id": 0,
            "vllm_world_size": world_size,
            "vllm_worker_id": 0,
            "tp_size": world_size,
            "pp_size": 1,
            "n_servers": 1,
        }
        wanted = inspect.signature(vllm_adapters.ParallelStrategy).parameters
        strategy = vllm_adapters.ParallelStrategy(**{name: known[name] for name in wanted if name in known})
        scheduler, worker = vllm_adapters.LMCacheMPSchedulerAdapter, vllm_adapters.LMCacheMPWorkerAdapter
        urls = [server.url] if "server_urls" in inspect.signature(scheduler).parameters else server.url
        self._scheduler = scheduler(urls, self._context, model, BLOCK_TOKENS, strategy)
        self._worker = worker(server.url, self._context, model, BLOCK_TOKENS, strategy)
        # LMCache 0.4 takes the process for the engine; here one process has several.
        self._worker.instance_id = next(_instance_ids)
        self.cache = {
            f"layer_{number}": torch.zeros(2, BLOCKS, BLOCK_TOKENS, HEADS, head, dtype=dtype)
            for number in range(LAYERS)
        }
        self._worker.register_kv_caches(self.cache)
        self._free = list(range(1, BLOCKS))

    def store(self, ids: Sequence[int], weights: str = "") -> None:
        """Computes the blocks of these tokens, and has LMCache store them."""
        count = len(ids) // CHUNK_TOKENS * CHUNK_TOKENS
        blocks = self._take(count)
        for number, block in enumerate(blocks):
            for name, tensor in self.cache.items():
                tensor[:, block] = self._content(ids, number, name, weights)
        request = self._request()
        operation = self._operation(ids, count, blocks)
        self._worker.submit_store_request(request, operation, Event(), **self._salted())

        def is_done() -> bool:
            self._worker.get_finished({request})
            return request not in self._worker.store_futures

        wait_for("LMCache has stored blocks", is_done)
        self._scheduler.end_session(request)
        self._free += blocks

    def found(self, ids: Sequence[int]) -> int:
        """How many of these tokens LMCache has, in its own memory or in meshcache."""
        request = self._request()
        found = self._look_up(request, ids)
        self._forget(request, found, ids)
        return found

    def read(self, ids: Sequence[int], weights: str = "") -> int:
        """Reads what there is of these tokens, and compares every byte. Returns the number of tokens."""
        request = self._request()
        found = self._look_up(request, ids)
        if found:
            blocks = self._take(found)
            for tensor in self.cache.values():
                tensor[:, blocks] = 0
            operation = self._operation(ids, found, blocks)
            self._worker.submit_retrieve_request(request, operation, Event(), **self._salted())

            def is_done() -> bool:
                self._worker.get_finished(set())
                return request not in self._worker.retrieve_futures

            wait_for("LMCache has loaded blocks", is_done)
            failed = set(self._worker.get_block_ids_with_load_errors())
            for number, block in enumerate(blocks):
                for name, tensor in self.cache.items():
                    if block not in failed and not torch.equal(
                        tensor[:, block].view(torch.uint8), self._content(ids, number, name, weights).view(torch.uint8)
                    ):
                        raise AssertionError(f"block {number} of {name} has other bytes than were stored")
            self._free += blocks
            found = 0 if failed else found
        self._scheduler.cleanup_lookup_result(request)
        self._scheduler.end_session(request)
        return found

    def reset(self) -> bool:
        """Has LMCache drop its memory, as vLLM's `reset_prefix_cache(reset_connector=True)` does."""
        return bool(self._scheduler.reset_cache())

    @property
    def can_reset(self) -> bool:
        return hasattr(self._scheduler, "reset_cache")

    def close(self) -> None:
        self._worker.shutdown()
        getattr(self._scheduler, "shutdown", lambda: None)()

    def _take(self, count: int) -> list[int]:
        return [self._free.pop(0) for _ in range(count // BLOCK_TOKENS)]

    def _content(self, ids: Sequence[int], number: int, layer: str, weights: str) -> torch.Tensor:
        """What the model computes for a block: it follows from all tokens up to its end."""
        like = self.cache[layer][:, 0]
        text = f"{list(ids[: (number + 1) * BLOCK_TOKENS])} {layer} {weights}"
        data = bytearray(hashlib.shake_128(text.encode()).digest(like.numel() * like.element_size()))
        return torch.frombuffer(data, dtype=torch.uint8).view(like.dtype).reshape(like.shape)

    def _look_up(self, request: str, ids: Sequence[int]) -> int:
        self._scheduler.maybe_submit_lookup_request(request, list(ids), **self._salted())
        found = wait_for("LMCache has looked up", lambda: _boxed(self._scheduler.check_lookup_result(request)))
        return int(found[0])

    def _forget(self, request: str, found: int, ids: Sequence[int]) -> None:
        if found:
            self._scheduler.free_lookup_locks(list(ids), 0, found, request, **self._salted())
        self._scheduler.cleanup_lookup_result(request)
        self._scheduler.end_session(request)

    @staticmethod
    def _operation(ids: Sequence[int], end: int, blocks: list[int]) -> Any:
        return vllm_adapters.LoadStoreOp(token_ids=list(ids), block_ids=[blocks], start=0, end=end)

    def _salted(self) -> dict[str, str]:
        return {"cache_salt": self.salt} if self.salt else {}

    @staticmethod
    def _request() -> str:
        return f"request-{next(_request_ids)}-{os.getpid()}"


def _boxed(value: Any) -> tuple[Any] | None:
    return None if value is None else (value,)


class LMCacheTest(unittest.TestCase):
    """Tests with servers and engines; what they start ends with them."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lmcache-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def cluster(self, count: int = 2, **options: Any) -> Cluster:
        cluster = Cluster(count, **options)
        self.addCleanup(cluster.close)
        return cluster

    def server(self, node: Node, **params: Any) -> Server:
        server = Server(node, self.folder, **params)
        self.addCleanup(server.stop)
        return server

    def engine(self, server: Server, **options: Any) -> Engine:
        engine = Engine(server, **options)
        self.addCleanup(engine.close)
        return engine

    def stored(self, engine: Engine, other: Engine, ids: Sequence[int], weights: str = "") -> None:
        """Stores through one engine until another one, of another server, finds all of it."""
        count = len(ids) // CHUNK_TOKENS * CHUNK_TOKENS
        engine.store(ids, weights)
        wait_for("the other server finds the tokens", lambda: other.found(ids) == count)
