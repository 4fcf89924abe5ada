"""LMCache's log."""

from __future__ import annotations

import logging
from typing import Final

from .._engines.modules import imported

#: LMCache shows only the output of loggers that it makes itself. Without LMCache, this is a plain logger.
_NAME: Final = "lmcache.meshcache"


def _logger() -> logging.Logger:
    make = getattr(imported("lmcache.logging"), "init_logger", logging.getLogger)
    made = make(_NAME)
    return made if isinstance(made, logging.Logger) else logging.getLogger(_NAME)


logger: Final = _logger()
