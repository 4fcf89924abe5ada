"""Real LMCache servers on real nodes: what one has stored, another one reads, byte for byte, and nothing else."""

from __future__ import annotations

import time
import unittest

from harness.nodes import wait_for
from real_lmcache import CHUNK_TOKENS, LMCacheTest, tokens

#: A lookup of a silent node lasts a second at most; the rest is for a busy machine.
LOOKUP_SECONDS = 20.0


class ServersTest(LMCacheTest):
    def test_another_server_reads_through_the_other_node_what_one_has_stored(self) -> None:
        first, second = self.cluster(verify_reads=True).nodes
        one, other = self.server(first), self.server(second)
        writer, reader = self.engine(one), self.engine(other)
        ids = tokens("shared", 1000)
        self.stored(writer, reader, ids)
        self.assertEqual(reader.read(ids), 3 * CHUNK_TOKENS)
        # What both have, and what only the first chunk of is there.
        self.assertEqual(writer.read(ids), 3 * CHUNK_TOKENS)
        self.assertEqual(reader.read(ids[:300] + tokens("other end", 700)), CHUNK_TOKENS)
        self.assertEqual(reader.read(tokens("never stored", 600)), 0)
        for server in (one, other):
            self.assertTrue(server.lines("pages go direct"), server.log()[-2000:])
            self.assertTrue(server.lines('pages of model "example/model" on 1 ranks: group 0: dtype=float16 shape='))
            self.assertEqual([line for line in server.lines("meshcache") if "WARNING" in line], [])

    def test_a_node_that_was_killed_is_a_miss_and_then_back(self) -> None:
        first, second = self.cluster().nodes
        one, other = self.server(first), self.server(second)
        writer, reader = self.engine(one), self.engine(other)
        second.kill()
        self.assertEqual(reader.read(tokens("no node", 600)), 0)
        second.start()
        ids = tokens("node is back", 600)
        writer.store(ids)
        # A lookup that finds nothing is not repeated by LMCache, so that it is asked again with the same tokens.
        wait_for("the node serves again", lambda: reader.read(ids) == 2 * CHUNK_TOKENS)

    def test_a_frozen_node_costs_a_request_a_second_at_most(self) -> None:
        node = self.cluster(1).nodes[0]
        server = self.server(node, timeout=29.0)
        engine = self.engine(server)
        engine.store(tokens("before", 300))
        node.freeze()
        begun = time.monotonic()
        self.assertEqual(engine.found(tokens("frozen 1", 600)), 0)
        self.assertEqual(engine.found(tokens("frozen 2", 600)), 0)
        self.assertLess(time.monotonic() - begun, LOOKUP_SECONDS)
        wait_for("the log says so", lambda: server.lines("the node has not answered in time (exists of"))
        node.resume()
        # A connection that was lost meanwhile, such as one with a region that the node had not yet taken, says so in words of its own.
        ends = ("the node answers again", "attached again to node")
        wait_for("the log says that it answers", lambda: any(server.lines(end) for end in ends))


if __name__ == "__main__":
    unittest.main()
