"""Which engines share pages, and which never do."""

from __future__ import annotations

import unittest
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
            {"is_mla_model": True},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.float16")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.uint8", meant="torch.float8_e4m3fn")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, dtype="torch.uint8", meant="torch.float8_e5m2")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_first_direct")},
            {"pool": support.MHATokenToKVPoolHost(4, 64, page_size=8)},
            {"pool": support.MHATokenToKVPoolHost(4, 64, heads=8)},
            {"pool": support.MHATokenToKVPoolHost(4, 128)},
            {"pool": support.MLATokenToKVPoolHost(4, (128,))},
            {"pool": support.MHATokenToKVPoolHost(4, 64, layout="page_head")},
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

    def test_pools_that_tell_only_where_pages_are_differ_by_sizes(self) -> None:
        def bare(pool: Any) -> Any:
            for name in ("size_per_token", "layer_num", "start_layer", "end_layer", "head_num", "head_dim"):
                vars(pool).pop(name, None)
            return pool

        def mha(half: int, pages: int = 4, **options: Any) -> Any:
            return bare(support.MHATokenToKVPoolHost(pages, half, **options))

        self.assertNotEqual(self.namespace(mha(64)), self.namespace(mha(32)))
        self.assertEqual(self.namespace(mha(64)), self.namespace(mha(64, pages=9)))
        one, other = (bare(support.AsymmetricMHATokenToKVPoolHost(4, sizes)) for sizes in [(64, 32), (32, 64)])
        self.assertNotEqual(self.namespace(one), self.namespace(other), "the same sum")
        one, other = (self.namespace(mha(half, layout="page_head"), tp_lcm_size=2) for half in (64, 32))
        self.assertNotEqual(one, other, "heads that are split")

    def test_heads_that_are_split_have_one_namespace_for_all_ranks(self) -> None:
        wide, narrow = (support.MHATokenToKVPoolHost(4, 32 * n, heads=n, layout="page_head") for n in (4, 2))
        self.assertEqual(
            self.namespace(wide, tp_size=2, tp_lcm_size=4), self.namespace(narrow, tp_size=4, tp_rank=3, tp_lcm_size=4)
        )

    def test_pools_that_cannot_be_asked_for_sizes(self) -> None:
        pool = support.MLATokenToKVPoolHost(4, (64,))
        for answer in [None, ([], []), 5, ([1], ["many"])]:
            with mock.patch.object(pool, "get_page_buffer_meta", return_value=answer):
                self.assertNotEqual(self.namespace(pool), self.namespace(support.MLATokenToKVPoolHost(4, (64,))))
        with mock.patch.object(pool, "get_page_buffer_meta", side_effect=RuntimeError("no memory yet")):
            self.namespace(pool)

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
