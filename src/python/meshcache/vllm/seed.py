"""Checks whether other engines have the same keys for the same tokens."""

from __future__ import annotations

import os
from typing import Any, Final

from meshcache._engines.modules import imported

from .framework import logger

#: Hashes for which vLLM keeps its seed secret, because collisions could be constructed.
_WEAK_HASHES: Final = ("xxhash", "xxhash_cbor")


def warn_of_random_seed(config: Any) -> bool:
    """Warns if vLLM draws a seed for this process's keys alone; returns whether. ``config``: ``VllmConfig`` or None."""
    if os.environ.get("PYTHONHASHSEED") is not None:
        return False
    hashes = imported("vllm.v1.core.kv_cache_utils")
    if hashes is None:
        return False
    if hasattr(hashes, "resolve_none_hash_seed"):
        # Newer versions use one seed for all engines, except with weak hashes.
        algorithm = getattr(getattr(config, "cache_config", None), "prefix_caching_hash_algo", None)
        if algorithm is not None and algorithm not in _WEAK_HASHES:
            return False
    logger.warning(
        "PYTHONHASHSEED is not set: vLLM draws the seed of this engine's keys at random, so that no other engine, and not even this one after a "
        "restart, finds its chunks; set PYTHONHASHSEED to one value, such as 0, on all engines that share chunks"
    )
    return True
