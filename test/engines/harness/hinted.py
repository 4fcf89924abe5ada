"""Hints on requests to a real server: pages that other requests have pushed to the disk are in the node's pool again
before the engine asks for them."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from harness.api_server import ApiServer, ChatAnswer
from harness.node_pages import counters, page_media
from harness.nodes import Cluster, Node, free_port, wait_for

ANSWER_TOKENS = 6
#: Sentences of a prompt. A quarter of the node's pool, which prefetched pages may take, has room for its pages.
SENTENCES = 30
#: Sentences of requests that push the pages of others out of the node's pool and of the engine's own.
OTHER_SENTENCES = 80
OTHERS_MAX_COUNT = 12

READ_LOCALLY = 'meshcache_reads_total{result="hit",source="local"}'
READ_FROM_DISK = 'meshcache_reads_total{result="hit",source="disk"}'


def envelope(*actions: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Hints with these actions and payloads."""
    listed = [
        {"action_id": str(number), "action_type": type_, "action_version": "1.0", "payload": payload}
        for number, (type_, payload) in enumerate(actions)
    ]
    return {"protocol_version": "0.1", "message_id": "m", "actions": listed}


def prefetched(result: str) -> str:
    return f'meshcache_prefetched_pages_total{{result="{result}"}}'


class Hinted(unittest.TestCase):
    """Subclasses say how their server is started, and where a request has its hints."""

    #: The arguments of the interpreter for a server on a port, with a client socket. The engine's own caches must be
    #: small, so that other requests push a prompt out of them.
    server_arguments: Callable[[int, str], list[str]]
    #: The fields of a request that carry hints.
    with_hints: Callable[[Any], dict[str, Any]]
    #: The hash of a block, which hints have, by its key.
    block_hash: Callable[[str], str] = staticmethod(lambda key: key)
    POOL = "64mb"

    node: ClassVar[Node]
    server: ClassVar[ApiServer]

    @classmethod
    def setUpClass(cls) -> None:
        if cls is Hinted:
            raise unittest.SkipTest("the base of others")
        folder = Path(tempfile.mkdtemp(prefix="meshcache-hints-"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        disk = {"disk_enabled": "true", "disk_path": folder / "disk", "disk_size": "2gb"}
        cluster = Cluster(1, pool=cls.POOL, **disk)
        cls.addClassCleanup(cluster.close)
        [cls.node] = cluster.nodes
        port = free_port()
        arguments = cls.server_arguments(port, cls.node.client_socket)
        # Several threads that wait for each other take much longer for short requests on a busy machine.
        cls.server = ApiServer(arguments, port, folder / "server.log", {"OMP_NUM_THREADS": "1"})
        cls.addClassCleanup(cls.server.close)
        cls.server.wait()

    def ask(self, prompt: str, hints: Any = None, tokens: int = 1) -> ChatAnswer:
        messages = [{"role": "user", "content": prompt}]
        return self.server.chat(messages, tokens, **({} if hints is None else self.with_hints(hints)))

    def push_out(self, keys: list[str], name: str) -> None:
        """Has other requests answered until these pages are on the node's disk only."""
        for number in range(OTHERS_MAX_COUNT):
            self.ask(f"{name} {number}: " + text(f"{name}-{number}", OTHER_SENTENCES))
            media = page_media(self.node)
            if all(media.get(key) == "DISK" for key in keys):
                return
        self.fail(f"{OTHERS_MAX_COUNT} other requests leave pages in the pool: {[media.get(key) for key in keys]}")

    def since(self, before: dict[str, float], *names: str) -> list[int]:
        """How much counters have grown."""
        now = counters(self.node)
        return [int(now.get(name, 0) - before.get(name, 0)) for name in names]

    def test_pages_are_there_before_the_engine_asks_for_them(self) -> None:
        prompt = text("first", SENTENCES)
        computed = self.ask(prompt, tokens=ANSWER_TOKENS)
        self.assertEqual(computed.cached_tokens, 0)
        keys = wait_for("the pages are stored", lambda: self.stored(computed.prompt_tokens))
        self.push_out(keys, "early")

        # A router names the blocks that will be needed, in a short request.
        before = counters(self.node)
        hints = envelope(("kv.fetch", {"block_hashes": [self.block_hash(key) for key in keys]}))
        self.ask("Hello", hints)
        self.brought(before, keys)

        # The request that needs them is of a session.
        session = {"session": "agent-7"}
        found = self.ask(prompt, envelope(("meshcache.session", session)), ANSWER_TOKENS)
        self.found(before, found, computed, len(keys))
        self.push_out(keys, "late")

        # A tool runs, and the session goes on in a few seconds.
        before = counters(self.node)
        self.ask("Hello", envelope(("meshcache.session", {**session, "waiting": 5})))
        self.brought(before, keys)
        self.found(before, self.ask(prompt, tokens=ANSWER_TOKENS), computed, len(keys))

    def test_wrong_hints_change_no_answer(self) -> None:
        expected = self.ask("Hello").text
        unknown = envelope(("kv.fetch", {"block_hashes": ["none", "00" * 32, 7]}), ("kv.other", {}))
        no_list = envelope(("kv.fetch", {"block_hashes": "none"}))
        for wrong in ("nothing", 7, [], {"protocol_version": "7"}, no_list, unknown):
            with self.subTest(wrong=wrong):
                self.assertEqual(self.ask("Hello", wrong).text, expected)
        self.assertIn("hints of a request are ignored", self.server.log_text())

    def stored(self, tokens: int) -> list[str]:
        """The keys of the only prompt so far, when all of its pages are stored."""
        keys = list(page_media(self.node))
        return keys if len(keys) >= (tokens - 1) // 64 else []

    def brought(self, before: dict[str, float], keys: list[str]) -> None:
        """All pages come into the pool, and nobody has asked for them yet."""
        wait_for("the pages are brought", lambda: self.since(before, prefetched("brought")) == [len(keys)])
        self.assertEqual(self.since(before, prefetched("used"), READ_LOCALLY, READ_FROM_DISK), [0, 0, 0])
        media = page_media(self.node)
        self.assertEqual({media[key] for key in keys}, {"CPU"})

    def found(self, before: dict[str, float], answer: ChatAnswer, computed: ChatAnswer, pages: int) -> None:
        """The engine has read the pages from the pool, and answers as if it had computed them."""
        self.assertEqual(answer.text, computed.text)
        self.assertGreaterEqual(answer.cached_tokens, computed.prompt_tokens // 64 * 64 - 64)
        used, locally, from_disk = self.since(before, prefetched("used"), READ_LOCALLY, READ_FROM_DISK)
        print(f"brought {pages}, used {used}, read from the pool {locally}, from the disk {from_disk}")
        self.assertGreaterEqual(used, pages - 1)
        self.assertEqual((locally, from_disk), (used, 0))


def text(name: str, sentences: int) -> str:
    return f"{name}: " + " ".join(f"Ship {number} of {name} carries bread and clocks." for number in range(sentences))
