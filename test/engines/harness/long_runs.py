"""Long tests of two real servers on two nodes, beside a server without a cache behind it: they must answer alike."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.api_server import ApiServer, ChatAnswer
from harness.nodes import Cluster, Node, free_port

#: Fewer for a run by hand that only shows that the tests work.
TURNS = int(os.environ.get("ENGINE_NIGHTLY_TURNS", "20"))
PROMPTS = int(os.environ.get("ENGINE_NIGHTLY_PROMPTS", "200"))
SOAK_PROMPTS = int(os.environ.get("ENGINE_NIGHTLY_SOAK", "90"))
SEED = int(os.environ.get("ENGINE_NIGHTLY_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
ANSWER_TOKENS = 24
#: Sentences of the longest prompt of the tests of prefixes.
SENTENCES = 80
#: Turns of a conversation until a cache must have been seen at work: one server stores while the other answers.
SETTLED_TURN = 3

TOPICS = ("rivers", "trains", "gardens", "stars", "bread", "maps", "bridges", "clocks", "songs", "ships")
VERBS = ("follow", "carry", "remember", "surround", "explain", "need", "change", "join")


class LongRuns(unittest.TestCase):
    """Subclasses say how their server is started."""

    #: The arguments of the interpreter for a server on a port; None for the socket: without a cache behind it.
    server_arguments: Callable[[int, str | None], list[str]]

    @classmethod
    def setUpClass(cls) -> None:
        if cls is LongRuns:
            raise unittest.SkipTest("the base of others")
        print(f"seed {SEED}")
        cls.folder = Path(tempfile.mkdtemp(prefix="meshcache-servers-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.cluster = Cluster(2, pool="1gb")
        cls.addClassCleanup(cls.cluster.close)
        cls.first, cls.second = (cls.start(node.client_socket) for node in cls.cluster.nodes)
        cls.plain = cls.start(None)

    @classmethod
    def start(cls, client_socket: str | None) -> ApiServer:
        port = free_port()
        server = ApiServer(cls.server_arguments(port, client_socket), port, cls.folder / f"{port}.log")
        cls.addClassCleanup(server.close)
        server.wait()
        return server

    def test_a_conversation_moves_between_two_engines(self) -> None:
        messages: list[dict[str, str]] = []
        cached = []
        for turn in range(TURNS):
            topic = TOPICS[turn % len(TOPICS)]
            messages.append({"role": "user", "content": f"Question {turn + 1}: {_notes(turn, 12)} What about {topic}?"})
            server = (self.first, self.second)[turn % 2]
            answer = self._same_answer(server, messages)
            messages.append({"role": "assistant", "content": answer.text})
            cached.append(answer.cached_tokens)
            print(f"turn {turn + 1}: {answer.cached_tokens} of {answer.prompt_tokens} tokens cached", flush=True)
        # The other engine has computed the turn before: what it stored is found here.
        self.assertGreater(sum(cached[SETTLED_TURN:]), 0, f"no turn found tokens: {cached}")

    def test_prompts_with_common_prefixes_of_all_lengths(self) -> None:
        notes = _notes(SEED, SENTENCES).split(". ")
        for number, common in enumerate(common_lengths(PROMPTS, SENTENCES)):
            own = _notes(SEED + 1 + number, SENTENCES - common) if common < SENTENCES else ""
            text = ". ".join([*notes[:common], own])
            messages = [{"role": "user", "content": f"{text} Which words come most often?"}]
            for server in (self.first, self.second):
                self._same_answer(server, messages)

    def test_nodes_that_are_killed_frozen_and_stopped_change_no_answer(self) -> None:
        chance = random.Random(SEED)
        for number in range(SOAK_PROMPTS):
            node = chance.choice(self.cluster.nodes)
            _disturb(node, chance.choice(["kill", "freeze", "stop", "nothing", "nothing"]))
            text = _notes(SEED + number // 3, 40)
            self._same_answer(chance.choice([self.first, self.second]), [{"role": "user", "content": text}])
            _repair(node)

    def _same_answer(self, server: ApiServer, messages: list[dict[str, str]]) -> ChatAnswer:
        answer = server.chat(messages, ANSWER_TOKENS)
        computed = self.plain.chat(messages, ANSWER_TOKENS)
        self.assertEqual(answer.text, computed.text, f"seed {SEED}, of {answer.cached_tokens} cached tokens")
        return answer


def common_lengths(count: int, whole: int) -> list[int]:
    """How much of so many prompts is the same as in the first one: from nothing to all of it."""
    return [round(number / max(1, count - 1) * whole) for number in range(count)]


def _disturb(node: Node, how: str) -> None:
    disturbances: dict[str, Callable[[], Any]] = {"kill": node.kill, "freeze": node.freeze, "stop": node.stop}
    disturbances.get(how, lambda: None)()


def _repair(node: Node) -> None:
    """The node runs again. An engine may have ended one that was frozen."""
    node.resume()
    if not node.is_running():
        node.start()


def _notes(seed: int, sentences: int) -> str:
    chance = random.Random(seed)
    text = [f"{chance.choice(TOPICS)} {chance.choice(VERBS)} {chance.choice(TOPICS)}" for _ in range(sentences)]
    return ". ".join(f"{number + 1} {sentence}" for number, sentence in enumerate(text)) + "."
