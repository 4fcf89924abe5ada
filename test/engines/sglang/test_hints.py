"""Hints on requests to SGLang's OpenAI server reach the node."""

from __future__ import annotations

import json
import os
import unittest
from typing import Any

import lab
from harness.hinted import Hinted, envelope, prefetched
from harness.node_pages import counters
from harness.nodes import wait_for


def server_arguments(port: int, client_socket: str) -> list[str]:
    arguments = ["-m", "sglang.launch_server", "--model-path", os.environ["MESHCACHE_ENGINE_MODEL"]]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    arguments += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--page-size", "64"]
    arguments += ["--disable-overlap-schedule", "--disable-cuda-graph", "--mem-fraction-static", "0.3"]
    arguments += ["--context-length", "2048", "--max-total-tokens", "1408", "--enable-cache-report", "--sleep-on-idle"]
    backend = {"backend_name": "meshcache", "module_path": "meshcache.sglang", "class_name": "MeshCacheStorage"}
    extra = {**backend, "interface_v1": 1, "allocator": "shm", "client_socket": client_socket}
    arguments += ["--enable-hierarchical-cache", "--hicache-ratio", "1.2", "--hicache-write-policy", "write_through"]
    arguments += ["--hicache-mem-layout", "page_first", "--hicache-io-backend", "kernel"]
    arguments += ["--hicache-storage-prefetch-policy", "wait_complete", "--hicache-storage-backend", "dynamic"]
    return [*arguments, "--hicache-storage-backend-extra-config", json.dumps(extra)]


@unittest.skipIf(lab.HAS_HIRADIX, "SGLang 0.5.12 needs kernels of its own to run a model on the CPU")
class SglangHints(Hinted):
    server_arguments = staticmethod(server_arguments)

    @staticmethod
    def with_hints(hints: Any) -> dict[str, Any]:
        return {"custom_params": {"kv_hints": json.dumps(hints)}}

    def test_a_request_to_generate_has_a_field_for_hints(self) -> None:
        before = counters(self.node)
        hints = envelope(("kv.fetch", {"block_hashes": ["ab" * 32]}))
        sampling = {"max_new_tokens": 1, "temperature": 0}
        self.server.call("/generate", {"text": "Hello", "sampling_params": sampling, "kv_hints": hints})
        wait_for("the page is looked for", lambda: self.since(before, prefetched("absent")) == [1])


del Hinted

if __name__ == "__main__":
    unittest.main()
