"""A quick `meshcache bench engine` as a test: whole engines with a model answer from the cache what they answer without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from harness.nodes import COMMAND

LIMIT_SECONDS = 540


def bench_rows(engine: str) -> dict[str, dict[str, Any]]:
    """The rows of a quick run in the environment of this process, by where the prompts came from."""
    command = ["node", str(COMMAND), "bench", "engine", "--engine", engine, "--quick", "--rounds", "1", "--json"]
    folders = ["--environment", sys.prefix, "--model", os.environ["MESHCACHE_ENGINE_MODEL"]]
    found = subprocess.run([*command, *folders], stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS)
    # With rows there is something to compare, whatever the status says of them.
    if found.returncode != 0 and not found.stdout:
        raise AssertionError(f"meshcache bench engine ended with status {found.returncode}")
    print(found.stdout)
    return {row["prompt_from"]: row for row in json.loads(found.stdout)["rows"]}


def problems(rows: dict[str, dict[str, Any]], must_be_cached: tuple[str, ...]) -> list[str]:
    """What is wrong with the rows: answers that differ, prompts that were computed although they are stored."""
    found = []
    for name, row in rows.items():
        equal, answers = row["texts_equal"].split(" of ")
        if equal != answers:
            found.append(f"{name}: {row['texts_equal']} texts are equal to the computed ones")
    for name in must_be_cached:
        cached, prompt = rows[name]["cached_tokens"], rows[name]["prompt_tokens"]
        if cached < prompt * 0.75:
            found.append(f"{name}: {cached} of {prompt} tokens came from the cache")
    return found
