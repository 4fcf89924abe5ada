"""The parameters of the tier in ``secondary_tiers`` that are meshcache's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcache._engines.options import Options
from meshcache.settings import Mode

#: Requests wait for chunks that are on their way, so that a longer time would look like a server that hangs.
TIMEOUT_BELOW_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """How the tier reaches its node, and what it does when it cannot."""

    #: Path of the node's client socket; None: where the client looks by default.
    client_socket: str | None = None
    #: Keeps apart what model, dtype and layout do not tell apart, such as two versions of the weights.
    tag: str | None = None
    #: Seconds until a job has its result, waiting included.
    timeout: float = 5.0
    #: How pages are moved: "auto", "direct", "staged" or "bytes".
    mode: Mode = "auto"
    #: Refuse to start without a node. Otherwise, everything is a miss until the node is there.
    required: bool = False
    #: May a node that has stopped answering be ended, when only that makes sure that it writes nothing any more?
    end_frozen_node: bool = True

    @staticmethod
    def parse(params: Mapping[str, Any] | None) -> Settings:
        """The settings among a tier's parameters. Raises ``ValueError`` for unknown names and for bad values."""
        options = Options(params, "secondary_tiers")
        options.refuse_others(OWN_KEYS, other_names=_OTHER_NAMES)
        defaults = Settings()
        return Settings(
            client_socket=options.text("client_socket"),
            tag=options.text("tag"),
            timeout=options.seconds("timeout", defaults.timeout, TIMEOUT_BELOW_SECONDS),
            mode=options.mode(defaults.mode),
            required=options.flag("required", defaults.required),
            end_frozen_node=options.flag("end_frozen_node", defaults.end_frozen_node),
        )

    @property
    def fence_seconds(self) -> float:
        """The last part of a job's time: proof that the node has let go of the memory is waited for so long."""
        return min(1.0, self.timeout / 4)

    @property
    def lookup_seconds(self) -> float:
        """A lookup that has no answer after this long is a miss."""
        return min(1.0, self.timeout)


OWN_KEYS = ("client_socket", "end_frozen_node", "mode", "required", "tag", "timeout")

_OTHER_NAMES = {"socket": "client_socket", "socket_path": "client_socket", "model_tag": "tag"}
