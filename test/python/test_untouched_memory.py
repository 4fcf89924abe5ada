"""Memory that no program has touched, as an engine's fresh host cache: a real node pays for little of it, and asks the client to touch the rest."""

from __future__ import annotations

import mmap
import os
import unittest

import sglang_node
from meshcache import Client

MIB = 1 << 20
PAGE = 4 * MIB
COUNT = 24


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class UntouchedMemory(unittest.TestCase):
    def test_every_batch_from_it_is_set_also_when_the_pool_is_full(self) -> None:
        # The request that was made once more went on with the call before, whose pages it does not evict: all were False.
        node = sglang_node.Node(pool="256mb")
        self.addCleanup(node.remove)
        client = Client(node.client_socket, timeout=60)
        self.addCleanup(client.close)
        for batch in range(5):
            descriptor = os.memfd_create("pool")
            self.addCleanup(os.close, descriptor)
            os.ftruncate(descriptor, COUNT * PAGE)
            memory = mmap.mmap(descriptor, COUNT * PAGE)
            region = client.register(memory)
            keys = [f"{batch} {index}" for index in range(COUNT)]
            pages = [(region, index * PAGE, PAGE) for index in range(COUNT)]
            self.assertEqual(client.set_from(keys, pages), [True] * COUNT, f"batch {batch}")
        self.assertEqual(client.get_into(keys, pages), [True] * COUNT)


if __name__ == "__main__":
    unittest.main()
