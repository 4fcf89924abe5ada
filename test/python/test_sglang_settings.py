"""Settings of the SGLang backend, and what it refuses at the start."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import sglang_support as support
from sglang_fake_client import FakeClient

from meshcache.sglang import MeshCacheStorage, Settings


class SettingsTest(unittest.TestCase):
    def test_defaults(self) -> None:
        settings = Settings.parse({"backend_name": "x", "module_path": "y", "class_name": "z"})
        self.assertEqual(settings, Settings())
        self.assertEqual(settings.timeout, 5.0)
        self.assertEqual(Settings.parse(None), Settings())

    def test_own_keys(self) -> None:
        given = {"client_socket": "/run/x", "tag": "v2", "timeout": 2, "mode": "staged", "required": True}
        settings = Settings.parse({**given, "end_frozen_node": 0, "interface_v1": 1})
        self.assertEqual(settings, Settings("/run/x", "v2", 2.0, "staged", True, False, True))
        self.assertEqual(Settings.parse({"fingerprint": "5eed"}), Settings(fingerprint="5eed"))

    def test_numbers_and_flags_may_be_texts(self) -> None:
        self.assertEqual(Settings.parse({"timeout": "3"}).timeout, 3.0)
        self.assertEqual(Settings.parse({"timeout": "0.5"}).timeout, 0.5)
        for name in ("required", "end_frozen_node"):
            for value, expected in [("true", True), ("1", True), ("True", True), ("false", False), ("0", False)]:
                self.assertIs(getattr(Settings.parse({name: value}), name), expected, f"{name}={value}")

    def test_the_interface_is_read_as_the_framework_reads_it(self) -> None:
        for value in (0, None, False, "", 1, True, 2, "0", "1", "true"):
            self.assertIs(Settings.parse({"interface_v1": value}).interface_v1, bool(value), repr(value))

    def test_keys_of_the_framework_are_ignored(self) -> None:
        Settings.parse({"allocator": "shm", "prefetch_threshold": 1, "hicache_storage_pass_prefix_keys": True})

    def test_unknown_keys_are_refused_with_the_nearest(self) -> None:
        for given, near in [("client_sokcet", "client_socket"), ("extra_backend_tag", "tag"), ("timeuot", "timeout")]:
            with self.assertRaisesRegex(ValueError, f'{given}.*did you mean "{near}"'):
                Settings.parse({given: 1})
        with self.assertRaisesRegex(ValueError, "meshcache's own keys are client_socket, end_frozen_node"):
            Settings.parse({"zzzzzz": 1})

    def test_bad_values_are_refused(self) -> None:
        bad: list[tuple[str, Any]] = [("timeout", 0), ("timeout", 10), ("timeout", True), ("timeout", float("nan"))]
        bad += [("mode", "rdma"), ("required", "yes"), ("tag", ""), ("client_socket", 7), ("end_frozen_node", 2)]
        bad += [("timeout", "10"), ("timeout", "soon"), ("timeout", "nan"), ("timeout", ""), ("timeout", 10**400)]
        bad += [("required", ""), ("required", None), ("end_frozen_node", "2"), ("end_frozen_node", [])]
        for name, value in bad:
            with self.assertRaisesRegex(ValueError, f"extra config: {name} must be .*got"):
                Settings.parse({name: value})

    def test_refusals_say_what_is_allowed(self) -> None:
        with self.assertRaisesRegex(ValueError, "timeout must be a number above 0 and below 10 .*got '3s'"):
            Settings.parse({"timeout": "3s"})
        with self.assertRaisesRegex(ValueError, "required must be true, false, 1 or 0, got 'yes'"):
            Settings.parse({"required": "yes"})


class RefusalTest(unittest.TestCase):
    def setUp(self) -> None:
        FakeClient.reset()
        patch = mock.patch("meshcache.sglang.storage.Client", FakeClient)
        patch.start()
        self.addCleanup(patch.stop)

    def refused(self, text: str, pool: Any, **changes: Any) -> None:
        storage = MeshCacheStorage(support.storage_config(**changes), {})
        with self.assertRaisesRegex(ValueError, text):
            storage.register_mem_pool_host(pool)
        self.assertTrue(all(client.closed for client in FakeClient.made))
        self.assertEqual(storage.batch_get_v1(["a"], support.Indices(range(4))), [False])

    def test_a_configuration_without_model_and_tag(self) -> None:
        with self.assertRaisesRegex(ValueError, "no model name.*--served-model-name"):
            MeshCacheStorage(support.storage_config(model_name=None), {})
        MeshCacheStorage(support.storage_config({"tag": "llama"}, model_name=None), {})

    def test_layer_first_is_refused_where_a_page_has_too_many_pieces(self) -> None:
        pool = support.MHATokenToKVPoolHost(2, 64, layout="layer_first")
        storage = MeshCacheStorage(support.storage_config(), {})
        storage.register_mem_pool_host(pool)
        self.assertEqual(storage.batch_set_v1(["a"], pool.indices([0])), [True])
        FakeClient.reset()
        pool.layer_num = 128
        self.refused("up to 256 pieces; at most 255 .*--hicache-mem-layout page_first", pool)

    def test_a_layout_with_keys_of_its_own(self) -> None:
        self.refused("page_unified", support.MHATokenToKVPoolHost(2, 64, layout="page_unified"))

    def test_adapters_whose_pages_have_the_same_keys(self) -> None:
        with mock.patch("meshcache.sglang.framework.hashes_have_namespaces", return_value=False):
            MeshCacheStorage(support.storage_config(), {}).register_mem_pool_host(support.MHATokenToKVPoolHost(2, 64))
            FakeClient.reset()
            with support.arguments(enable_lora=True):
                self.refused("LoRA adapters the same key", support.MHATokenToKVPoolHost(2, 64))

    def test_heads_that_cannot_be_split(self) -> None:
        pool = support.MHATokenToKVPoolHost(2, 64, heads=3, layout="page_head")
        self.refused("3 KV heads of a rank cannot be split into 2", pool, tp_lcm_size=2)

    def test_heads_of_different_sizes_without_pointers(self) -> None:
        pool = support.AsymmetricMHATokenToKVPoolHost(2, (64, 32))
        self.refused("interface_v1", pool, extra={"interface_v1": 0})

    def test_a_pool_without_memory(self) -> None:
        self.refused("no host memory", support.HiddenPoolHost(2, (64,)))

    def test_a_required_node_that_is_not_there(self) -> None:
        with mock.patch("meshcache.sglang.storage.Client", side_effect=ConnectionError("no node")):
            storage = MeshCacheStorage(support.storage_config({"required": True}), {})
            with self.assertRaises(ConnectionError):
                storage.register_mem_pool_host(support.MLATokenToKVPoolHost(2, (64,)))


if __name__ == "__main__":
    unittest.main()
