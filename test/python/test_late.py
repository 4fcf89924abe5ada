"""When the memory of a call is given back after the connection was lost."""

from __future__ import annotations

import threading
import unittest

from support import PATIENCE_SECONDS, NodeTest, shared_memory, wait_for

PAGE_BYTES = 1 << 16


class LateWrites(NodeTest):
    def test_a_call_ends_although_its_client_is_closed(self) -> None:
        """The client looks on for proof that the node has let go of the memory, and does not wait for the end of the node."""
        self.node()
        client = self.client(mode="direct", end_frozen_node=False)
        memory = shared_memory(PAGE_BYTES)
        region = client.register(memory)
        pattern = b"\xaa" * PAGE_BYTES
        results: list[bool] = []

        def read() -> None:
            # The node closes the connection, and writes for a second.
            results.extend(client.get_into(["close-and-write=1000"], [[(region, 0, PAGE_BYTES)]], timeout=0.1))
            memory[:] = pattern

        reader = threading.Thread(target=read)
        reader.start()
        wait_for("the connection is lost", lambda: memory[0] != 0 and not client.is_connected)
        client.close()
        reader.join(PATIENCE_SECONDS)
        self.assertFalse(reader.is_alive(), "the call is blocked for as long as the node lives")
        self.assertEqual(results, [False])
        self.assertEqual(memory[:], pattern)


if __name__ == "__main__":
    unittest.main()
