"""Fingerprints that change while a client runs, on a real node."""

from __future__ import annotations

import json
import subprocess
import threading
import unittest
import unittest.mock

import sglang_node
from sglang_node import COMMAND, Node
from support import PATIENCE_SECONDS, NodeTest, shared_memory, wait_for
from meshcache import Client, Namespace
from meshcache.settings import Settings
from meshcache.lmcache import MeshCacheConnector

PAGE = 4096


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class FingerprintTest(NodeTest):
    real: Node

    @classmethod
    def setUpClass(cls) -> None:
        cls.real = Node()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.real.remove()

    def engine(self, name: str, fingerprint: str | None, **settings: object) -> Client:
        self.path = self.real.client_socket
        return self.client(name=name, namespace=Namespace(tag=self.id(), fingerprint=fingerprint), **settings)

    def is_set(self, client: Client, key: str, data: bytes) -> None:
        wait_for(f"{key} is set", lambda: client.set(key, data))

    def test_pages_of_other_weights_are_not_found_and_those_of_the_same_are(self) -> None:
        one, other = self.engine("one", "v1"), self.engine("other", "v1")
        self.is_set(one, "page", b"old")
        wait_for("it is found", lambda: other.get("page") == b"old")
        one.set_fingerprint("v2")
        self.is_set(one, "page", b"new")
        self.assertEqual(one.get("page"), b"new")
        self.assertEqual(other.get("page"), b"old", "another engine keeps its weights")
        other.set_fingerprint("v2")
        wait_for("told the same, they share", lambda: other.get("page") == b"new")
        other.set_fingerprint("v1")
        wait_for("told the former weights, it finds the former pages", lambda: other.get("page") == b"old")
        other.set_fingerprint(None)
        wait_for("it is attached", lambda: other.is_connected)
        self.assertIsNone(other.get("page"))
        self.assertNotIn("WARNING", " ".join(self.lines))

    def test_regions_stay_registered(self) -> None:
        client = self.engine("regions", "v1")
        memory = shared_memory(2 * PAGE)
        region = client.register(memory)
        memory[:PAGE] = b"a" * PAGE
        wait_for("it is set", lambda: client.set_from(["page"], [(region, 0, PAGE)]) == [True])
        client.set_fingerprint("v2")
        memory[:PAGE] = b"b" * PAGE
        wait_for("it is set", lambda: client.set_from(["page"], [(region, 0, PAGE)]) == [True])
        for fingerprint, byte in (("v1", b"a"), ("v2", b"b")):
            client.set_fingerprint(fingerprint)
            wait_for("it is read", lambda: client.get_into(["page"], [(region, PAGE, PAGE)]) == [True])
            self.assertEqual(memory[PAGE:], byte * PAGE)

    def test_no_read_that_begins_later_finds_former_pages(self) -> None:
        client = self.engine("busy", "v0", timeout=PATIENCE_SECONDS)
        self.is_set(client, "page", b"0")
        wrong: list[bytes] = []
        is_over = threading.Event()
        current = ["0"]

        def read() -> None:
            while not is_over.is_set():
                before = current[0]
                page = client.get("page")
                # A page is what has been set under a fingerprint that was in force while the call lasted.
                if page is not None and not int(before) <= int(page) <= int(current[0]):
                    wrong.append(page)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for version in range(1, 20):
            client.set_fingerprint(f"v{version}")
            current[0] = str(version)
            self.is_set(client, "page", str(version).encode())
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        self.assertEqual(wrong, [])

    def test_two_threads_that_tell_it_at_once_leave_one_fingerprint(self) -> None:
        client = self.engine("both", "v0")
        self.is_set(client, "page", b"old")
        use, has_begun, may_go_on = client._link.use, threading.Event(), threading.Event()

        def slow(settings: Settings) -> None:
            if threading.current_thread() is first:
                has_begun.set()
                may_go_on.wait(PATIENCE_SECONDS)
            use(settings)

        first, second = (threading.Thread(target=client.set_fingerprint, args=(name,)) for name in ("v1", "v2"))
        with unittest.mock.patch.object(client._link, "use", slow):
            first.start()
            self.assertTrue(has_begun.wait(PATIENCE_SECONDS))
            second.start()
            # It waits for the first one, or has overtaken it by then.
            second.join(0.1)
            may_go_on.set()
            for thread in (first, second):
                thread.join(PATIENCE_SECONDS)
        self.assertEqual(client._link._settings, client._settings)

    def test_what_cannot_be_is_refused(self) -> None:
        client = self.engine("refused", "v1")
        for fingerprint in ("two words", "x" * 129):
            with self.assertRaisesRegex(ValueError, "fingerprint must be 1 to 128"):
                client.set_fingerprint(fingerprint)
        own = self.client(name="own")
        with self.assertRaisesRegex(ValueError, "make it with a namespace of its own"):
            own.set_fingerprint("v2")

    def test_the_command_tells_engines(self) -> None:
        told: list[str | None] = []
        follower = self.engine("follower", "v1")
        hooked = self.engine("hooked", "v1", on_fingerprint=told.append)
        self.is_set(follower, "page", b"old")

        def run(*args: str) -> subprocess.CompletedProcess[str]:
            command = ["node", COMMAND, "fingerprint", *args, "--socket", self.real.client_socket]
            return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

        ended = run("follower", "v2", "--json")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(json.loads(ended.stdout), {"client": "follower", "fingerprint": "v2", "clients": 1})
        wait_for("the client goes over", lambda: follower.is_connected and follower.get("page") is None)
        self.is_set(follower, "page", b"new")
        self.assertEqual(run("follower", "v1").stdout, "told 1 client named follower\n")
        wait_for("the client goes back", lambda: follower.get("page") == b"old")
        self.assertEqual(hooked.tell_fingerprint("hooked", "v7"), 1)
        self.assertEqual(hooked.tell_fingerprint("hooked", None), 1)
        wait_for("the hook is called", lambda: told == ["v7", None])
        self.assertEqual(hooked.tell_fingerprint("nobody", "v7"), 0)
        ended = run("nobody", "v2")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("no client named nobody is attached", ended.stderr)
        self.assertEqual(run("follower", "two words").returncode, 2)

    def test_an_adapter_that_is_told_goes_over_itself(self) -> None:
        connector = MeshCacheConnector(client_socket=self.real.client_socket, tag=self.id(), fingerprint="v1")
        self.addCleanup(connector.close)
        teller = self.engine("teller", "v1")
        wait_for("it is told", lambda: teller.tell_fingerprint("lmcache", "v2") == 1)
        # Cause: the client went over by itself, and the adapter went on with the epoch of the former weights.
        wait_for("its weights are the new ones", lambda: connector._weights.fingerprint == "v2")
        wait_for("so is its namespace", lambda: "v2" in str(connector._client._settings.namespace))


if __name__ == "__main__":
    unittest.main()
