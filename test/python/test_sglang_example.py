"""What examples/sglang says of the backend: its configuration is taken, and its table names all keys with their defaults."""

from __future__ import annotations

import importlib
import json
import os
import re
import unittest

import sglang_support as support

from meshcache._engines.settings import COMMON_KEYS
from meshcache.sglang.settings import Settings

README = os.path.join(support.ROOT, "examples", "sglang", "README.md")


class ExampleTest(unittest.TestCase):
    def setUp(self) -> None:
        with open(README, encoding="utf-8") as file:
            self.text = file.read()

    def test_the_configuration_names_the_backend_and_is_taken(self) -> None:
        given = re.search(r"--hicache-storage-backend-extra-config '(.*?)'", self.text, re.DOTALL)
        assert given is not None
        config = json.loads(given[1])
        settings = Settings.parse(config)
        self.assertTrue(settings.interface_v1)
        self.assertIn(f"--client-socket {settings.client_socket} ", self.text)
        backend = getattr(importlib.import_module(config["module_path"]), config["class_name"])
        self.assertEqual(backend(support.storage_config(config), {}).exists("key"), False)

    def test_the_table_has_every_key_and_its_default(self) -> None:
        rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", self.text, re.MULTILINE))
        self.assertLessEqual(set(COMMON_KEYS), set(rows))
        defaults = Settings()
        for name in ("end_frozen_node", "facts", "mode", "on_reset", "required", "timeout"):
            self.assertEqual(json.loads(rows[name]), getattr(defaults, name), name)


if __name__ == "__main__":
    unittest.main()
