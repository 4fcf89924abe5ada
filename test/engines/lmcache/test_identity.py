"""Engines that differ in one fact share nothing through LMCache, and equal ones share everything."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from harness.nodes import Cluster, wait_for
from real_lmcache import CHUNK_TOKENS, FACTS, Engine, LMCacheTest, Server, tokens

IDS_TOKENS = 600
FOUND = 2 * CHUNK_TOKENS


class IdentityTest(LMCacheTest):
    """All servers of the second node meet what one server of the first node has stored."""

    cluster_of_all: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster_of_all = Cluster(2)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cluster_of_all.close()

    def servers(self, writer: dict[str, Any], reader: dict[str, Any]) -> tuple[Server, Server]:
        first, second = self.cluster_of_all.nodes
        return self.server(first, **writer), self.server(second, **reader)

    def assert_shared(self, name: str, writer: Engine, reader: Engine) -> None:
        ids = tokens(f"{self.id()} {name}", IDS_TOKENS)
        self.stored(writer, reader, ids)
        self.assertEqual(reader.read(ids), FOUND, name)

    def assert_apart(self, name: str, writer: Engine, witness: Engine, reader: Engine) -> None:
        """``witness`` is equal to the writer, on the reader's node: when it finds the tokens, the reader could."""
        ids = tokens(f"{self.id()} {name}", IDS_TOKENS)
        self.stored(writer, witness, ids)
        self.assertEqual(reader.found(ids), 0, name)

    def test_engines_whose_pages_differ(self) -> None:
        one, other = self.servers({}, {})
        # Each pair has a model name of its own: engines of one name and server are equal.
        pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            ("dtype", {"dtype": torch.float16}, {"dtype": torch.bfloat16}),
            ("head", {"head": 32}, {"head": 16}),
            ("width", {"head": 32, "dtype": torch.float16}, {"head": 16, "dtype": torch.float32}),
            ("model", {"model": "example/one"}, {"model": "example/other"}),
            ("salt", {"salt": "weights-1"}, {"salt": "weights-2"}),
        ]
        third = self.server(self.cluster_of_all.nodes[1])
        for name, written, read in pairs:
            with self.subTest(name):
                written = {"model": f"example/{name}", **written}
                read = {"model": f"example/{name}", **read}
                writer, witness, reader = (
                    self.engine(one, **written),
                    self.engine(other, **written),
                    self.engine(third, **read),
                )
                self.assert_apart(name, writer, witness, reader)

    def test_servers_that_state_other_facts(self) -> None:
        one, other = self.servers({}, {})
        writer, witness = self.engine(one), self.engine(other)
        self.assert_shared("equal", writer, witness)
        cases: list[tuple[str, dict[str, Any]]] = [
            ("engine", {"facts": {"engine": 'vllm --hf-overrides {"rope_theta": 1e6}'}}),
            ("another fact", {"facts": {**FACTS, "scales": "measured"}}),
            ("nothing", {"facts": {}}),
            ("tag", {"tag": "other"}),
        ]
        for name, params in cases:
            with self.subTest(name):
                server = self.server(self.cluster_of_all.nodes[1], **params)
                self.assert_apart(name, writer, witness, self.engine(server))
                warnings = server.lines("this engine shares pages with no other engine: its engine is unknown")
                self.assertEqual(len(warnings), 1 if name == "nothing" else 0)

    def test_bytes_of_fp8_need_a_statement(self) -> None:
        stated: dict[str, Any] = {"facts": {**FACTS, "kv_cache_dtype": "fp8_e4m3"}}
        other_kind: dict[str, Any] = {"facts": {**FACTS, "kv_cache_dtype": "fp8_e5m2"}}
        one, other = self.servers(stated, stated)
        writer, witness = (self.engine(server, dtype=torch.uint8) for server in (one, other))
        self.assert_shared("equal", writer, witness)
        for name, params in (("other kind", other_kind), ("not stated", {})):
            server = self.server(self.cluster_of_all.nodes[1], **params)
            self.assert_apart(name, writer, witness, self.engine(server, dtype=torch.uint8))
            self.assertEqual(bool(server.lines("their elements have one byte")), name == "not stated")

    def test_two_kinds_of_engines_of_one_server_and_name(self) -> None:
        one, other = self.servers({}, {})
        writer, witness = self.engine(one), self.engine(other)
        self.assert_shared("alone", writer, witness)
        self.engine(one, dtype=torch.bfloat16)
        ids = tokens(f"{self.id()} mixed", IDS_TOKENS)
        writer.store(ids)
        wait_for("the log says so", lambda: one.lines("have registered different pages with this server"))
        self.assertEqual(witness.found(ids), 0)

    def test_weights_that_change_in_place(self) -> None:
        one, other = self.servers({}, {})
        writer, reader = self.engine(one), self.engine(other)
        ids = tokens(f"{self.id()} weights", IDS_TOKENS)
        self.stored(writer, reader, ids, weights="old")
        for server, engine in ((one, writer), (other, reader)):
            if engine.can_reset:
                self.assertTrue(engine.reset())
            else:
                server.clear()
            self.assertEqual(len(server.lines("the reason is not known: nothing from before is shared")), 1)
            self.assertEqual(engine.found(ids), 0)
        # Pages of the new weights are found by the server that has them only, until both are told the weights.
        writer.store(ids, weights="new")
        self.assertEqual(writer.read(ids, weights="new"), FOUND)
        self.assertEqual(reader.found(ids), 0)

    def test_a_clear_when_weights_never_change(self) -> None:
        fixed = {"on_reset": "same_weights"}
        one, other = self.servers(fixed, fixed)
        writer, reader = self.engine(one), self.engine(other)
        ids = tokens(f"{self.id()} weights", IDS_TOKENS)
        self.stored(writer, reader, ids)
        one.clear()
        self.assertEqual(writer.read(ids), FOUND)


if __name__ == "__main__":
    unittest.main()
