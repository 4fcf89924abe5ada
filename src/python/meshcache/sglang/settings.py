"""The keys of ``--hicache-storage-backend-extra-config`` that are meshcache's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcache._engines.options import Options
from meshcache.settings import Mode

#: A storage call that lasts this long stalls SGLang's control threads, which it joins for 10 s.
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
class Settings:
    """How the backend reaches its node, and what it does when it cannot."""

    #: Path of the node's client socket; None: where the client looks by default.
    client_socket: str | None = None
    #: Keeps apart what model, dtype and layout do not tell apart, such as two versions of the weights.
    tag: str | None = None
    #: Seconds that one call may last, waiting included.
    timeout: float = 5.0
    #: How pages are moved: "auto", "direct", "staged" or "bytes".
    mode: Mode = "auto"
    #: Refuse to start without a node. Otherwise, everything is a miss until the node is there.
    required: bool = False
    #: May a node that has stopped answering be ended, when only that makes sure that it writes nothing any more?
    end_frozen_node: bool = True
    #: SGLang moves pages by pointers, without copies.
    interface_v1: bool = False

    @staticmethod
    def parse(extra_config: Mapping[str, Any] | None) -> Settings:
        """The settings in an extra configuration. Raises ``ValueError`` for unknown keys and for bad values."""
        options = Options(extra_config, "extra config")
        options.refuse_others(_OWN_KEYS, FRAMEWORK_KEYS, _OTHER_NAMES)
        defaults = Settings()
        return Settings(
            client_socket=options.text("client_socket"),
            tag=options.text("tag"),
            timeout=options.seconds("timeout", defaults.timeout, TIMEOUT_BELOW_SECONDS),
            mode=options.mode(defaults.mode),
            required=options.flag("required", defaults.required),
            end_frozen_node=options.flag("end_frozen_node", defaults.end_frozen_node),
            # SGLang decides by the truth of what is given, and the two must agree.
            interface_v1=bool((extra_config or {}).get("interface_v1", 0)),
        )


_OWN_KEYS = ("client_socket", "end_frozen_node", "mode", "required", "tag", "timeout")

#: What other backends of SGLang call the same thing, and what the node calls it.
_OTHER_NAMES = {
    "extra_backend_tag": "tag",
    "model_tag": "tag",
    "socket": "client_socket",
    "socket_path": "client_socket",
}
