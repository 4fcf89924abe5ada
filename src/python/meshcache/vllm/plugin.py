"""The entry point of the group ``vllm.general_plugins``: vLLM calls ``register`` in each of its processes."""

from __future__ import annotations

from typing import Any, Final

from meshcache._engines.modules import imported

from .framework import logger
from .hooks import install_config_hook

#: Values of ``type`` in ``secondary_tiers``. The second one is the class name, for configurations with its module.
TIER_TYPES: Final = ("meshcache", "MeshCacheTier")


def register() -> None:
    """Registers the tier by name, even in vLLM without ``module_path``. Does nothing in versions without tiers."""
    try:
        factory = getattr(imported("vllm.v1.kv_offload.tiering.factory"), "SecondaryTierFactory", None)
        if factory is not None:
            _register(factory)
            install_config_hook()
    except Exception as error:
        # vLLM must start even if the tier cannot be registered, as it may not be used.
        logger.warning("the meshcache tier could not be registered with vLLM: %s", error)


def _register(factory: Any) -> None:
    for name in TIER_TYPES:
        try:
            factory.register_tier(name, "meshcache.vllm", "MeshCacheTier")
        except ValueError:
            # The name is already registered, because plugins may be loaded more than once.
            continue
