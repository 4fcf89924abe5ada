"""SGLang on the CPU behind `meshcache bench engine`."""

from __future__ import annotations

import json
import time
from typing import Any

from engine_bench.driver import answer, serve

PAGE_TOKENS = 64


class SglangEngine:
    """SGLang with its processes. `storage` is the backend below its host pool ("file" or "dynamic"); "": none."""

    def __init__(
        self, model: str, max_tokens: int, storage: str = "", storage_config: dict[str, Any] | None = None
    ) -> None:
        import sglang

        below: dict[str, Any] = {}
        if storage:
            below = {
                "enable_hierarchical_cache": True,
                "hicache_ratio": 2,
                "hicache_write_policy": "write_through",
                "hicache_mem_layout": "page_first",
                "hicache_io_backend": "kernel",
                "hicache_storage_prefetch_policy": "wait_complete",
                "hicache_storage_backend": storage,
            }
            if storage_config:
                below["hicache_storage_backend_extra_config"] = json.dumps(storage_config)
        self._engine = sglang.Engine(
            model_path=model,
            device="cpu",
            dtype="float32",
            attention_backend="torch_native",
            sampling_backend="pytorch",
            disable_overlap_schedule=True,
            disable_cuda_graph=True,
            page_size=PAGE_TOKENS,
            context_length=max_tokens,
            # There is room for one request in addition to the previous one.
            max_total_tokens=3 * max_tokens,
            chunked_prefill_size=max_tokens,
            mem_fraction_static=0.3,
            # Without this, waiting engines would take processor time from the measured one.
            sleep_on_idle=True,
            random_seed=0,
            log_level="warning",
            **below,
        )

    def ask(self, prompt: str, tokens: int) -> dict[str, Any]:
        greedy = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        began = time.perf_counter()
        first = 0.0
        for found in self._engine.generate(prompt, greedy, stream=True, return_logprob=True):
            first = first or time.perf_counter() - began
        facts = found["meta_info"]
        steps = facts["output_token_logprobs"]
        return answer(
            first_token_s=first,
            prompt_tokens=facts["prompt_tokens"],
            cached_tokens=facts["cached_tokens"],
            text=found["text"],
            tokens=[step[1] for step in steps],
            logprobs=[step[0] for step in steps],
        )

    def drop_cache(self) -> None:
        self._engine.flush_cache()

    def close(self) -> None:
        self._engine.shutdown()


if __name__ == "__main__":
    serve(SglangEngine)
