"""Whole engines: processes with a real vLLM each, on the CPU, which compute what they are told by lines of JSON.

As a program, this module is such a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

MODEL = os.environ.get("MESHCACHE_ENGINE_MODEL", "")
CHUNK_TOKENS = 64
#: Log probabilities of the same computation, in another order.
TOLERANCE = 0.01
PATIENCE_SECONDS = float(os.environ.get("MESHCACHE_TEST_PATIENCE", "300"))


class Engine:
    """A process with one engine. ``tier``: the tier's settings beside its client socket."""

    def __init__(self, client_socket: str, **options: Any) -> None:
        """``options``: ``tier``, ``arguments`` of the engine, ``extra`` of the connector, ``environment``."""
        given = {"client_socket": client_socket, **options}
        environment = {**os.environ, **_ENVIRONMENT, **given.pop("environment", {})}
        self._log = tempfile.TemporaryFile(mode="w+")
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._is_ready = False

    def wait(self) -> Engine:
        """Waits until the model is loaded."""
        if not self._is_ready:
            self._is_ready = True
            self._answer()
        return self

    def ask(self, what: str, *arguments: Any) -> Any:
        """Calls a method of ``_Steps`` in the process."""
        self.wait()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def answer(self, prompt: Any, tokens: int = 12, adapter: list[Any] | None = None) -> dict[str, Any]:
        """What the engine says to a prompt, in a form that vLLM takes: tokens, their log probabilities, and how many tokens of the prompt were cached."""
        found: dict[str, Any] = self.ask("answer", prompt, tokens, adapter)
        return found

    def log(self) -> str:
        """What the engine has written so far."""
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        limit = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        limit.start()
        try:
            while line := self._process.stdout.readline():
                if line.startswith(_MARK):
                    kind, value = json.loads(line[len(_MARK) :])
                    if kind == "error":
                        raise RuntimeError(value)
                    return value
        finally:
            limit.cancel()
        raise RuntimeError(f"the engine has ended: {self.log()[-4000:]}")


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers were computed with the same weights from the same prompt."""
    pairs = zip(one["logprobs"], other["logprobs"])
    return one["tokens"] == other["tokens"] and all(abs(a - b) < TOLERANCE for a, b in pairs)


_MARK = "\x1emeshcache "
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_SERVER_DEV_MODE": "1",
}


class _Steps:
    """What an engine's process can be told."""

    def __init__(self, given: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        from meshcache.vllm import plugin

        if given.get("plugin", True):
            # As vLLM does with an installed package.
            plugin.register()
        self._sampling: Any = SamplingParams
        tier = {"type": "MeshCacheTier", "module_path": "meshcache.vllm", "timeout": 20, **given.get("tier", {})}
        extra = {
            "spec_name": "CpuTiering",
            "spec_module_path": "cpu_device",
            "cpu_bytes_to_use": 256 << 20,
            "block_size": CHUNK_TOKENS,
            "secondary_tiers": [{**tier, "client_socket": given["client_socket"]}],
            **given.get("extra", {}),
        }
        transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
        usual = {"model": MODEL, "dtype": "float32", "max_model_len": 2048, "block_size": 32, "enforce_eager": True}
        self._llm: Any = LLM(
            **{**usual, "seed": 0, "max_num_seqs": 8, "kv_transfer_config": transfer, **given.get("arguments", {})}
        )

    @property
    def _core(self) -> Any:
        return self._llm.llm_engine.engine_core.engine_core

    @property
    def _tier(self) -> Any:
        [tier] = self._core.scheduler.connector.connector_scheduler.manager.secondary_tiers
        return tier

    def answer(self, prompt: Any, tokens: int, adapter: list[Any] | None) -> dict[str, Any]:
        options = {}
        if adapter is not None:
            from vllm.lora.request import LoRARequest

            options["lora_request"] = LoRARequest(*adapter)
        sampling = self._sampling(temperature=0, max_tokens=tokens, ignore_eos=True, logprobs=1)
        [output] = self._llm.generate([prompt], sampling, use_tqdm=False, **options)
        best = output.outputs[0]
        return {
            "tokens": list(best.token_ids),
            "logprobs": [step[token].logprob for step, token in zip(best.logprobs, best.token_ids)],
            "cached": output.num_cached_tokens or 0,
            "prompt": len(output.prompt_token_ids),
        }

    def namespace(self) -> dict[str, Any]:
        import dataclasses

        return dataclasses.asdict(self._tier.namespace)

    def idle(self) -> bool:
        """Lets the engine step until no job is under way."""
        scheduler = self._core.scheduler
        if scheduler.connector is None:
            return True
        for _ in range(10000):
            if not self._tier.has_pending_work() and not scheduler.connector.has_pending_push_work():
                return True
            self._core.step_fn()
            threading.Event().wait(0.005)
        return False

    def reset(self, reset_connector: bool) -> bool:
        return bool(self._llm.reset_prefix_cache(False, reset_connector))

    def change(self, factor: float) -> int:
        """Other weights, in place, behind vLLM's back. Those of the norms: matrices are packed when they are loaded. Returns how many."""
        import torch

        model = self._core.model_executor.driver_worker.worker.model_runner.model
        changed = [parameter for name, parameter in model.named_parameters() if "input_layernorm" in name]
        with torch.no_grad():
            for parameter in changed[:4]:
                parameter.mul_(factor)
        return len(changed)

    def call(self, method: str, *arguments: Any) -> str:
        """A call of the workers."""
        return repr(self._llm.collective_rpc(method, args=tuple(arguments)))

    def version(self, version: str) -> None:
        """vLLM's own call, or that of the tier."""
        core = self._core
        if hasattr(core, "set_weight_version"):
            core.set_weight_version(version)
        else:
            self.call("meshcache_set_fingerprint", version)


def _main() -> None:
    output = os.fdopen(os.dup(1), "w")
    # What vLLM prints must not be taken for an answer.
    os.dup2(2, 1)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

    def say(*value: Any) -> None:
        output.write(_MARK + json.dumps(value) + "\n")
        output.flush()

    try:
        steps = _Steps(json.loads(sys.argv[1]))
    except BaseException as error:
        say("error", f"{type(error).__name__}: {error}")
        raise
    say("value", True)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            value = getattr(steps, what)(*arguments)
        except Exception as error:
            say("error", f"{type(error).__name__}: {error}")
        else:
            say("value", value)


if __name__ == "__main__":
    _main()
