"""Makes the adapter that `--l2-adapter '{"type": "native_plugin", ...}'` asks for."""

from __future__ import annotations

import importlib
from typing import Any

from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import NativeConnectorL2Adapter

_REQUIRED_METHODS = (
    "event_fd",
    "submit_batch_get",
    "submit_batch_set",
    "submit_batch_exists",
    "drain_completions",
    "close",
)


def create_l2_adapter(config: dict[str, Any]) -> NativeConnectorL2Adapter:
    """Loads the class, makes the connector from `adapter_params`, and looks whether it has all methods."""
    if config.get("type") != "native_plugin":
        raise ValueError(f"unknown L2 adapter type {config.get('type')!r}")
    max_capacity_gb = config.get("max_capacity_gb", 0)
    if not isinstance(max_capacity_gb, (int, float)) or max_capacity_gb < 0:
        raise ValueError("max_capacity_gb must be a non-negative number")
    connector_class = getattr(importlib.import_module(config["module_path"]), config["class_name"])
    client = connector_class(**config.get("adapter_params", {}))
    for method in _REQUIRED_METHODS:
        if not callable(getattr(client, method, None)):
            client.close()
            raise TypeError(f"{config['class_name']} has no method {method}")
    return NativeConnectorL2Adapter(client, max_capacity_gb=max_capacity_gb, type_name="native_plugin")
