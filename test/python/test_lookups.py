"""What a client says of its lookups: its own figures and those of its node are the same."""

from __future__ import annotations

import unittest
from typing import Any

from support import NodeTest, wait_for
from meshcache import Client

#: A node that takes LOOKUPS.
COUNTING = 512


class Lookups(NodeTest):
    def figures(self, client: Client) -> tuple[int, int]:
        stats = client.stats()
        return stats["lookups"], stats["found"]

    def assert_lookups(self, client: Client, asked: int, found: int) -> None:
        """The client and its node say so."""
        stats = client.stats()
        self.assertEqual((stats["lookups"], stats["found"]), (asked, found))
        self.assertEqual(stats["node"]["lookups"], [asked, found])

    def start(self, **options: Any) -> Client:
        """A client of a new node, which has two pages of three, and a page in pieces."""
        self.node(capabilities=COUNTING, shows_lookups=True, **options)
        client = self.client()
        client.set_many(["a", "b", "d", "p-k", "p-v", "q-k"], [b"1"] * 6)
        return client

    def test_a_lookup_counts_its_keys_and_those_found_without_a_gap(self) -> None:
        client = self.start()
        client.exists_prefix(["a", "b", "c", "d"])
        self.assert_lookups(client, 4, 2)
        client.exists_many(["a", "c", "b"])
        self.assert_lookups(client, 7, 3)
        client.exists("a")
        client.exists(["c"])
        self.assert_lookups(client, 9, 4)
        client.exists_many(["p", "q"], suffixes=["-k", "-v"])
        self.assert_lookups(client, 11, 5)
        client.exists_prefix([b"k"])
        self.assert_lookups(client, 12, 5)
        client.exists([])
        client.get("a")
        client.get_many(["a", "c"])
        client.stat(["a"])
        self.assert_lookups(client, 12, 5)
        self.assertEqual((client.stats()["hits"], client.stats()["misses"]), (2, 1))

    def test_further_pools_do_not_count_unless_the_caller_says_so(self) -> None:
        client = self.start()
        client.exists_many(["a", "b"], pool="mamba")
        client.exists_prefix([b"a"], pool="mamba")
        client.exists_prefix(["a"], counted=False)
        self.assert_lookups(client, 0, 0)
        client.exists_many(["a", "b"], pool="mamba", counted=True)
        self.assert_lookups(client, 2, 0)
        client.count_lookup(10, 7)
        self.assert_lookups(client, 12, 7)
        for asked, found in ((1, 2), (-1, -1), (1 << 53, 0)):
            with self.assertRaises(ValueError):
                client.count_lookup(asked, found)

    def test_a_lookup_in_several_requests_is_one(self) -> None:
        # Cause: each request counted for itself, so that what is there behind a gap was found.
        client = self.start(max_keys=2)
        client.exists_prefix(["a", "b", "d", "a", "c"])
        self.assert_lookups(client, 5, 4)
        client.exists_many(["c", "a", "b", "d"])
        self.assert_lookups(client, 9, 4)
        # Two requests of one key with its two parts.
        client.exists_many(["p", "p"], suffixes=["-k", "-v"])
        self.assert_lookups(client, 11, 6)

    def test_a_lookup_in_requests_cut_by_their_bytes_is_one(self) -> None:
        client = self.start(max_body_bytes=150)
        keys = [name * 40 for name in "abcdef"]
        client.set_many(keys[1:], [b"1"] * 5)
        client.exists_prefix(keys)
        client.exists_many(keys[1:])
        self.assert_lookups(client, 11, 5)

    def test_lookups_without_an_answer_have_found_nothing(self) -> None:
        client = self.start()
        self.assertEqual(client.exists_many(["hold", "a"], timeout=0.2), [False, False])
        self.assert_lookups(client, 2, 0)

    def test_the_next_node_is_told_of_lookups_that_none_could_answer(self) -> None:
        client = self.client()
        self.assertEqual(client.exists_prefix(["a", "b"]), 0)
        client.exists("c")
        client.count_lookup(4, 1)
        self.assertEqual(self.figures(client), (7, 1))
        self.node(capabilities=COUNTING, shows_lookups=True)
        wait_for("the client is attached", lambda: client.is_connected)
        self.assert_lookups(client, 7, 1)
        client.exists("c")
        self.assert_lookups(client, 8, 1)

    def test_a_node_that_cannot_take_lookups_is_not_told(self) -> None:
        self.node(capabilities=0, shows_lookups=True, max_keys=2)
        client = self.client()
        client.set("a", b"1")
        client.exists_many(["a", "b", "c"])
        client.exists_many(["a"], pool="mamba")
        client.count_lookup(2, 2)
        stats = client.stats()
        self.assertEqual((stats["lookups"], stats["found"], stats["errors"]), (5, 3, 0))
        self.assertTrue(client.is_connected)


if __name__ == "__main__":
    unittest.main()
