"""The entry point of the group ``vllm.general_plugins``: vLLM calls ``register`` in each of its processes."""

from __future__ import annotations

from typing import Any, Final

from meshcache._engines.modules import imported

from .framework import logger
from .hooks import install_config_hook

#: What ``type`` may be in ``secondary_tiers``. The second name is that of the class, for configurations that also name its module.
TIER_TYPES: Final = ("meshcache", "MeshCacheTier")


def register() -> None:
    """Makes the tier known to vLLM by name, also to versions without ``module_path``. Does nothing in a version without tiers."""
    try:
        factory = getattr(imported("vllm.v1.kv_offload.tiering.factory"), "SecondaryTierFactory", None)
        if factory is not None:
            _register(factory)
            install_config_hook()
    except Exception as error:
        # vLLM must start also where nobody uses the tier.
        logger.warning("the meshcache tier could not be registered with vLLM: %s", error)


def _register(factory: Any) -> None:
    for name in TIER_TYPES:
        try:
            factory.register_tier(name, "meshcache.vllm", "MeshCacheTier")
        except ValueError:
            # It is registered already: plugins may be loaded more than once.
            continue
