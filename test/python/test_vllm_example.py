"""What examples/vllm says of the tier: its configuration is taken, and its table names all keys with their defaults."""

from __future__ import annotations

import json
import os
import re
import unittest

import vllm_support as support
from vllm_manager import Engine

from meshcache.vllm.settings import OWN_KEYS, Settings

README = os.path.join(support.ROOT, "examples", "vllm", "README.md")


class ExampleTest(unittest.TestCase):
    def setUp(self) -> None:
        with open(README, encoding="utf-8") as file:
            self.text = file.read()

    def test_the_configuration_names_the_tier_and_is_taken(self) -> None:
        given = re.search(r"--kv-transfer-config '(.*?)'", self.text, re.DOTALL)
        assert given is not None
        config = json.loads(given[1])["kv_connector_extra_config"]
        self.assertEqual(config["spec_name"], "TieringOffloadingSpec")
        [tier] = config["secondary_tiers"]
        self.assertIn(f"--client-socket {tier['client_socket']} ", self.text)
        # No node is at that path here: the engine starts, and computes everything.
        params = {name: value for name, value in tier.items() if name not in ("type", "module_path")}
        engine = Engine({**params, "client_socket": f"{tier['client_socket']}.nobody"})
        self.addCleanup(engine.close)
        self.assertEqual(type(engine.manager.tier).__name__, tier["type"])
        self.assertEqual(type(engine.manager.tier).__module__.rpartition(".")[0], tier["module_path"])
        self.assertEqual(engine.run(support.chunk_keys("example", 10)), [0])
        self.assertEqual(engine.manager.errors, [])

    def test_the_table_has_every_key_and_its_default(self) -> None:
        rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", self.text, re.MULTILINE))
        self.assertEqual(set(OWN_KEYS), set(rows))
        defaults = Settings()
        for name in ("end_frozen_node", "mode", "required", "timeout"):
            self.assertEqual(json.loads(rows[name]), getattr(defaults, name), name)


if __name__ == "__main__":
    unittest.main()
