"""A whole SGLang engine answers on the CPU, with meshcache behind its cache: the same texts from every cache, and those of the new weights after a change."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

import lab
import sglang
from harness.nodes import Cluster, wait_for
from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

MODEL = os.environ["MESHCACHE_ENGINE_MODEL"]
#: Longer than the first 256 tokens, from which on SGLang looks into its storage.
PROMPT_TOKENS = 384
PAGE_SIZE = 64


def prompt(seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(3, 32_000) for _ in range(PROMPT_TOKENS)]


class Engine:
    """One server in this process and its children."""

    def __init__(self, socket: str | None, tag: str, **given: Any) -> None:
        """``socket``: None for an engine that computes everything."""
        extra = {
            "backend_name": "meshcache",
            "module_path": "meshcache.sglang",
            "class_name": "MeshCacheStorage",
            "interface_v1": 1,
            "allocator": "shm",
            "client_socket": socket,
            "tag": tag,
            "timeout": 9,
        }
        options: dict[str, Any] = dict(
            model_path=MODEL,
            served_model_name="model",
            device="cpu",
            dtype="float32",
            skip_tokenizer_init=True,
            attention_backend="torch_native",
            sampling_backend="pytorch",
            grammar_backend="none",
            disable_overlap_schedule=True,
            disable_cuda_graph=True,
            max_total_tokens=4096,
            context_length=2048,
            mem_fraction_static=0.3,
            chunked_prefill_size=2048,
            random_seed=0,
            log_level="info",
            page_size=PAGE_SIZE,
        )
        cached: dict[str, Any] = dict(
            enable_hierarchical_cache=True,
            hicache_ratio=1.5,
            hicache_write_policy="write_through",
            hicache_mem_layout="page_first",
            hicache_io_backend="kernel",
            hicache_storage_prefetch_policy="wait_complete",
            hicache_storage_backend="dynamic",
            hicache_storage_backend_extra_config=json.dumps(extra),
        )
        use = cached if socket is not None else {"disable_radix_cache": True}
        self.engine = sglang.Engine(**{**options, **use, **given})

    def answer(self, input_ids: list[int]) -> tuple[list[int], int]:
        """The tokens of an answer, and how many tokens of the prompt were not computed."""
        sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
        result = self.engine.generate(input_ids=input_ids, sampling_params=sampling)
        return list(result["output_ids"]), int(result["meta_info"]["cached_tokens"])

    def update(self, folder: str, version: str | None) -> None:
        request = UpdateWeightFromDiskReqInput(model_path=folder, weight_version=version)
        manager = self.engine.tokenizer_manager
        # The cache cannot be flushed while a request has not quite ended.
        wait_for(
            "the weights are updated, and the cache is flushed",
            lambda: self.engine.loop.run_until_complete(manager.update_weights_from_disk(request, None))[0],
        )

    def flush(self) -> None:
        wait_for("the cache is flushed", lambda: self.engine.flush_cache().success)


def totals(cluster: Cluster) -> dict[str, Any]:
    """What all nodes have together."""
    found: dict[str, Any] = json.loads(cluster.command("status", "--json"))["totals"]
    return found


def other_weights(folder: str) -> None:
    """The same model with other weights: each text is another one."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    path = Path(folder, "model.safetensors")
    tensors = load_file(path)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in tensors.items():
        if ".mlp." in name or "k_proj" in name:
            tensor += torch.randn(tensor.shape, generator=generator) * tensor.std() * 0.3
    save_file(tensors, path, metadata={"format": "pt"})


@unittest.skipIf(lab.HAS_HIRADIX, "SGLang 0.5.12 needs kernels of its own to run a model on the CPU")
class WholeEngineTest(unittest.TestCase):
    def test_answers_are_those_of_the_weights(self) -> None:
        tag = lab.new_tag()
        folder = tempfile.mkdtemp(prefix="meshcache-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        other_weights(folder)
        with Cluster(2) as cluster:
            a, b = (node.client_socket for node in cluster.nodes)
            engine = Engine(a, tag)
            self.addCleanup(engine.engine.shutdown)
            old, cached = engine.answer(prompt(1))
            self.assertEqual(cached, 0)
            self.stored(cluster, 1)
            self.assertEqual(engine.answer(prompt(1))[0], old, "from the engine's own cache")
            engine.flush()
            self.assertEqual(engine.answer(prompt(1)), (old, 0), "after a reset without a reason nothing is read")
            engine.update(folder, "v2")
            new, cached = engine.answer(prompt(1))
            self.assertEqual(cached, 0, "pages of the former weights")
            self.assertNotEqual(new, old)
            self.stored(cluster, 3)
            engine.update(MODEL, None)
            self.assertEqual(engine.answer(prompt(1)), (old, 0), "a change without a version")
            self.reads(cluster, engine, folder, new, engines=1)
            # Both live to the end: a shutdown ends all children of this process, the nodes among them.
            other = Engine(b, tag, weight_version="v2")
            self.addCleanup(other.engine.shutdown)
            self.reads(cluster, other, folder, new, engines=2)

    def reads(self, cluster: Cluster, engine: Engine, folder: str, answer: list[int], *, engines: int) -> None:
        """The pages of this version come from the storage, as soon as the engine has attached to its node again."""

        def are_read() -> bool:
            # An update drops the engine's own cache.
            engine.update(folder, "v2")
            wait_for("the engine has attached", lambda: totals(cluster)["clients"] == engines)
            found, cached = engine.answer(prompt(1))
            self.assertEqual(found, answer)
            return cached >= PROMPT_TOKENS - PAGE_SIZE

        wait_for("pages of the same version are read", are_read)

    def stored(self, cluster: Cluster, prompts: int) -> None:
        """Waits until the pages of so many prompts are stored: SGLang does that behind the answer."""
        pages = prompts * PROMPT_TOKENS // PAGE_SIZE

        wait_for(f"{pages} pages are stored", lambda: totals(cluster)["pool"]["entries"] >= pages)


if __name__ == "__main__":
    unittest.main()
