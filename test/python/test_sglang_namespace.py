"""Which engines share pages, and which never do."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sglang_support as support
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang_fake_client import FakeClient

from meshcache.sglang import MeshCacheStorage


class NamespaceTest(unittest.TestCase):
    def setUp(self) -> None:
        FakeClient.reset()
        patch = mock.patch("meshcache.sglang.storage.Client", FakeClient)
        patch.start()
        self.addCleanup(patch.stop)

    def namespace(self, pool: Any = None, extra: Any = None, **changes: Any) -> Any:
        storage = MeshCacheStorage(support.storage_config(extra, **changes), {})
        storage.register_mem_pool_host(pool or support.MHATokenToKVPoolHost(4, 64))
        return FakeClient.made[-1].options["namespace"]

    def test_equal_configurations_share(self) -> None:
        self.assertEqual(self.namespace(), self.namespace())
        self.assertEqual(self.namespace(), self.namespace(support.MHATokenToKVPoolHost(9, 64)), "pools of other sizes")
        self.assertEqual(self.namespace(), self.namespace(dp_rank=1, dp_size=2), "data-parallel ranks")
        self.assertEqual(self.namespace(), self.namespace(extra={"timeout": 1, "mode": "bytes"}))

    def test_the_log_has_the_whole_namespace(self) -> None:
        with self.assertLogs("meshcache.sglang", "INFO") as log:
            namespace = self.namespace(extra={"tag": "v2"}, tp_rank=1, tp_size=2)
        line = next(line for line in log.output if "pool registered" in line)
        self.assertTrue(line.endswith(f"namespace: {namespace}"), line)

    def test_different_configurations_never_share(self) -> None:
        seen = {self.namespace(): "the usual"}
        configurations: list[dict[str, Any]] = [
            {"model_name": "other"},
            {"extra": {"tag": "v2"}},
            {"tp_size": 2},
            {"tp_size": 2, "tp_rank": 1},
            {"tp_size": 4, "tp_rank": 1},
            {"pp_size": 2},
            {"pp_size": 2, "pp_rank": 1},
            {"attn_cp_size": 2},
            {"attn_cp_size": 2, "attn_cp_rank": 1},
            {"pool": support.MLATokenToKVPoolHost(4, (64,)), "is_mla_model": True},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.float16")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.uint8", meant="torch.float8_e4m3fn")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.uint8", meant="torch.float8_e5m2")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_first_direct")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, page_size=8)},
            {"pool": support.MHATokenToKVPoolHost(4, 64, heads=8)},
            {"pool": support.MHATokenToKVPoolHost(4, 128)},
            {"pool": support.MLATokenToKVPoolHost(4, (128,))},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_head")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="layer_first")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="layer_first"), "extra": {"interface_v1": 0}},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_head"), "tp_lcm_size": 2},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_head"), "tp_lcm_size": 4},
        ]
        stage = support.MHATokenToKVPoolHost(4, 64)
        stage.start_layer, stage.end_layer = 1, 3
        configurations.append({"pool": stage})
        for configuration in configurations:
            namespace = self.namespace(**configuration)
            self.assertNotIn(namespace, seen, f"{configuration} and {seen.get(namespace)}")
            seen[namespace] = str(configuration)

    def test_different_arguments_never_share(self) -> None:
        seen = {self.namespace(): "the usual"}
        for given in (
            {"model_path": "other"},
            {"revision": "v2"},
            {"load_format": "dummy"},
            {"json_model_override_args": '{"rope_theta": 1}'},
            {"json_model_override_args": '{"rope_theta": 2}'},
            {"context_length": 1 << 20},
            {"dtype": "float16", "kv_cache_dtype": "fp8_e5m2"},
            {"quantization": "fp8"},
            {"quantization_param_path": __file__},
            {"weight_version": "v2"},
        ):
            with support.arguments(**given):
                namespace = self.namespace()
            self.assertNotIn("private", namespace.layout)
            self.assertNotIn(namespace, seen, f"{given} and {seen.get(namespace)}")
            seen[namespace] = str(given)

    def test_orders_of_bytes_never_share(self) -> None:
        def pool(layout: str | None) -> Any:
            made = support.MHATokenToKVPoolHost(4, 64)
            if layout is not None:
                # As in SGLang 0.5.23, and before that.
                kind = SimpleNamespace(value=layout)
                made._buffer_infos = (SimpleNamespace(buffers=SimpleNamespace(layout=kind)),)
            return made

        def older(layout: str) -> Any:
            made = support.MHATokenToKVPoolHost(4, 64)
            made.device_pool.kv_cache_layout = layout
            return made

        usual = self.namespace()
        for same in (pool("nhd"), pool("paged_nhd"), older("nhd")):
            self.assertEqual(self.namespace(same), usual)
        self.assertEqual(self.namespace(pool("hnd")), self.namespace(older("hnd")))
        self.assertEqual(len({usual, self.namespace(pool("hnd")), self.namespace(pool("vectorized_5d"))}), 3)

    def test_an_order_of_bytes_that_the_pool_does_not_tell(self) -> None:
        usual = self.namespace()
        with support.environment(SGLANG_USE_HND_KVCACHE=False, SGLANG_AITER_KV_CACHE_LAYOUT="nhd"):
            self.assertEqual(self.namespace(), usual)
        for switch in ({"SGLANG_USE_HND_KVCACHE": True}, {"SGLANG_AITER_KV_CACHE_LAYOUT": "vectorized_5d"}):
            with support.environment(**switch), self.assertLogs("meshcache.sglang", "WARNING") as log:
                self.assertNotEqual(self.namespace(), self.namespace())
            self.assertIn('"facts": {"axes": "..."}', log.output[0])

    def test_encodings_of_compressed_pages_never_share(self) -> None:
        class DeepSeekV4PagedHostPool(support.MLATokenToKVPoolHost):
            item_bytes, slot_page_size, pool_name = 64, 4, "c4"

        def pools(layout: str, option: str | None) -> Any:
            chosen = (SimpleNamespace(value=layout), option)
            return mock.patch.dict(
                sys.modules,
                {"sglang.srt.mem_cache.deepseek_v4_memory_pool": SimpleNamespace(select_dsv4_kv_layout=lambda: chosen)},
            )

        older = self.namespace(DeepSeekV4PagedHostPool(4, (64,)))
        found = {}
        for layout, option in (("v4", None), ("v4", "fp8"), ("v41", "auto"), ("v41_new", "auto"), ("v41", "fp4")):
            with support.environment(SGLANG_DSV4_KV_LAYOUT=layout), pools(layout, option):
                found[layout, option] = self.namespace(DeepSeekV4PagedHostPool(4, (64,)))
        self.assertEqual(found["v4", None], older)
        self.assertEqual(found["v4", "fp8"], older)
        self.assertEqual(len(set(found.values())), 4)

    def test_quantization_by_the_environment(self) -> None:
        usual = self.namespace()
        off = {"SGLANG_FP8_IGNORED_LAYERS": "", "SGLANG_HUMMING_ONLINE_QUANT_CONFIG": None}
        with support.environment(**off):
            self.assertEqual(self.namespace(), usual)
        seen = {usual}
        for name, value in (
            ("SGLANG_FP8_IGNORED_LAYERS", "a"),
            ("SGLANG_FP8_IGNORED_LAYERS", "b"),
            ("SGLANG_FP4_IGNORED_LAYERS", "a"),
            ("SGLANG_HUMMING_ONLINE_QUANT_CONFIG", {"dtype": "int4"}),
        ):
            with support.environment(**{name: value}):
                namespace = self.namespace()
            self.assertNotIn("private", namespace.layout)
            self.assertNotIn(namespace, seen)
            seen.add(namespace)

    def test_weights_that_arguments_name_count_by_their_content(self) -> None:
        for name in ("modelopt_checkpoint_restore_path", "uno_lora_path"):
            made = []
            for content in (b"x", b"x", b"y"):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, "weights.pt")
                    path.write_bytes(content)
                    with support.arguments(**{name: str(path)}):
                        made.append(self.namespace())
            self.assertEqual(made[0], made[1])
            self.assertEqual(len({self.namespace(), *made}), 3)
            with support.arguments(**{name: "/nowhere"}), self.assertLogs("meshcache.sglang", "WARNING"):
                self.assertNotEqual(self.namespace(), self.namespace())

    def test_equal_forms_of_arguments_share(self) -> None:
        with support.arguments(json_model_override_args='{"a": 1, "b": 2}', revision="v1"):
            one = self.namespace()
        with support.arguments(json_model_override_args='{"b":2,"a":1}', revision="v1"):
            self.assertEqual(one, self.namespace())

    def test_each_fact_that_cannot_be_read_shares_with_nobody(self) -> None:
        def unreadable(name: str) -> Any:
            pool = support.MHATokenToKVPoolHost(4, 64)
            delattr(pool, name)
            return pool

        for name in ("layout", "page_size", "layer_num", "start_layer", "head_num", "head_dim", "dtype"):
            with self.subTest(name), self.assertLogs("meshcache.sglang", "WARNING") as log:
                one, other = (self.namespace(unreadable(name)) for _ in range(2))
                self.assertNotEqual(one, other)
                self.assertIn("shares pages with no other engine", log.output[0])
        server_args = support.server_args
        before = server_args.get_global_server_args()
        server_args.set_global_server_args_for_scheduler(None)
        self.addCleanup(server_args.set_global_server_args_for_scheduler, before)
        with self.assertLogs("meshcache.sglang", "WARNING") as log:
            self.assertNotEqual(self.namespace(), self.namespace())
        self.assertIn("its config is unknown (--model-path", "".join(log.output))

    def test_bytes_whose_kind_cannot_be_read(self) -> None:
        def pool() -> Any:
            made = support.MHATokenToKVPoolHost(4, 64, dtype="torch.uint8")
            del made.device_pool
            return made

        with self.assertLogs("meshcache.sglang", "WARNING") as log:
            self.assertNotEqual(self.namespace(pool()), self.namespace(pool()))
        self.assertIn('"facts": {"dtype": "..."}', log.output[0])
        stated = {"facts": {"dtype": "float8_e4m3fn", "compute": "bfloat16"}}
        self.assertEqual(self.namespace(pool(), stated), self.namespace(pool(), stated))
        kinds = set()
        for kind in ("fp8_e4m3", "fp8_e5m2"):
            with support.arguments(kv_cache_dtype=kind, dtype="bfloat16"):
                kinds.add(self.namespace(pool()))
                self.assertEqual(self.namespace(pool()), self.namespace(pool()))
        self.assertEqual(len(kinds), 2)

    def test_pools_that_are_not_known_share_with_nobody(self) -> None:
        class NewHostPool(support.MHATokenToKVPoolHost):
            pass

        one, other = (self.namespace(NewHostPool(4, 64)) for _ in range(2))
        self.assertNotEqual(one, other)

    def test_a_group_is_its_real_pool(self) -> None:
        class HostPoolGroup:
            layout, page_size = "page_first", 4

            def __init__(self, pool: Any) -> None:
                self.anchor_entry = mock.Mock(host_pool=pool)

        group = HostPoolGroup(support.MHATokenToKVPoolHost(4, 64))
        self.assertEqual(self.namespace(group), self.namespace())
        pool = support.MHATokenToKVPoolHost(4, 64, heads=3, layout="page_head")
        with self.assertRaisesRegex(ValueError, "cannot be split"):
            self.namespace(HostPoolGroup(pool), tp_lcm_size=2)

    def test_mla_models_of_all_sizes_share(self) -> None:
        made = [
            self.namespace(support.MLATokenToKVPoolHost(4, (64,)), is_mla_model=True, tp_size=size, tp_rank=size - 1)
            for size in (1, 2, 8)
        ]
        self.assertEqual(len(set(made)), 1)

    def test_heads_that_are_split_have_one_namespace_for_all_ranks(self) -> None:
        wide, narrow = (support.MHATokenToKVPoolHost(4, 32 * n, heads=n, layout="page_head") for n in (4, 2))
        self.assertEqual(
            self.namespace(wide, tp_size=2, tp_lcm_size=4), self.namespace(narrow, tp_size=4, tp_rank=3, tp_lcm_size=4)
        )

    def test_pools_that_cannot_be_asked_for_sizes(self) -> None:
        for answer in [None, ([], []), 5, ([1], ["many"])]:
            pool = support.MHATokenToKVPoolHost(4, 64)
            with mock.patch.object(pool, "get_page_buffer_meta", return_value=answer):
                self.assertNotEqual(self.namespace(pool), self.namespace(pool))

    def test_ranks_without_memory_have_the_namespace_of_the_rank_that_has_it(self) -> None:
        pools = [support.MLATokenToKVPoolHost(4, (64,)) for _ in range(2)]
        for rank, pool in enumerate(pools):
            vars(pool)["_is_dummy"] = rank > 0
        pools[1].buffers = []
        first, second = (self.namespace(p, tp_rank=r, tp_size=2, is_mla_model=True) for r, p in enumerate(pools))
        self.assertEqual(first.layout, second.layout)

    def test_ranks_of_an_mla_model_share_the_main_pool(self) -> None:
        pools = [support.MLATokenToKVPoolHost(4, (64,)) for _ in range(2)]
        first, second = (self.namespace(p, tp_rank=r, tp_size=2, is_mla_model=True) for r, p in enumerate(pools))
        self.assertTrue(first.is_mla and second.is_mla)
        self.assertEqual(first.layout, second.layout)

    def test_ranks_of_an_mla_model_have_states_of_their_own(self) -> None:
        """The client gives such ranks one namespace: only the pool's name can keep their states apart."""
        used = []
        for rank in range(2):
            storage = MeshCacheStorage(support.storage_config(tp_rank=rank, tp_size=2, is_mla_model=True), {})
            storage.register_mem_pool_host(support.MLATokenToKVPoolHost(4, (64,)))
            pools = {
                PoolName.MAMBA: support.MambaPoolHost(4, (16,)),
                PoolName.DRAFT: support.MHATokenToKVPoolHost(4, 8),
            }
            pools[PoolName.SWA] = support.MHATokenToKVPoolHost(4, 8)
            pools[PoolName.INDEXER] = support.HiddenPoolHost(4, (16,))
            for name, pool in pools.items():
                storage.register_mem_host_pool_v2(pool, name)
                storage.batch_set_v2([PoolTransfer(name, pool.indices([0]), keys=["a"])])
            used.append({key[1] for key in FakeClient.pages})
            FakeClient.pages = {}
        shared = {name.partition(".")[0] for name in used[0] & used[1]}
        self.assertEqual(shared, {"indexer"})

    def test_ranks_whose_heads_are_split_have_side_pools_of_their_own(self) -> None:
        for rank in range(2):
            changes: dict[str, Any] = {"tp_rank": rank, "tp_size": 2, "tp_lcm_size": 4, "should_split_heads": True}
            storage = MeshCacheStorage(support.storage_config(**changes), {})
            storage.register_mem_pool_host(support.MHATokenToKVPoolHost(4, 64, layout="page_head"))
            pool = support.MambaPoolHost(4, (16,))
            storage.register_mem_host_pool_v2(pool, PoolName.MAMBA)
            storage.batch_set_v2([PoolTransfer(PoolName.MAMBA, pool.indices([0]), keys=["a"])])
        self.assertEqual(len(FakeClient.pages), 2)

    def test_drafts_with_a_kind_of_numbers_of_their_own(self) -> None:
        names = set()
        cases: list[tuple[dict[str, Any], str]] = [
            ({"kv_cache_dtype": "fp8_e4m3"}, "draft"),
            ({"kv_cache_dtype": "fp8_e4m3", "speculative_draft_kv_cache_dtype": "fp8_e5m2"}, "draft"),
            ({"kv_cache_dtype": "fp8_e5m2", "speculative_draft_kv_cache_dtype": "fp8_e4m3"}, "draft"),
        ]
        for given, name in cases:
            with support.arguments(dtype="bfloat16", **given):
                storage = MeshCacheStorage(support.storage_config(), {})
                storage.register_mem_pool_host(support.MHATokenToKVPoolHost(4, 64))
                pool = support.MHATokenToKVPoolHost(4, 8, dtype="torch.uint8")
                storage.register_mem_host_pool_v2(pool, name)
                names.add(storage._pools[name].key_pool)
        self.assertEqual(len(names), 2)

    def test_side_pools_of_other_geometry_are_apart(self) -> None:
        names = set()
        for dtype in ("torch.float16", "torch.bfloat16"):
            storage = MeshCacheStorage(support.storage_config(), {})
            storage.register_mem_pool_host(support.MHATokenToKVPoolHost(4, 64))
            pool = support.MambaPoolHost(4, (16,), dtype=dtype)
            storage.register_mem_host_pool_v2(pool, PoolName.MAMBA)
            storage.batch_set_v2([PoolTransfer(PoolName.MAMBA, pool.indices([0]), keys=["a"])])
            names |= {key[1] for key in FakeClient.pages}
        self.assertEqual(len(names), 2)


if __name__ == "__main__":
    unittest.main()
