"""Prefixes that several pools can restore together, compared with a plain model."""

from __future__ import annotations

import os
import random
import unittest
from typing import Any
from unittest import mock

import sglang_support as support
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer, PoolTransferResult
from sglang_fake_client import FakeClient

from meshcache.sglang import MeshCacheStorage


def restorable(kv: list[bool], sides: list[tuple[list[bool], int]]) -> list[int]:
    """The definition, word by word. A window of 0 pages: all pages of the prefix."""

    def holds(flags: list[bool], window: int, length: int) -> bool:
        return all(flags[max(0, length - window) if window else 0 : length])

    lengths = range(1, len(kv) + 1)
    return [n for n in lengths if all(kv[:n]) and all(holds(flags, window, n) for flags, window in sides)]


class HitsTest(unittest.TestCase):
    def setUp(self) -> None:
        FakeClient.reset()
        patch = mock.patch("meshcache.sglang.storage.Client", FakeClient)
        patch.start()
        self.addCleanup(patch.stop)

    def test_like_the_model(self) -> None:
        seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        chance = random.Random(seed)
        for _ in range(300):
            FakeClient.reset()
            storage = MeshCacheStorage(support.storage_config(), {})
            pools = {
                PoolName.KV: support.MHATokenToKVPoolHost(8, 16),
                PoolName.SWA: support.MHATokenToKVPoolHost(8, 8),
                PoolName.INDEXER: support.HiddenPoolHost(8, (8,)),
            }
            storage.register_mem_pool_host(pools[PoolName.KV])
            keys = support.page_keys("k", chance.randrange(9))
            flags: dict[PoolName, list[bool]] = {}
            for name, pool in pools.items():
                storage.register_mem_host_pool_v2(pool, name)
                flags[name] = [chance.random() < 0.8 for _ in keys]
                there = [page for page, flag in enumerate(flags[name]) if flag]
                chosen = [keys[page] for page in there]
                storage.batch_set_v2([PoolTransfer(name, pool.indices(there), keys=chosen)])
            transfers, sides = [], []
            for name in chance.sample([PoolName.SWA, PoolName.INDEXER], chance.randrange(3)):
                policy = chance.choice(list(PoolHitPolicy))
                placeholders: Any = chance.choice([None, [], ["x"], [None] * 2, ["x"] * 3])
                transfers.append(PoolTransfer(name, keys=placeholders, hit_policy=policy))
                window = max(1, len(placeholders or [])) if policy == PoolHitPolicy.TRAILING_PAGES else 0
                if policy != PoolHitPolicy.BLOCK_GROUPS:
                    sides.append((flags[name], window))
            expected = restorable(flags[PoolName.KV], sides)
            result = storage.batch_exists_v2(keys, transfers)
            story = f"SEED={seed} {flags} {transfers}"
            self.assertIs(type(result), PoolTransferResult)
            self.assertEqual(result.restorable_prefix_pages, expected, story)
            self.assertEqual(result.kv_hit_pages, expected[-1] if expected else 0, story)
            self.assertEqual(FakeClient.made[-1].lookups, [(len(keys), result.kv_hit_pages)], story)

    def test_groups_of_blocks_never_make_a_prefix_shorter(self) -> None:
        storage = MeshCacheStorage(support.storage_config(), {})
        kv, second = support.MHATokenToKVPoolHost(8, 16), support.HiddenPoolHost(8, (8,))
        storage.register_mem_pool_host(kv)
        storage.register_mem_host_pool_v2(second, PoolName.INDEXER)
        keys, groups = support.page_keys("k", 8), support.page_keys("g", 4)
        storage.batch_set_v1(keys, kv.indices(range(8)))
        storage.batch_set_v2([PoolTransfer(PoolName.INDEXER, second.indices(range(3)), keys=groups[:3])])
        transfer = PoolTransfer(
            PoolName.INDEXER, keys=groups, hit_policy=PoolHitPolicy.BLOCK_GROUPS, group_pages=2, block_pages=4
        )
        result = storage.batch_exists_v2(keys, [transfer])
        self.assertEqual(result.kv_hit_pages, 8)
        self.assertEqual(result.extra_pool_hit_pages[PoolName.INDEXER], 4, "the pages of one complete group")

    def test_a_framework_without_restorable_prefixes(self) -> None:
        class Older:
            def __init__(self, kv_hit_pages: int, extra_pool_hit_pages: dict[str, int]) -> None:
                self.given = (kv_hit_pages, extra_pool_hit_pages)

        with mock.patch("meshcache.sglang.framework._PoolTransferResult", Older):
            storage = MeshCacheStorage(support.storage_config(), {})
            self.assertEqual(storage.batch_exists_v2(["a"]).given, (0, {}))


if __name__ == "__main__":
    unittest.main()
