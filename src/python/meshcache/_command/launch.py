"""Starts the command `meshcache`, which is a program for Node.js."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from .node_js import NodeJsNotFound, find_node_js

#: The program, which only a wheel with the node contains.
PROGRAM = Path(__file__).resolve().parent.parent / "_node/build/dist/cli.js"
#: Tells the program which Python to run engines in: this one has the package, unlike perhaps `python3` on PATH.
PYTHON_VARIABLE = "MESHCACHE_PYTHON"


def main() -> NoReturn:
    """Replaces this process with the program, so that signals reach it and its exit status is the command's."""
    if not PROGRAM.is_file():
        sys.exit(
            f"error: {PROGRAM} is missing: this installation has the Python client alone. Install the wheel that has the"
            " node, or the npm package: npm install meshcache"
        )
    try:
        node_js = find_node_js()
    except NodeJsNotFound as error:
        sys.exit(f"error: {error}")
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    os.execv(node_js, [node_js, str(PROGRAM), *sys.argv[1:]])
