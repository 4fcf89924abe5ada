"""meshcache's own keys in ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcache._engines.options import Options
from meshcache._engines.settings import COMMON_KEYS, EngineSettings, settings_in

#: A storage call that lasts this long stalls SGLang's control threads, for which SGLang waits 10 s at the end.
TIMEOUT_BELOW_SECONDS = 10.0

#: Keys that SGLang reads itself and may leave in the configuration.
FRAMEWORK_KEYS = frozenset(
    {
        "allocator",
        "backend_name",
        "class_name",
        "file_storage_path",
        "hicache_storage_pass_prefix_keys",
        "interface_v1",
        "module_path",
        "prefetch_threshold",
        "prefetch_timeout_base",
        "prefetch_timeout_max",
        "prefetch_timeout_per_ki_token",
        "tp_lcm_size",
    }
)


@dataclass(frozen=True)
class Settings(EngineSettings):
    """How the backend reaches its node, and what it does if it cannot. ``timeout`` is per call."""

    #: Whether SGLang passes pages by pointer, without copies.
    interface_v1: bool = False

    @staticmethod
    def parse(extra_config: Mapping[str, Any] | None) -> Settings:
        """Reads the settings in an extra configuration. Raises ``ValueError`` for unknown keys and bad values."""
        options = Options(extra_config, "extra config")
        options.refuse_others(COMMON_KEYS, FRAMEWORK_KEYS, _OTHER_NAMES)
        return Settings(
            **settings_in(options, TIMEOUT_BELOW_SECONDS),
            # SGLang uses the truth value of this setting, and the backend must agree.
            interface_v1=bool((extra_config or {}).get("interface_v1", 0)),
        )


#: Names that other backends of SGLang and the node use for the same settings.
_OTHER_NAMES = {
    "extra_backend_tag": "tag",
    "model_tag": "tag",
    "socket": "client_socket",
    "socket_path": "client_socket",
}
