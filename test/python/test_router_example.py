"""The example of a router: killed and started again, its lists are what the nodes have."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any

import sglang_node
from sglang_node import Node
from support import ROOT, wait_for

from meshcache import Client

#: With MESHCACHE_TEST_SEED a run is repeated.
SEED = int(os.environ.get("MESHCACHE_TEST_SEED", random.randrange(1 << 32)))
KEYS = [f"key-{number}" for number in range(60)]


class Router:
    """A process of the example."""

    def __init__(self, state: str, sockets: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src" / "python")}
        script = str(ROOT / "examples" / "router" / "router.py")
        arguments = ["--state", state, "--tag", "routed", "--save-seconds", "0.05", *sockets]
        self.process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        #: Sockets of nodes whose lists have begun anew.
        self.resets: list[str] = []

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if "reset" not in answer:
                return answer
            self.resets.append(answer["reset"])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class RouterExample(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meshcache-router-")
        self.addCleanup(folder.cleanup)
        self.state = folder.name
        first = Node(pool="1mb")
        self.addCleanup(first.remove)
        second = Node(first.discovery, pool="1mb")
        self.addCleanup(second.remove)
        self.nodes = [first, second]
        self.clients = [Client(node.client_socket, namespace={"tag": "routed"}, timeout=60.0) for node in self.nodes]
        for client in self.clients:
            self.addCleanup(client.close)

    def router(self) -> Router:
        router = Router(self.state, [node.client_socket for node in self.nodes])
        self.addCleanup(router.kill)
        return router

    def held(self) -> list[list[str]]:
        """The pages of each node, as it says itself."""
        return [
            sorted(
                f"{key!r} {holder['tier']}"
                for key, entry in zip(KEYS, client.stat(KEYS))
                for holder in (entry or {"holders": []})["holders"]
                if holder["node_id"] == client.node_id
            )
            for client in self.clients
        ]

    def agree(self, router: Router) -> None:
        """The lists of the router are what the nodes have."""

        def do() -> bool:
            shown = router.ask("")
            return all(node["complete"] for node in shown) and [node["pages"] for node in shown] == self.held()

        wait_for(f"the lists are right (seed {SEED})", do)

    def test_a_router_that_is_killed_again_and_again_misses_nothing(self) -> None:
        chance = random.Random(SEED)
        is_over = threading.Event()

        def work(seed: int) -> None:
            own = random.Random(seed)
            while not is_over.is_set():
                client, key = own.choice(self.clients), own.choice(KEYS)
                if own.random() < 0.75:
                    # Larger than the pools together: pages are evicted.
                    client.set(key, own.randbytes(own.randrange(1, 60_000)))
                else:
                    client.delete(key)

        threads = [threading.Thread(target=work, args=(chance.randrange(1 << 32),)) for _ in range(2)]
        router = self.router()
        wait_for("the lists are whole", lambda: all(node["complete"] for node in router.ask("")))
        wait_for(
            "the lists are saved", lambda: len([name for name in os.listdir(self.state) if name.endswith("json")]) == 2
        )
        for thread in threads:
            thread.start()
        for _ in range(4):
            is_over.wait(chance.random())
            router.kill()
            is_over.wait(chance.random() / 2)
            router = self.router()
        is_over.set()
        for thread in threads:
            thread.join()
        self.agree(router)
        self.assertEqual(router.resets, [], f"it came back within its bound (seed {SEED})")
        shown = router.ask("")
        self.assertTrue(any(node["pages"] for node in shown))
        for client, node in zip(self.clients, self.nodes):
            there = [key for key in KEYS if f"{key!r} memory" in self.held()[self.clients.index(client)]]
            if there:
                self.assertEqual(client.exists(there), len(there))
                self.assertEqual(router.ask(" ".join([*there, "nowhere"]))["pages"], len(there))

    def test_a_restart_of_a_node_begins_its_list_anew(self) -> None:
        client = self.clients[1]
        wait_for("a page is set", lambda: client.set("key-1", b"1"))
        router = self.router()
        self.agree(router)
        self.assertEqual(router.ask("key-1 key-2"), {"node": self.nodes[1].client_socket, "pages": 1})
        router.resets.clear()
        self.nodes[1].kill()
        wait_for("its pages do not count", lambda: router.ask("key-1")["pages"] == 0)
        self.nodes[1].start()
        wait_for("a page is set", lambda: client.set("key-2", b"2"))
        self.agree(router)
        self.assertEqual(router.resets, [self.nodes[1].client_socket])
        self.assertEqual(router.ask("key-2"), {"node": self.nodes[1].client_socket, "pages": 1})


if __name__ == "__main__":
    unittest.main()
