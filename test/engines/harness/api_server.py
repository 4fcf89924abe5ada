"""An engine's own server with its OpenAI interface, as an operator starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.nodes import wait_for

START_SECONDS = 600.0
ANSWER_SECONDS = 300.0
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class ChatAnswer:
    text: str
    prompt_tokens: int
    #: Prompt tokens that were not computed; 0 if the server does not say.
    cached_tokens: int


class ApiServer:
    """A server process. ``arguments`` are those of the interpreter of this process, ``environment`` further variables."""

    def __init__(
        self, arguments: list[str], port: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._log = log
        with open(log, "w") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until the server answers."""
        wait_for(f"the server's start, its log is {self._log}", self._is_ready, START_SECONDS)

    def chat(self, messages: list[dict[str, str]], tokens: int, **more: Any) -> ChatAnswer:
        """Answers a conversation greedily. ``more``: further fields of the request."""
        request = {"model": os.environ["MESHCACHE_ENGINE_MODEL"], "messages": messages, "temperature": 0}
        found = self.call("/v1/chat/completions", {**request, "max_tokens": tokens, **more})
        usage = found["usage"]
        details = usage.get("prompt_tokens_details") or {}
        text = found["choices"][0]["message"]["content"]
        return ChatAnswer(text, usage["prompt_tokens"], details.get("cached_tokens") or 0)

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """Ends the server and the processes that it has started."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts a request. Another status than 200 is an ``AssertionError`` with the answer."""
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode(errors='replace')}") from error

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self._url}/v1/models", timeout=10):
                return True
        except OSError:
            return False
