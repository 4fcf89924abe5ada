"""A double of the framework's module: makes tiers from their configuration."""

from __future__ import annotations

import importlib
from typing import Any

from vllm.v1.kv_offload.tiering.base import SecondaryTierManager


class SecondaryTierFactory:
    @classmethod
    def create_secondary_tier(
        cls, tier_config: dict[str, Any], primary_kv_view: memoryview, offloading_spec: Any
    ) -> SecondaryTierManager:
        tier_cls = cls.get_tier_class(tier_config)
        config = tier_config.copy()
        tier_type = config.pop("type")
        config.pop("module_path", None)
        return tier_cls(offloading_spec=offloading_spec, primary_kv_view=primary_kv_view, tier_type=tier_type, **config)

    @classmethod
    def get_tier_class(cls, tier_config: dict[str, Any]) -> type[SecondaryTierManager]:
        module = importlib.import_module(tier_config["module_path"])
        tier_cls: type[SecondaryTierManager] = getattr(module, tier_config["type"])
        assert issubclass(tier_cls, SecondaryTierManager)
        return tier_cls
