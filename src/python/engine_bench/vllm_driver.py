"""vLLM on the CPU behind `meshcache bench engine`."""

from __future__ import annotations

import os
from typing import Any

from engine_bench.driver import answer, serve

#: The block size of vLLM's attention on the CPU must be a multiple of this.
BLOCK_TOKENS = 32


class VllmEngine:
    """vLLM in this process. `tiers` are the secondary tiers below a pool of `pool_bytes`; None: no pool.

    `server` is the port of an LMCache server to use instead; 0: none.
    """

    def __init__(
        self, model: str, max_tokens: int, pool_bytes: int, tiers: list[dict[str, Any]] | None = None, server: int = 0
    ) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if server:
            _make_numba_plain()
        from vllm import LLM

        self._llm = LLM(
            model=model,
            dtype="float32",
            max_model_len=max_tokens,
            max_num_batched_tokens=max_tokens,
            # There is room for one request in addition to the previous one.
            num_gpu_blocks_override=3 * max_tokens // BLOCK_TOKENS,
            block_size=BLOCK_TOKENS,
            enforce_eager=True,
            seed=0,
            disable_log_stats=False,
            **_transfer(pool_bytes, tiers, server),
        )

    def ask(self, prompt: str, tokens: int) -> dict[str, Any]:
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0, max_tokens=tokens, logprobs=1, ignore_eos=True)
        [found] = self._llm.generate([prompt], greedy, use_tqdm=False)
        output = found.outputs[0]
        return answer(
            first_token_s=found.metrics.first_token_latency,
            prompt_tokens=len(found.prompt_token_ids),
            cached_tokens=found.num_cached_tokens or 0,
            text=output.text,
            tokens=list(output.token_ids),
            logprobs=[step[token].logprob for step, token in zip(output.logprobs, output.token_ids)],
        )

    def drop_cache(self) -> None:
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache")

    def close(self) -> None:
        """Does nothing, as vLLM ends with this process."""


def _transfer(pool_bytes: int, tiers: list[dict[str, Any]] | None, server: int) -> dict[str, Any]:
    if server:
        extra: dict[str, Any] = {"lmcache.mp.host": "tcp://localhost", "lmcache.mp.port": server}
        return _connector("LMCacheMPConnector", extra)
    if tiers is None:
        return {}
    _register_tier()
    extra = {"cpu_bytes_to_use": pool_bytes, "spec_module_path": "engine_bench.vllm_cpu", "spec_name": "CpuPoolSpec"}
    if tiers:
        extra |= {"spec_name": "CpuTieringSpec", "secondary_tiers": tiers}
    return _connector("OffloadingConnector", extra)


def _connector(name: str, extra: dict[str, Any]) -> dict[str, Any]:
    return {"kv_transfer_config": {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}}


def _register_tier() -> None:
    """Registers the tier by name, as releases before 0.27 do not take a module_path."""
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    try:
        SecondaryTierFactory.register_tier("MeshCacheTier", "meshcache.vllm", "MeshCacheTier")
    except ValueError:
        pass  # A plug-in has already registered it.


def _make_numba_plain() -> None:
    """Hides dunder names of an llvmlite object that answers any name. vLLM 0.32 reads attributes of all objects."""
    from llvmlite.binding import ffi

    kept = ffi._lib_wrapper.__getattr__

    def plain(self: object, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return kept(self, name)

    ffi._lib_wrapper.__getattr__ = plain


if __name__ == "__main__":
    serve(VllmEngine)
