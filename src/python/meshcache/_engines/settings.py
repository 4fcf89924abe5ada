"""Settings that the adapters of all engines have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, TypedDict

from meshcache._engines.options import Options
from meshcache.settings import Mode


class Given(TypedDict):
    """The fields of ``EngineSettings``, as arguments."""

    client_socket: str | None
    token_file: str | None
    tag: str | None
    fingerprint: str | None
    timeout: float
    mode: Mode
    required: bool
    end_frozen_node: bool
    facts: dict[str, str]
    on_reset: str


#: Meaning of a reset of the engine's own cache, unless it names its version: the weights may have changed, or have not.
ON_RESET: Final = ("unknown_weights", "same_weights")


@dataclass(frozen=True)
class EngineSettings:
    """How an adapter reaches its node, and what it does if it cannot."""

    #: Path of the node's client socket; None: the client's default.
    client_socket: str | None = None
    #: File with the token that identifies the engine as a user of the node; None: $MESHCACHE_TOKEN_FILE, if it is set.
    token_file: str | None = field(default=None, kw_only=True)
    #: Separates pages that the engine's keys and namespace do not distinguish, such as those of different weights.
    tag: str | None = None
    #: Identity of the model's weights. Engines with different ones share no pages.
    fingerprint: str | None = field(default=None, kw_only=True)
    #: Seconds that the engine's call or job may last, including waiting.
    timeout: float = 5.0
    #: How pages are moved: "auto", "direct", "staged" or "bytes".
    mode: Mode = "auto"
    #: Whether to refuse to start without a node. If not, everything is a miss until there is one.
    required: bool = False
    #: Whether to kill a node that has stopped answering if nothing else ensures that it no longer writes into memory.
    end_frozen_node: bool = True
    #: Facts of the engine's identity, by name, for use if the adapter cannot read them from the engine.
    facts: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    #: "unknown_weights": after a reset, the engine shares nothing until it is told its weights. "same_weights": only
    #: updates of the weights matter, not resets.
    on_reset: str = field(default=ON_RESET[0], kw_only=True)


#: Keys that every adapter's configuration may have.
COMMON_KEYS: Final = tuple(sorted(setting.name for setting in fields(EngineSettings)))


def settings_in(options: Options, timeout_below: float) -> Given:
    """Reads the settings common to all adapters. Raises ``ValueError`` for bad values."""
    defaults = EngineSettings()
    return {
        "client_socket": options.text("client_socket"),
        "token_file": options.text("token_file"),
        "tag": options.text("tag"),
        "fingerprint": options.text("fingerprint"),
        "timeout": options.seconds("timeout", defaults.timeout, timeout_below),
        "mode": options.mode(defaults.mode),
        "required": options.flag("required", defaults.required),
        "end_frozen_node": options.flag("end_frozen_node", defaults.end_frozen_node),
        "facts": options.texts("facts"),
        "on_reset": options.one_of("on_reset", defaults.on_reset, ON_RESET),
    }
