"""Long tests of SGLang's server with the storage backend."""

from __future__ import annotations

import json
import os
import unittest

from harness.long_runs import LongRuns


def server_arguments(port: int, client_socket: str | None) -> list[str]:
    arguments = ["-m", "sglang.launch_server", "--model-path", os.environ["MESHCACHE_ENGINE_MODEL"]]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    arguments += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--page-size", "64"]
    arguments += ["--disable-overlap-schedule", "--disable-cuda-graph", "--mem-fraction-static", "0.3"]
    arguments += ["--context-length", "4096", "--max-total-tokens", "8192", "--enable-cache-report"]
    # An idle server that polls would take the processor from the one that is asked.
    arguments += ["--sleep-on-idle"]
    if client_socket is None:
        return arguments
    backend = {"backend_name": "meshcache", "module_path": "meshcache.sglang", "class_name": "MeshCacheStorage"}
    extra = {**backend, "interface_v1": 1, "allocator": "shm", "client_socket": client_socket}
    arguments += ["--enable-hierarchical-cache", "--hicache-ratio", "2", "--hicache-write-policy", "write_through"]
    arguments += ["--hicache-mem-layout", "page_first", "--hicache-io-backend", "kernel"]
    arguments += ["--hicache-storage-prefetch-policy", "wait_complete", "--hicache-storage-backend", "dynamic"]
    return [*arguments, "--hicache-storage-backend-extra-config", json.dumps(extra)]


class SglangServers(LongRuns):
    server_arguments = staticmethod(server_arguments)


del LongRuns

if __name__ == "__main__":
    unittest.main()
