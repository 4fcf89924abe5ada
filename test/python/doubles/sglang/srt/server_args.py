"""A double of the framework's module: the arguments that the backend reads, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional


@dataclass
class ServerArgs:
    model_path: str = "model"
    revision: Optional[str] = None
    load_format: str = "auto"
    model_loader_extra_config: str = "{}"
    json_model_override_args: str = "{}"
    context_length: Optional[int] = None
    dtype: str = "auto"
    quantization: Optional[str] = None
    quantization_param_path: Optional[str] = None
    kv_cache_dtype: str = "auto"
    weight_version: str = "default"
    enable_lora: Optional[bool] = None
    lora_paths: Any = None
    speculative_algorithm: Optional[str] = None
    speculative_draft_model_path: Optional[str] = None
    speculative_draft_model_revision: Optional[str] = None
    speculative_draft_load_format: Optional[str] = None
    speculative_draft_model_quantization: Optional[str] = None
    speculative_draft_kv_cache_dtype: Optional[str] = None
    weight_cache_mode: str = "off"
    delete_ckpt_after_loading: bool = False
    uno_lora_path: Optional[str] = None
    modelopt_checkpoint_restore_path: Optional[str] = None


_arguments: Optional[ServerArgs] = ServerArgs()


def set_global_server_args_for_scheduler(arguments: Optional[ServerArgs]) -> None:
    global _arguments
    _arguments = arguments


def get_global_server_args() -> ServerArgs:
    if _arguments is None:
        raise ValueError("Global server args is not set yet!")
    return _arguments
