"""The keys of ``adapter_params`` in the configuration of an LMCache L2 adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .._engines.options import Options
from .._engines.settings import EngineSettings, settings_in

#: LMCache waits this long for a delete, and then forgets it.
TIMEOUT_BELOW_SECONDS: Final = 30.0

MAX_WORKERS: Final = 32

#: Names that other clients and the node use for the same settings.
_OTHER_NAMES: Final = {"num_workers": "workers", "socket": "client_socket", "socket_path": "client_socket"}

_FACT_NAME: Final = re.compile(r"(?!private$)[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Settings(EngineSettings):
    """How the plug-in reaches its node, and what it does if it cannot. ``timeout`` runs from submit to completion."""

    #: Number of threads for lookups, for loads, and for stores and deletes, each.
    workers: int = 2
    #: Most futures waiting for a thread; further ones fail at once.
    max_pending: int = 4096
    #: Bytes of staging memory to request from the node, which gives at most 256 MiB. The largest page must fit.
    staging_bytes: int = 256 << 20

    @staticmethod
    def parse(adapter_params: Mapping[str, Any] | None) -> Settings:
        """Reads the settings in ``adapter_params``. Raises ``ValueError`` for unknown keys and bad values."""
        options = Options(adapter_params, "adapter_params")
        defaults = Settings()
        options.refuse_others(list(vars(defaults)), other_names=_OTHER_NAMES)
        common = settings_in(options, TIMEOUT_BELOW_SECONDS)
        for name in common["facts"]:
            if not _FACT_NAME.fullmatch(name):
                allowed = 'a letter, then letters, digits and _, all in lower case, and not "private"'
                raise ValueError(f"adapter_params: the name of a fact must be {allowed}; got {name!r}")
        return Settings(
            **common,
            workers=options.whole("workers", defaults.workers, 1, MAX_WORKERS),
            max_pending=options.whole("max_pending", defaults.max_pending, 1, 1 << 20),
            staging_bytes=options.whole("staging_bytes", defaults.staging_bytes, 4096, 1 << 40),
        )

    @property
    def fence_seconds(self) -> float:
        """The last part of an operation's time, reserved for proof that the node has released the memory."""
        return min(1.0, self.timeout / 4)

    @property
    def lookup_seconds(self) -> float:
        """A lookup without an answer after this time is a miss."""
        return min(1.0, self.timeout - self.fence_seconds)
