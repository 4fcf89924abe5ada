"""The parameters of the tier in ``secondary_tiers`` that are meshcache's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcache._engines.options import Options
from meshcache._engines.settings import COMMON_KEYS, EngineSettings, settings_in

#: Requests wait for chunks that are on their way, so that a longer time would look like a server that hangs.
TIMEOUT_BELOW_SECONDS = 60.0


@dataclass(frozen=True)
class Settings(EngineSettings):
    """How the tier reaches its node, and what it does when it cannot. ``timeout`` ends with a job's result."""

    @staticmethod
    def parse(params: Mapping[str, Any] | None) -> Settings:
        """The settings among a tier's parameters. Raises ``ValueError`` for unknown names and for bad values."""
        options = Options(params, "secondary_tiers")
        options.refuse_others(COMMON_KEYS, other_names=_OTHER_NAMES)
        return Settings(**settings_in(options, TIMEOUT_BELOW_SECONDS))

    @property
    def fence_seconds(self) -> float:
        """The last part of a job's time: proof that the node has let go of the memory is waited for so long."""
        return min(1.0, self.timeout / 4)

    @property
    def lookup_seconds(self) -> float:
        """A lookup that has no answer after this long is a miss."""
        return min(1.0, self.timeout)


_OTHER_NAMES = {"socket": "client_socket", "socket_path": "client_socket", "model_tag": "tag"}
