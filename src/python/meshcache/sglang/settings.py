"""The keys of ``--hicache-storage-backend-extra-config`` that are meshcache's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

#: A storage call that lasts this long stalls SGLang's control threads, which it joins for 10 s.
TIMEOUT_BELOW_SECONDS = 10.0

Mode = Literal["auto", "direct", "staged", "bytes"]
MODES: tuple[str, ...] = get_args(Mode)

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
        config = dict(extra_config or {})
        for name in config:
            if name not in _OWN_KEYS and name not in FRAMEWORK_KEYS:
                raise ValueError(_unknown(name))
        defaults = Settings()
        return Settings(
            client_socket=_text(config, "client_socket"),
            tag=_text(config, "tag"),
            timeout=_timeout(config.get("timeout", defaults.timeout)),
            mode=_mode(config.get("mode", defaults.mode)),
            required=_flag(config, "required", defaults.required),
            end_frozen_node=_flag(config, "end_frozen_node", defaults.end_frozen_node),
            # SGLang decides by the truth of what is given, and the two must agree.
            interface_v1=bool(config.get("interface_v1", 0)),
        )


_OWN_KEYS = ("client_socket", "end_frozen_node", "mode", "required", "tag", "timeout")

#: What other backends of SGLang call the same thing, and what the node calls it.
_OTHER_NAMES = {
    "extra_backend_tag": "tag",
    "model_tag": "tag",
    "socket": "client_socket",
    "socket_path": "client_socket",
}


def _unknown(name: object) -> str:
    known = sorted([*_OWN_KEYS, *FRAMEWORK_KEYS])
    near = _OTHER_NAMES.get(str(name)) or next(iter(difflib.get_close_matches(str(name), known, 1)), None)
    hint = f'did you mean "{near}"? ' if near else ""
    return f"extra config: unknown key {name!r}; {hint}meshcache's own keys are {', '.join(_OWN_KEYS)}"


def _text(config: Mapping[str, Any], name: str) -> str | None:
    value = config.get(name)
    if value is None or (isinstance(value, str) and value != ""):
        return value
    raise ValueError(f"extra config: {name} must be a text that is not empty, got {value!r}")


def _timeout(value: Any) -> float:
    seconds = _number(value)
    if seconds is not None and 0 < seconds < TIMEOUT_BELOW_SECONDS:
        return seconds
    raise ValueError(
        f"extra config: timeout must be a number above 0 and below {TIMEOUT_BELOW_SECONDS:g} (seconds), got {value!r}"
    )


def _number(value: Any) -> float | None:
    """A number, which may be given as a text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _mode(value: Any) -> Mode:
    if isinstance(value, str) and value in MODES:
        return cast(Mode, value)
    raise ValueError(f"extra config: mode must be one of {', '.join(MODES)}, got {value!r}")


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    value = config.get(name, default)
    plain = value.strip().lower() if isinstance(value, str) else value
    # 1 and 1.0 equal True, 0 and 0.0 equal False.
    for flag, forms in ((True, (True, "true", "1")), (False, (False, "false", "0"))):
        if plain in forms:
            return flag
    raise ValueError(f"extra config: {name} must be true, false, 1 or 0, got {value!r}")
