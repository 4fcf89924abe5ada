"""What the LMCache plug-in takes as ``adapter_params``, and what it refuses."""

from __future__ import annotations

import logging
import os
import tempfile
import unittest
from typing import Any

import lmcache_support as support

from meshcache import NotAvailable
from meshcache.lmcache import MeshCacheConnector


class SettingsTest(unittest.TestCase):
    def test_wrong_settings_are_refused_with_what_is_allowed(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"sockett": "x"}, "unknown key 'sockett'; did you mean \"client_socket\"?"),
            ({"socket": "x"}, 'did you mean "client_socket"?'),
            ({"num_workers": 3}, 'did you mean "workers"?'),
            ({"pool": 1}, "own keys are client_socket, end_frozen_node, facts, fingerprint, max_pending, mode"),
            ({"client_socket": ""}, "client_socket must be a non-empty string, got ''"),
            ({"client_socket": "/" + "x" * 103}, "at most 103 bytes; this one has 104"),
            ({"tag": 5}, "tag must be a non-empty string"),
            ({"required": "yes"}, "required must be true, false, 1 or 0, got 'yes'"),
            ({"end_frozen_node": 2}, "end_frozen_node must be true, false, 1 or 0"),
            ({"mode": "fast"}, "mode must be one of auto, direct, staged, bytes, got 'fast'"),
            ({"mode": ["auto"]}, "mode must be one of"),
            ({"timeout": 0}, "timeout must be a number above 0 and below 30 (seconds), got 0"),
            ({"timeout": 30}, "below 30"),
            ({"timeout": "long"}, "got 'long'"),
            ({"timeout": True}, "got True"),
            ({"timeout": float("nan")}, "got nan"),
            ({"workers": 0}, "workers must be a whole number from 1 to 32, got 0"),
            ({"workers": True}, "got True"),
            ({"max_pending": -1}, "max_pending must be a whole number from 1 to 1,048,576"),
            (
                {"facts": {"Engine": "x"}},
                "the name of a fact must be a letter, then letters, digits and _, all in lower case, and not \"private\"; got 'Engine'",
            ),
            ({"facts": {"private": "x"}}, "got 'private'"),
            ({"facts": {"engine": ["x"]}}, "facts must map names to non-empty strings or numbers"),
            ({"on_reset": "never"}, "on_reset must be one of unknown_weights, same_weights, got 'never'"),
            ({"staging_bytes": 1}, "staging_bytes must be a whole number from 4,096"),
        ]
        for params, text in cases:
            with self.assertRaises(ValueError, msg=params) as raised:
                MeshCacheConnector(**params)
            self.assertIn(text, str(raised.exception))

    def test_required_needs_a_node_at_the_start(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(NotAvailable):
            MeshCacheConnector(client_socket=os.path.join(folder, "node.sock"), required=True)

    def test_without_a_node_everything_is_a_miss_and_one_line(self) -> None:
        logger = logging.getLogger("lmcache.meshcache")
        with tempfile.TemporaryDirectory() as folder, self.assertLogs(logger, logging.WARNING) as logs:
            connector = MeshCacheConnector(client_socket=os.path.join(folder, "node.sock"))
            completed = support.Completed(connector)
            for size in (0, 8):
                views = [memoryview(bytearray(size))]
                self.assertEqual(completed.wait(connector.submit_batch_exists(["a"])), (True, "", [False]))
                self.assertEqual(completed.wait(connector.submit_batch_get(["a"], views)), (True, "", [False]))
                self.assertEqual(completed.wait(connector.submit_batch_delete(["a"])), (True, "", [False]))
                stored = completed.wait(connector.submit_batch_set(["a"], views))
                self.assertEqual(stored, (False, "set: 1 of 1 pages were not stored", [False]))
            ok, error, results = completed.wait(connector.submit_batch_exists(["a", "x" * 65_536]))
            self.assertEqual((ok, results), (False, [False, False]))
            self.assertIn("at most 65535 are allowed", error)
            connector.close()
        self.assertEqual(len([line for line in logs.output if "no node at" in line]), 1, logs.output)


if __name__ == "__main__":
    unittest.main()
