"""meshcache's own parameters of the tier in ``secondary_tiers``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshcache._engines.options import Options
from meshcache._engines.settings import COMMON_KEYS, EngineSettings, settings_in

#: Requests wait for chunks that are being loaded, so with a longer timeout the server would seem to hang.
TIMEOUT_BELOW_SECONDS = 60.0

#: Keys that a tier may have in addition to vLLM's own.
OWN_KEYS: Final = tuple(sorted([*COMMON_KEYS, "enable_kv_events", "locality"]))
#: vLLM's own keys, which versions that do not know them pass on to the tier.
_FOREIGN_KEYS: Final = ("module_path", "backpressure")
_LOCALITIES: Final = ("LOCAL", "REMOTE")


@dataclass(frozen=True)
class Settings(EngineSettings):
    """How the tier reaches its node, and what it does if it cannot. ``timeout`` runs until a job's result."""

    #: Whether vLLM's KV events include chunks that the tier has stored. They are only published if KV events are on.
    enable_kv_events: bool = field(default=False, kw_only=True)
    #: Locality of this tier for requests that select tiers by it: "LOCAL", "REMOTE", or None, which always matches.
    locality: str | None = field(default=None, kw_only=True)

    @staticmethod
    def parse(params: Mapping[str, Any] | None) -> Settings:
        """Reads the settings among a tier's parameters. Raises ``ValueError`` for unknown names and bad values."""
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
        """The last part of a job's time, reserved for proof that the node has released the memory."""
        return min(1.0, self.timeout / 4)

    @property
    def lookup_seconds(self) -> float:
        """A lookup without an answer after this time is a miss."""
        return min(1.0, self.timeout)


_OTHER_NAMES = {"socket": "client_socket", "socket_path": "client_socket", "model_tag": "tag"}
