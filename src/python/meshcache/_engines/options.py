"""Reads and checks an adapter's settings in an engine's configuration."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from meshcache.settings import MODES, Mode


class Options:
    """A mapping of options. Every method raises ``ValueError``, which says what is allowed, for a bad value."""

    def __init__(self, given: Mapping[str, Any] | None, where: str) -> None:
        """``where`` begins each error message. It is the engine's own name for its configuration."""
        self._given = dict(given or {})
        self._where = where

    def refuse_others(
        self, own: Collection[str], foreign: Collection[str] = (), other_names: Mapping[str, str] | None = None
    ) -> None:
        """Rejects names that are neither the adapter's nor the engine's. ``other_names`` maps some to suggestions."""
        for name in self._given:
            if name in own or name in foreign:
                continue
            known = sorted([*own, *foreign])
            near = (other_names or {}).get(str(name)) or next(
                iter(difflib.get_close_matches(str(name), known, 1)), None
            )
            hint = f'did you mean "{near}"? ' if near else ""
            keys = ", ".join(sorted(own))
            raise ValueError(f"{self._where}: unknown key {name!r}; {hint}meshcache's own keys are {keys}")

    def text(self, name: str) -> str | None:
        """A non-empty string, or None."""
        value = self._given.get(name)
        if value is None or (isinstance(value, str) and value != ""):
            return value
        raise ValueError(f"{self._where}: {name} must be a non-empty string, got {value!r}")

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of strings to strings. Numbers and booleans are converted to their JSON text."""
        value = self._given.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(
            isinstance(key, str) and isinstance(part, (str, int, float)) and part != "" for key, part in value.items()
        ):
            raise ValueError(f"{self._where}: {name} must map names to non-empty strings or numbers, got {value!r}")
        return {key: part if isinstance(part, str) else json.dumps(part) for key, part in value.items()}

    def one_of(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """One of the allowed strings."""
        value = self._given.get(name, default)
        if isinstance(value, str) and value in allowed:
            return value
        raise ValueError(f"{self._where}: {name} must be one of {', '.join(allowed)}, got {value!r}")

    def seconds(self, name: str, default: float, below: float) -> float:
        """A number of seconds, which may be given as a string."""
        value = self._given.get(name, default)
        number = _number(value)
        if number is not None and 0 < number < below:
            return number
        allowed = f"a number above 0 and below {below:g} (seconds)"
        raise ValueError(f"{self._where}: {name} must be {allowed}, got {value!r}")

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """An integer from ``least`` to ``most``."""
        value = self._given.get(name, default)
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"{self._where}: {name} must be a whole number from {least:,} to {most:,}, got {value!r}")

    def mode(self, default: Mode) -> Mode:
        """One of the client's modes."""
        value = self._given.get("mode", default)
        if isinstance(value, str) and value in MODES:
            return cast(Mode, value)
        raise ValueError(f"{self._where}: mode must be one of {', '.join(MODES)}, got {value!r}")

    def flag(self, name: str, default: bool) -> bool:
        """A boolean, which may be given as a number or a string."""
        value = self._given.get(name, default)
        plain = value.strip().lower() if isinstance(value, str) else value
        # 1 and 1.0 equal True, 0 and 0.0 equal False.
        for flag, forms in ((True, (True, "true", "1")), (False, (False, "false", "0"))):
            if plain in forms:
                return flag
        raise ValueError(f"{self._where}: {name} must be true, false, 1 or 0, got {value!r}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
