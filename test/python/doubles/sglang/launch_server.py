"""Stands for SGLang's server, which needs a GPU: takes its options, loads the storage backend that they name, stores and reads pages with
the calls of its cache controller, and ends."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
from types import SimpleNamespace

from meshcache._demo import HostPool

PAGE_BYTES = 65_536
PAGES = 8

parser = argparse.ArgumentParser()
parser.add_argument("--model-path", required=True)
parser.add_argument("--page-size", type=int, default=1)
parser.add_argument("--enable-hierarchical-cache", action="store_true", required=True)
parser.add_argument("--hicache-ratio", type=float, default=2.0)
parser.add_argument("--hicache-write-policy", choices=["write_back", "write_through", "write_through_selective"])
parser.add_argument("--hicache-mem-layout", choices=["layer_first", "page_first", "page_first_direct", "page_head"])
parser.add_argument("--hicache-io-backend", choices=["direct", "kernel"])
parser.add_argument("--hicache-storage-prefetch-policy", choices=["best_effort", "wait_complete", "timeout"])
parser.add_argument("--hicache-storage-backend", choices=["dynamic"], required=True)
parser.add_argument("--hicache-storage-backend-extra-config", type=json.loads, required=True)
options = parser.parse_args()

logging.basicConfig(level=logging.INFO, format="%(message)s")
extra = options.hicache_storage_backend_extra_config
assert extra["interface_v1"] == 1 and extra["allocator"] == "shm", extra
assert options.page_size == HostPool.page_size and options.hicache_mem_layout == HostPool.layout, options
backend = getattr(importlib.import_module(extra["module_path"]), extra["class_name"])(
    SimpleNamespace(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name=options.model_path,
        extra_config=extra,
    ),
    {},
)
pool = HostPool(2 * PAGES, PAGE_BYTES)
backend.register_mem_pool_host(pool)
keys = [f"{number:064x}" for number in range(PAGES)]
for slot, key in enumerate(keys):
    pool.fill(slot, key)
assert backend.batch_set_v1(keys, pool.indices(range(PAGES))) == [True] * PAGES
assert backend.batch_exists(keys) == PAGES
assert backend.batch_get_v1(keys, pool.indices(range(PAGES, 2 * PAGES))) == [True] * PAGES
assert sum(pool.wrong_bytes(PAGES + slot, key) for slot, key in enumerate(keys)) == 0
backend.close()
