"""Decides which engines may share pages: those that agree in every fact that gives a page's bytes their meaning."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: Version of all lists of facts; increment it with every change. Engines with different versions share nothing.
LIST_VERSION: Final = 2

#: Values that a layout contains as they are. Others are replaced by a digest, whose mark no plain value contains.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@+,-]{1,64}")
_DIGEST_MARK: Final = "~"
_DIGEST_DIGITS: Final = 32
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

#: Name of the fact that keeps an engine from sharing. Its value is random for each start.
PRIVATE: Final = "private"


class Unreadable(Exception):
    """A fact of an engine cannot be read. The text says why."""


@dataclass(frozen=True)
class Missing:
    """A fact that could neither be read nor taken from the settings."""

    name: str
    #: Where the engine keeps it, in the engine's own terms.
    where: str
    why: str


class Facts:
    """The facts of one engine, each read from where the engine keeps it.

    A fact that can neither be read nor is stated by the operator is never left out: the engine then has a unique
    layout, so that it shares pages with no other engine.
    """

    def __init__(self, framework: str, stated: Mapping[str, str] | None = None) -> None:
        """``stated`` has facts by name from the operator's settings. They are only used if they cannot be read."""
        self._framework = framework
        self._stated = dict(stated or {})
        self._values: dict[str, str] = {}
        self._missing: list[Missing] = []
        self._private = uuid.uuid4().hex

    def read(self, name: str, reader: Callable[[], Any], *, where: str) -> None:
        """Adds a fact. ``reader`` returns its value: a text, a number, a boolean, a torch dtype, an enumeration, or
        lists and mappings of these. The fact is missing if ``reader`` raises, or returns None or an object without a
        canonical text. ``where`` names the place in the engine's own terms, for the warning."""
        if not _NAME.fullmatch(name) or name == PRIVATE or name in self._values:
            raise AssertionError(f"a fact needs a name of its own in lower case, got {name!r}")
        try:
            value = reader()
            if value is None:
                raise Unreadable("it is not there")
            self._values[name] = value_text(value)
        except Exception as error:
            if name in self._stated:
                self._values[name] = value_text(self._stated[name])
                return
            why = str(error) if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
            self._missing.append(Missing(name, where, why))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Facts that could neither be read nor taken from the settings."""
        return tuple(self._missing)

    @property
    def layout(self) -> str:
        """The layout of a namespace: framework and version of the list, then each fact as ``name=value``, by name.

        If a fact is missing, the layout ends with a value that no other engine has.
        """
        pairs = [f"{name}={value}" for name, value in sorted(self._values.items())]
        if self._missing:
            pairs.append(f"{PRIVATE}={self._private}")
        return " ".join([f"{self._framework}/{LIST_VERSION}", *pairs])

    def warn(self, logger: logging.Logger, where_set: str) -> None:
        """Logs a warning per missing fact. ``where_set`` names the operator's settings, e.g. ``the extra config``."""
        known = {*self._values, *(fact.name for fact in self._missing)}
        strange = ", ".join(f'"{name}"' for name in sorted(set(self._stated) - known))
        for fact in self._missing:
            logger.warning(
                "this engine shares pages with no other engine: its %s is unknown (%s: %s); "
                'state it in %s: "facts": {"%s": "..."}, equal on all engines that may share%s',
                fact.name,
                fact.where,
                fact.why,
                where_set,
                fact.name,
                f"; the facts there have {strange}, which is no fact of these pages" if strange else "",
            )


def value_text(value: Any) -> str:
    """The text of a fact's value, the same in every process and release. Raises ``Unreadable`` if there is none."""
    plain = canonical(value)
    if plain is None:
        raise Unreadable("it is not there")
    text = plain if isinstance(plain, str) else json.dumps(plain, sort_keys=True, separators=(",", ":"))
    if _PLAIN.fullmatch(text):
        return text
    return _DIGEST_MARK + hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def canonical(value: Any) -> Any:
    """Converts a value to JSON types. Raises ``Unreadable`` if its text could differ between equal engines."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if isinstance(value, Mapping):
        return {str(name): canonical(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    raise Unreadable(f"a {type(value).__name__} has no text that is the same for equal engines")
