"""The commands of `meshcache bench engine`: one JSON object per line on stdin, one answer per line on stdout."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, Protocol


class Engine(Protocol):
    """An engine with a model, created by the command `start`."""

    def ask(self, prompt: str, tokens: int) -> dict[str, Any]:
        """Answers greedily with `tokens` tokens. Returns an `answer`."""

    def drop_cache(self) -> None:
        """Drops the cache on the device, but not in pools and stores below it."""

    def close(self) -> None:
        """Ends the engine's processes."""


def answer(
    *, first_token_s: float, prompt_tokens: int, cached_tokens: int, text: str, tokens: list[int], logprobs: list[float]
) -> dict[str, Any]:
    """The result of `ask`: the time from request to first token, and values that must not depend on the cache."""
    return {
        "first_token_s": first_token_s,
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "text": text,
        "tokens": tokens,
        "logprobs": logprobs,
    }


def serve(make: type[Engine]) -> None:
    """Executes commands until stdin ends. `make` is called with the parameters of `start`."""
    # Engines print to stdout. It is redirected to stderr from here on, and answers use a separate descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine: Engine | None = None
    for line in sys.stdin:
        command = json.loads(line)
        operation = command.pop("op")
        try:
            if operation == "start":
                engine = make(**command)
                result: dict[str, Any] = {}
            elif engine is None:
                result = {"error": f"{operation}: the engine has not been started"}
            elif operation == "ask":
                result = engine.ask(**command)
            elif operation == "drop_cache":
                engine.drop_cache()
                result = {}
            else:
                result = {"error": f"no command {operation}: there are start, ask, drop_cache"}
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
        answers.flush()
    if engine is not None:
        engine.close()
