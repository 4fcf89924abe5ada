"""The parameters of the tier in ``secondary_tiers`` that are meshcache's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshcache._engines.options import Options
from meshcache._engines.settings import COMMON_KEYS, EngineSettings, settings_in

#: Requests wait for chunks that are on their way, so that a longer time would look like a server that hangs.
TIMEOUT_BELOW_SECONDS = 60.0

#: The keys that a tier may have beside vLLM's own.
OWN_KEYS: Final = tuple(sorted([*COMMON_KEYS, "enable_kv_events", "locality"]))
#: vLLM's own keys. Versions that do not know them pass them on.
_FOREIGN_KEYS: Final = ("module_path", "backpressure")
_LOCALITIES: Final = ("LOCAL", "REMOTE")


@dataclass(frozen=True)
class Settings(EngineSettings):
    """How the tier reaches its node, and what it does when it cannot. ``timeout`` ends with a job's result."""

    #: Whether vLLM's KV events tell which chunks the tier has stored. They are published only when vLLM's own events are on.
    enable_kv_events: bool = field(default=False, kw_only=True)
    #: The place of this tier for requests that choose tiers by place: "LOCAL", "REMOTE", or None, which matches every choice.
    locality: str | None = field(default=None, kw_only=True)

    @staticmethod
    def parse(params: Mapping[str, Any] | None) -> Settings:
        """The settings among a tier's parameters. Raises ``ValueError`` for unknown names and for bad values."""
        options = Options(params, "secondary_tiers")
        options.refuse_others(OWN_KEYS, _FOREIGN_KEYS, _OTHER_NAMES)
        given = options.text("locality")
        return Settings(
            **settings_in(options, TIMEOUT_BELOW_SECONDS),
            enable_kv_events=options.flag("enable_kv_events", False),
            locality=None if given is None else options.one_of("locality", "", _LOCALITIES),
        )

    @property
    def fence_seconds(self) -> float:
        """The last part of a job's time: proof that the node has let go of the memory is waited for so long."""
        return min(1.0, self.timeout / 4)

    @property
    def lookup_seconds(self) -> float:
        """A lookup that has no answer after this long is a miss."""
        return min(1.0, self.timeout)


_OTHER_NAMES = {"socket": "client_socket", "socket_path": "client_socket", "model_tag": "tag"}
