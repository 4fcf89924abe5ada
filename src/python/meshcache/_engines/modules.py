"""Modules of an engine, which need not be installed."""

from __future__ import annotations

import importlib
from typing import Any


def imported(*names: str) -> Any:
    """The first of these modules that can be imported; None if none can."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
