"""What examples/lmcache says of the plug-in: its command line works on a node, and its table names all parameters with their defaults."""

from __future__ import annotations

import json
import os
import re
import shlex
import unittest

import lmcache_support as support
import sglang_node
from lmcache.server import CHUNK_BYTES, CHUNKS, main
from sglang_node import Node

from meshcache.lmcache import Settings

README = os.path.join(support.ROOT, "examples", "lmcache", "README.md")


class ExampleTest(unittest.TestCase):
    def setUp(self) -> None:
        with open(README, encoding="utf-8") as file:
            self.text = file.read()

    @unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
    def test_the_command_line_stores_and_loads_on_a_node(self) -> None:
        given = re.search(r"^lmcache server (.*?) &$", self.text, re.DOTALL | re.MULTILINE)
        assert given is not None
        arguments = shlex.split(given[1].replace("\\\n", " "))
        named = json.loads(arguments[arguments.index("--l2-adapter") + 1])["adapter_params"]["client_socket"]
        self.assertIn(f"--client-socket {named} ", self.text)
        node = Node()
        self.addCleanup(node.remove)
        here = [argument.replace(named, node.client_socket) for argument in arguments]
        here[here.index("--shm-name") + 1] += f"_test_{os.getpid()}"
        counted = main(here)
        self.assertEqual(counted["bytes_read_direct"], CHUNKS * CHUNK_BYTES)
        # Without the two options that share L1, as the text below says.
        lazy = [argument for argument in here if argument != "--no-l1-use-lazy"]
        self.assertEqual(main(lazy)[f"bytes_read_{sglang_node.copied_way()}"], CHUNKS * CHUNK_BYTES)

    def test_the_table_has_every_key_and_its_default(self) -> None:
        rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", self.text, re.MULTILINE))
        defaults = {name: value for name, value in vars(Settings()).items() if value is not None}
        self.assertEqual(set(rows), {"client_socket", "token_file", "tag", "fingerprint", *defaults})
        for name, value in defaults.items():
            self.assertEqual(json.loads(rows[name]), value, name)


if __name__ == "__main__":
    unittest.main()
