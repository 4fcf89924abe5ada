"""The settings that the adapters of all engines have."""

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


#: What a reset of the engine's own cache means for the weights, unless the engine names their version: they may be others, or they are the same.
ON_RESET: Final = ("unknown_weights", "same_weights")


@dataclass(frozen=True)
class EngineSettings:
    """How an adapter reaches its node, and what it does when it cannot."""

    #: Path of the node's client socket; None: where the client looks by default.
    client_socket: str | None = None
    #: Path of a file with the token that shows which user of the node the engine is; None: $MESHCACHE_TOKEN_FILE, if it is set.
    token_file: str | None = field(default=None, kw_only=True)
    #: Keeps apart what the engine's keys and namespace do not tell apart, such as two versions of the weights.
    tag: str | None = None
    #: Identity of the model's weights: engines that state different ones share no pages.
    fingerprint: str | None = field(default=None, kw_only=True)
    #: Seconds that the engine's call or job may last, waiting included.
    timeout: float = 5.0
    #: How pages are moved: "auto", "direct", "staged" or "bytes".
    mode: Mode = "auto"
    #: Refuse to start without a node. Otherwise, everything is a miss until the node is there.
    required: bool = False
    #: May a node that has stopped answering be ended, when only that makes sure that it writes nothing any more?
    end_frozen_node: bool = True
    #: Facts of the engine's identity, by name, that the adapter cannot read from the engine; read ones count first.
    facts: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    #: "unknown_weights": after a reset the engine shares with nobody until it is told its weights. "same_weights": resets change nothing; updates of the weights do.
    on_reset: str = field(default=ON_RESET[0], kw_only=True)


#: What every adapter's configuration may have.
COMMON_KEYS: Final = tuple(sorted(setting.name for setting in fields(EngineSettings)))


def settings_in(options: Options, timeout_below: float) -> Given:
    """The settings of every adapter among the options. Raises ``ValueError`` for bad values."""
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
