"""What a client says of pages that it does not read yet: sessions and prefetching."""

from __future__ import annotations

import threading
import time
import unittest
from typing import Any

from support import NodeTest, wait_for
from meshcache import Client, NotAvailable

#: A node that takes TELL and PREFETCH.
SESSIONS = 3 | 4096


class Sessions(NodeTest):
    def news(self, client: Client) -> list[dict[str, Any]]:
        """What the node was told of sessions."""
        news: list[dict[str, Any]] = client.stats()["node"]["sessions"]
        return news

    def test_prefetch(self) -> None:
        self.node(capabilities=SESSIONS, max_keys=2)
        client = self.client()
        self.assertEqual(client.set_many({"a": b"1", "b": b"2", "c": b"3"}), [True] * 3)
        self.assertEqual(client.prefetch(["a", "none", "b", "c"], by=1.5), [True, False, True, True])
        self.assertEqual(client.prefetch([b"a"]), [False])
        self.assertEqual(client.prefetch([]), [])
        self.assertEqual(client.prefetch(["a"], wait=False), [False])
        self.assertEqual(client.prefetch(["status=8"]), [False])
        for wrong in (-1, float("nan"), 604_801):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "by must be 0 to 604800 seconds"):
                client.prefetch(["a"], by=wrong)
        with self.assertRaisesRegex(TypeError, "by must be a number of seconds"):
            client.prefetch(["a"], by="1")  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "sequence of strings"):
            client.prefetch("a")

    def test_prefetch_much_later(self) -> None:
        self.node(capabilities=SESSIONS)
        client = self.client()
        client.set("a", b"1")
        started = time.monotonic()
        self.assertEqual(client.prefetch(["a"], by=10.4), [True])
        self.assertGreaterEqual(time.monotonic() - started, 0.39)
        self.assertEqual(client.prefetch(["a"], by=3600, wait=False), [False])
        waiting = threading.Thread(target=lambda: self.assertEqual(client.prefetch(["a"], by=3600), [False]))
        waiting.start()
        self.assertEqual(client.exists("a"), True)
        client.close()
        waiting.join(10)
        self.assertFalse(waiting.is_alive())

    def test_pins_by_name(self) -> None:
        self.node(capabilities=SESSIONS | 32)
        client = self.client()
        client.set_many({"a": b"1", "b": b"2"})
        self.assertEqual(client.pin(["a", "none", "b"], name="system"), [True, False, True])
        self.assertEqual(client.end_pins("system"), 2)
        self.assertEqual(client.end_pins("system"), 0)
        for arguments in ({}, {"seconds": 1, "name": "system"}):
            with self.assertRaisesRegex(TypeError, "either seconds or a name"):
                client.pin(["a"], **arguments)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "name must have 1 to 256 bytes"):
            client.pin(["a"], name="")
        with self.assertRaisesRegex(TypeError, "name must be a str"):
            client.end_pins(1)  # type: ignore[arg-type]

    def test_tell(self) -> None:
        self.node(capabilities=SESSIONS, shows_told=True)
        client = self.client()
        self.assertTrue(client.tell("agent-7", ["a", "b"], waiting=1.5, shared=1))
        self.assertTrue(client.tell("agent-7", [b"c"], branched=True))
        self.assertTrue(client.tell("agent-7", ended=True))
        first = {"pool": "kv", "session": "agent-7", "branched": False, "ended": False, "shared": 0}
        wait_for("the news", lambda: len(self.news(client)) == 3)
        told = self.news(client)
        self.assertEqual(told[0], first | {"waitingMs": 1500, "shared": 1, "keys": ["a", "b"]})
        self.assertEqual((told[1]["branched"], len(told[1]["keys"])), (True, 1))
        self.assertEqual(told[2], first | {"ended": True, "keys": []})

    def test_tell_of_more_pages_than_a_request_has(self) -> None:
        self.node(capabilities=SESSIONS, shows_told=True, max_keys=2)
        client = self.client()
        self.assertTrue(client.tell("s", ["a", "b", "c"], waiting=3, branched=True))
        wait_for("the news", lambda: len(self.news(client)) == 3)
        told = self.news(client)
        self.assertEqual([news["keys"] for news in told], [["a", "b"], ["c"], []])
        self.assertEqual([news["branched"] for news in told], [True, False, False])
        self.assertEqual([news.get("waitingMs") for news in told], [None, None, 3000])

    def test_wrong_arguments_of_tell(self) -> None:
        self.node(capabilities=SESSIONS)
        client = self.client()
        for name in ("", "s" * 257):
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, "session must have 1 to 256 bytes"):
                client.tell(name)
        with self.assertRaisesRegex(TypeError, "session must be a str"):
            client.tell(7)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "waiting must be 0 to 604800 seconds"):
            client.tell("s", waiting=-1)
        with self.assertRaisesRegex(TypeError, "shared must be a number of pages"):
            client.tell("s", shared=1.5)  # type: ignore[arg-type]

    def test_an_older_node_is_not_told(self) -> None:
        self.node()
        client = self.client()
        self.assertFalse(client.tell("s", ["a"], ended=True))
        with self.assertRaisesRegex(NotAvailable, "which cannot prefetch pages"):
            client.prefetch(["a"])

    def test_without_a_node(self) -> None:
        client = self.client()
        self.assertFalse(client.tell("s", ended=True))
        self.assertEqual(client.prefetch(["a"]), [False])


if __name__ == "__main__":
    unittest.main()
