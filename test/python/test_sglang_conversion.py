"""How the SGLang backend turns indices, transfers and tensors into requests, with a client in the same process."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import sglang_support as support
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolName, PoolTransfer
from sglang.srt.observability.metrics_collector import StorageMetrics
from sglang_fake_client import FakeClient

from meshcache._engines.silence import Silence
from meshcache.sglang import MeshCacheStorage


class ConversionTest(unittest.TestCase):
    def setUp(self) -> None:
        FakeClient.reset()
        patch = mock.patch("meshcache.sglang.storage.Client", FakeClient)
        patch.start()
        self.addCleanup(patch.stop)

    def storage(self, pool: Any = None, extra: Any = None, **changes: Any) -> MeshCacheStorage:
        storage = MeshCacheStorage(support.storage_config(extra, **changes), {})
        if pool is not None:
            storage.register_mem_pool_host(pool)
        return storage

    def fill(self, pool: Any, keys: list[str], salt: str = "") -> None:
        for page, key in enumerate(keys):
            pool.write(page, support.content(key, pool.page_bytes, salt))

    def check(self, pool: Any, pages: list[int], keys: list[str], salt: str = "") -> None:
        for page, key in zip(pages, keys):
            self.assertEqual(pool.read(page), support.content(key, pool.page_bytes, salt))

    def test_large_batches_go_in_slices(self) -> None:
        pool = support.MHATokenToKVPoolHost(40, 64)
        storage, keys = self.storage(pool), support.page_keys("k", 40)
        self.fill(pool, keys)
        for limit in ({"_SLICE_PAGES": 16}, {"_SLICE_BYTES": 16 * 128}):
            with mock.patch.multiple("meshcache.sglang.storage", **limit):
                FakeClient.made[-1].calls.clear()
                self.assertEqual(storage.batch_set_v1(keys, pool.indices(range(40))), [True] * 40)
                self.assertEqual(storage.batch_get_v1(keys, pool.indices(range(40))), [True] * 40)
                self.assertEqual([count for _, count, _ in FakeClient.made[-1].calls], [16, 16, 8, 16, 16, 8])
        self.check(pool, list(range(40)), keys)

    def test_is_what_the_factory_demands(self) -> None:
        self.assertTrue(issubclass(MeshCacheStorage, HiCacheStorage))

    def test_pages_of_every_pool_come_back(self) -> None:
        pools = [
            support.MHATokenToKVPoolHost(8, 96),
            support.MHATokenToKVPoolHost(8, 96, layout="page_first_direct", shared=False),
            support.MHATokenToKVPoolHost(8, 96, layout="page_head"),
            support.MLATokenToKVPoolHost(8, (100,)),
            support.MLATokenToKVPoolHost(8, (100, 12, 4), layout="page_first_kv_split"),
            support.AsymmetricMHATokenToKVPoolHost(8, (96, 64)),
        ]
        for pool in pools:
            with self.subTest(pool=type(pool).__name__, layout=pool.layout):
                FakeClient.reset()
                storage, keys = self.storage(pool), support.page_keys("k", 4)
                self.fill(pool, keys)
                self.assertEqual(storage.batch_set_v1(keys, pool.indices([0, 1, 2, 3])), [True] * 4)
                self.assertEqual(storage.batch_exists(keys + ["missing"]), 4)
                self.assertEqual(storage.batch_get_v1(keys, pool.indices([7, 5, 6, 4])), [True] * 4)
                self.check(pool, [7, 5, 6, 4], keys)
                self.assertEqual(storage.batch_get_v1(["missing", keys[0]], pool.indices([2, 3])), [False, True])

    def test_one_buffer_is_one_region(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        self.storage(pool).register_mem_host_pool_v2(pool, PoolName.KV)
        self.assertEqual([region.length for region in FakeClient.made[0].regions], [2 * 8 * 96])

    def test_wrong_numbers_of_indices_are_misses(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        storage = self.storage(pool)
        for indices in [
            pool.indices([0]),
            pool.indices([0, 1, 2]),
            support.Indices([]),
            None,
            "ab",
            pool.indices([0, 9]),
        ]:
            self.assertEqual(storage.batch_get_v1(["a", "b"], indices), [False, False])
            self.assertEqual(storage.batch_set_v1(["a", "b"], indices), [False, False])
        self.assertEqual(storage.batch_get_v1([], support.Indices([])), [])
        self.assertEqual(FakeClient.pages, {})

    def test_nothing_raises_and_lists_are_complete(self) -> None:
        pool, location = support.MHATokenToKVPoolHost(8, 96), support.Tensor(192)
        for failure, short_by in [(RuntimeError("broken"), 0), (None, 1)]:
            storage = self.storage(pool)
            FakeClient.failure, FakeClient.short_by = failure, short_by
            transfer = PoolTransfer(PoolName.KV, pool.indices([0, 1]), keys=["a", "b"])
            self.assertEqual(storage.batch_get_v1(["a", "b"], pool.indices([0, 1])), [False, False])
            self.assertEqual(storage.batch_set_v1(["a", "b"], pool.indices([0, 1])), [False, False])
            self.assertEqual(storage.batch_get_v2([transfer]), {"kv": [False, False]})
            self.assertEqual(storage.batch_set_v2([transfer]), {"kv": [False, False]})
            self.assertEqual(storage.batch_exists_v2(["a", "b"], [transfer]).kv_hit_pages, 0)
            self.assertEqual(storage.batch_exists(["a", "b"]), 0 if failure else 2)
            self.assertIs(storage.exists("missing"), False)
            self.assertEqual(storage.batch_get(["a"], [location]), [None])
            self.assertIsNone(storage.get("a", location))
            self.assertFalse(storage.set("a", location))
            self.assertFalse(storage.batch_set(["a"], [location]))
            self.assertIs(storage.clear(), failure is None)
            storage.close()

    def test_before_registration_and_after_close(self) -> None:
        pool = support.MLATokenToKVPoolHost(8, (100,))
        storage = self.storage()
        for _ in range(2):
            self.assertEqual(storage.batch_get_v1(["a"], pool.indices([0])), [False])
            self.assertEqual(storage.batch_set_v1(["a"], pool.indices([0])), [False])
            self.assertEqual(storage.batch_get_v2([PoolTransfer(PoolName.SWA, keys=["a"])]), {"swa": [False]})
            self.assertEqual(storage.batch_exists(["a"]), 0)
            result = storage.batch_exists_v2(["a"], [PoolTransfer(PoolName.SWA)])
            self.assertEqual((result.kv_hit_pages, result.extra_pool_hit_pages), (0, {}))
            self.assertEqual(storage.batch_get(["a"], [support.Tensor(100)]), [None])
            self.assertFalse(storage.set("a", support.Tensor(100)))
            self.assertIs(storage.clear(), False)
            storage.register_mem_pool_host(pool)
            storage.close()
            storage.close()
        self.assertTrue(all(client.closed for client in FakeClient.made))

    def test_a_destroyed_pool_gives_misses(self) -> None:
        pool = support.MLATokenToKVPoolHost(8, (100,))
        storage = self.storage(pool)
        pool.buffers = []
        self.assertEqual(storage.batch_get_v1(["a"], support.Indices(range(4))), [False])

    def test_every_request_has_a_deadline(self) -> None:
        pool, mamba = support.MHATokenToKVPoolHost(8, 96), support.MambaPoolHost(4, (16,))
        storage = self.storage(pool, {"timeout": 3})
        storage.register_mem_host_pool_v2(mamba, PoolName.MAMBA)
        transfers = [
            PoolTransfer(PoolName.KV, pool.indices([0]), keys=["a"]),
            PoolTransfer(PoolName.MAMBA, mamba.indices([0]), keys=["a"]),
        ]
        storage.batch_set_v2(transfers)
        storage.batch_exists_v2(["a"], transfers)
        storage.batch_exists(["a"])
        storage.batch_get(["a"], [support.Tensor(192)])
        storage.set("b", support.Tensor(192))
        for name, _, timeout in FakeClient.made[0].calls:
            self.assertTrue(timeout is not None and 0 < timeout <= 3, name)

    def test_hybrid_pools(self) -> None:
        pool, mamba, index = (
            support.MHATokenToKVPoolHost(8, 96),
            support.MambaPoolHost(4, (32, 0, 16)),
            support.HiddenPoolHost(8, (24,)),
        )
        storage = self.storage(pool)
        storage.register_mem_host_pool_v2(mamba, PoolName.MAMBA)
        storage.register_mem_host_pool_v2(index, "indexer")
        keys = support.page_keys("h", 3)
        for number, each in enumerate((pool, index, mamba)):
            self.fill(each, keys, str(number))
        written = storage.batch_set_v2(
            [
                PoolTransfer(PoolName.KV, pool.indices([0, 1, 2]), keys=keys),
                PoolTransfer(PoolName.INDEXER, index.indices([0, 1, 2]), keys=keys),
                PoolTransfer(PoolName.MAMBA, mamba.indices([2]), keys=keys[2:]),
            ]
        )
        self.assertEqual(written, {"kv": [True] * 3, "indexer": [True] * 3, "mamba": [True]})
        read = storage.batch_get_v2(
            [
                PoolTransfer(PoolName.INDEXER, index.indices([5, 6, 7]), keys=[keys[0], "missing", keys[2]]),
                PoolTransfer(PoolName.MAMBA, mamba.indices([0]), keys=keys[2:]),
                PoolTransfer(PoolName.DRAFT, pool.indices([0]), keys=keys[:1]),
            ]
        )
        self.assertEqual(read, {"indexer": [True, False, True], "mamba": [True], "draft": [False]})
        self.check(index, [5, 7], [keys[0], keys[2]], "1")
        self.check(mamba, [0], keys[2:], "2")

    def test_transfers_without_keys_and_with_placeholders(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        storage, keys = self.storage(pool), support.page_keys("p", 2)
        self.fill(pool, keys)
        holes: list[Any] = [keys[0], None, keys[1], ""]
        transfer = PoolTransfer(PoolName.KV, pool.indices([0, 3, 1, 4]), keys=holes)
        self.assertEqual(storage.batch_set_v2([transfer]), {"kv": [True, False, True, False]})
        self.assertEqual(storage.batch_get_v2([transfer]), {"kv": [True, False, True, False]})
        self.assertEqual(storage.batch_exists(holes), 1)
        without = [PoolTransfer(PoolName.KV, pool.indices([0, 1])), PoolTransfer(PoolName.SWA)]
        self.assertEqual(storage.batch_get_v2(without), {"kv": [False, False], "swa": [False]})
        self.assertEqual(storage.batch_get_v2([PoolTransfer(PoolName.KV, keys=[])]), {"kv": []})
        self.assertEqual(storage.batch_get_v2(None), {})

    def test_pools_registered_early_and_late(self) -> None:
        pool, mamba = support.MHATokenToKVPoolHost(8, 96), support.MambaPoolHost(4, (16,))
        storage = self.storage()
        storage.register_mem_host_pool_v2(mamba, PoolName.MAMBA)
        storage.register_mem_pool_host(pool)
        transfer = PoolTransfer(PoolName.MAMBA, mamba.indices([0]), keys=["a"])
        self.assertEqual(storage.batch_set_v2([transfer]), {"mamba": [True]})
        storage.register_mem_pool_host(support.MHATokenToKVPoolHost(8, 96))
        self.assertEqual(storage.batch_get_v2([transfer]), {"mamba": [True]})
        self.assertEqual([client.closed for client in FakeClient.made], [True, False])

    def test_a_logical_anchor_leaves_pages_to_the_side_pools(self) -> None:
        anchor, side = support.LogicalHostPool(), support.HiddenPoolHost(8, (24,))
        storage, keys = self.storage(anchor), support.page_keys("l", 3)
        storage.register_mem_host_pool_v2(side, PoolName.DEEPSEEK_V4_C4)
        self.assertEqual(storage.batch_set_v1(keys, anchor.indices([0, 1, 2])), [True] * 3)
        self.assertEqual(storage.batch_get_v1(keys, anchor.indices([0, 1, 2])), [True] * 3)
        self.assertEqual(storage.batch_exists(keys), 0)
        transfer = PoolTransfer(PoolName.DEEPSEEK_V4_C4, side.indices([0, 1]), keys=keys[:2])
        storage.batch_set_v2([transfer])
        result = storage.batch_exists_v2(keys, [transfer])
        self.assertEqual((result.kv_hit_pages, result.restorable_prefix_pages), (2, [1, 2]))
        self.assertEqual(storage.batch_exists_v2(keys, []).kv_hit_pages, 0)
        self.assertEqual(FakeClient.made[-1].lookups, [(3, 0), (3, 2), (3, 0)])

    def test_lookups_that_no_node_was_asked_for_have_found_nothing(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        storage, keys = self.storage(pool), support.page_keys("n", 3)
        storage.batch_set_v1(keys, pool.indices([0, 1, 2]))
        with mock.patch.object(Silence, "is_on", True):
            self.assertEqual(storage.batch_exists(keys), 0)
            self.assertEqual(storage.batch_exists_v2(keys[:2], []).kv_hit_pages, 0)
        self.assertEqual(storage.batch_exists(keys + [None]), 3)
        self.assertEqual(FakeClient.made[-1].lookups, [(3, 0), (2, 0), (3, 3)])

    def test_heads_are_shared_between_tensor_parallel_sizes(self) -> None:
        """Two ranks with four heads each, and four ranks with two, keep the same parts."""
        wide = [support.MHATokenToKVPoolHost(4, 128, layout="page_head") for _ in range(2)]
        keys, narrow = support.page_keys("t", 2), []
        for rank, pool in enumerate(wide):
            self.fill(pool, keys, str(rank))
            storage = self.storage(pool, tp_rank=rank, tp_size=2, tp_lcm_size=4, should_split_heads=True)
            self.assertEqual(storage.batch_set_v1(keys, pool.indices([0, 1])), [True, True])
            self.assertEqual(storage.batch_exists(keys), 2)
            self.assertEqual(storage.batch_get_v1(keys, pool.indices([2, 3])), [True, True])
            self.check(pool, [2, 3], keys, str(rank))
        for rank in range(4):
            pool = support.MHATokenToKVPoolHost(4, 64, heads=2, layout="page_head")
            storage = self.storage(pool, tp_rank=rank, tp_size=4, tp_lcm_size=4)
            self.assertEqual(storage.batch_exists(keys), 2)
            self.assertEqual(storage.batch_get_v1(keys, pool.indices([0, 1])), [True, True])
            narrow.append(pool)
        for rank, pool in enumerate(narrow):
            both = wide[rank // 2].read(1)
            half = rank % 2 * 64
            self.assertEqual(pool.read(1), both[half : half + 64] + both[128 + half : 128 + half + 64])

    def test_a_page_without_one_part_of_its_heads_is_a_miss(self) -> None:
        pool, keys = support.MHATokenToKVPoolHost(4, 128, layout="page_head"), support.page_keys("t", 2)
        storage = self.storage(pool, tp_lcm_size=2, should_split_heads=True)
        self.assertEqual(storage.batch_set_v1(keys, pool.indices([0, 1])), [True, True])
        self.assertEqual(len(FakeClient.pages), 4)
        del FakeClient.pages[next(key for key in FakeClient.pages if key[2].startswith(keys[1]))]
        self.assertEqual(storage.batch_exists(keys), 1)
        self.assertEqual(storage.batch_get_v1(keys, pool.indices([2, 3])), [True, False])

    def test_tensor_forms(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        storage, keys = self.storage(pool, {"interface_v1": 0}), support.page_keys("f", 3)
        source = [support.Tensor(192, shared=False) for _ in keys]
        for key, tensor in zip(keys, source):
            tensor.memory[:] = support.content(key, 192)
        self.assertIs(storage.batch_set(keys[:2], source[:2]), True)
        self.assertIs(storage.set(keys[2], source[2]), True)
        self.assertIs(storage.exists(keys[2]), True)
        targets = [support.Tensor(192, shared=False) for _ in range(4)]
        found: Any = storage.batch_get(keys + ["missing"], targets)
        self.assertEqual([one is None for one in found], [False, False, False, True])
        self.assertIs(found[1], targets[1])
        self.assertEqual([bytes(one.memory) for one in targets[:3]], [support.content(key, 192) for key in keys])
        self.assertIsNone(storage.get(keys[0], support.Tensor(191)))
        self.assertEqual(storage.batch_get(keys, targets), [None] * 3)
        # They move from and to where the tensors are, and not as objects.
        self.assertEqual({name for name, _, _ in FakeClient.made[-1].calls}, {"set_from", "get_into", "exists_prefix"})
        # What tensors hold is the same page that pointers name.
        self.assertEqual(storage.batch_get_v1(keys[:1], pool.indices([3])), [True])
        self.check(pool, [3], keys[:1])

    def test_addresses(self) -> None:
        pool = support.MLATokenToKVPoolHost(8, (100,))
        storage, keys = self.storage(pool), support.page_keys("a", 2)
        self.fill(pool, keys)
        addresses, sizes = pool.get_page_buffer_meta(pool.indices([0, 1]))
        self.assertIs(storage.batch_set(keys, None, addresses, sizes), True)
        into, _ = pool.get_page_buffer_meta(pool.indices([4, 5]))
        self.assertEqual(storage.batch_get(keys, into, sizes), 2)
        self.check(pool, [4, 5], keys)
        self.assertIs(storage.get(keys[0], into[1], 100), True)
        self.check(pool, [5], keys)
        self.assertIs(storage.get("missing", into[1], 100), False)
        self.assertIs(storage.set("b", None, into[1], None), False)

    def test_addresses_outside_all_pools_are_misses(self) -> None:
        """Only memory that stays mapped is named, so that a backend that touches it fails the test without a crash."""
        pool, side = support.MLATokenToKVPoolHost(8, (100,)), support.HiddenPoolHost(8, (100,))
        storage, keys = self.storage(pool), support.page_keys("o", 2)
        storage.register_mem_host_pool_v2(side, "indexer")
        other = support.Tensor(200)
        start, (page, *_), (hidden, *_) = (
            other.data_ptr(),
            *(each.get_page_buffer_meta(each.indices([7]))[0] for each in (pool, side)),
        )
        with self.assertLogs("meshcache.sglang", "WARNING") as logged:
            for address, length in [
                (start, 100),
                (page + 1, 100),
                (page + 100, 10),
                (hidden + 50, 51),
                (page, 1 << 70),
            ]:
                self.assertIs(storage.set("b", None, address, length), False)
                self.assertIs(storage.batch_set(["b"], None, [[address]], [[length]]), False)
            self.assertIs(storage.set(keys[0], None, page, 100), True)
            for address, length in [(start, 100), (page + 1, 100), (hidden + 50, 51)]:
                self.assertIs(storage.get(keys[0], address, length), False)
                self.assertEqual(storage.batch_get([keys[0]], [address], [length]), 0)
        self.assertEqual(len(logged.output), 1, logged.output)
        self.assertIn("bytes at 0x", logged.output[0])
        self.assertEqual(len(FakeClient.pages), 1)
        self.assertEqual(bytes(other.memory), bytes(200))
        # Memory of side pools is as good, and a tensor vouches for itself.
        pool.write(7, support.content(keys[0], 100))
        self.assertIs(storage.set(keys[1], None, page, 100), True)
        self.assertIs(storage.get(keys[1], hidden, 100), True)
        self.check(side, [7], keys)
        self.assertIsNotNone(storage.get(keys[1], support.View(other, 0, 100)))
        self.assertEqual(bytes(other.memory)[:100], support.content(keys[0], 100))

    def test_metrics_are_of_the_exact_type_and_given_once(self) -> None:
        pool = support.MHATokenToKVPoolHost(8, 96)
        self.assertIsNone(self.storage(pool).get_stats())
        storage, keys = self.storage(pool, enable_storage_metrics=True), support.page_keys("m", 2)
        storage.batch_set_v1(keys, pool.indices([0, 1]))
        storage.batch_get_v1([keys[0], "missing"], pool.indices([2, 3]))
        stats = storage.get_stats()
        self.assertIs(type(stats), StorageMetrics)
        self.assertEqual((stats.backup_pgs, stats.prefetch_pgs), ([2], [1]))
        self.assertTrue(stats.backup_bandwidth[0] > 0 and stats.prefetch_bandwidth[0] > 0)
        self.assertEqual(storage.get_stats(), StorageMetrics())


if __name__ == "__main__":
    unittest.main()
