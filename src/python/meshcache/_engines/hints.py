"""Hints about KV that requests of vLLM and SGLang carry: an envelope of actions, ``kv_hints``.

Of its actions, ``kv.fetch`` (version 1) names blocks that will be needed, and ``meshcache.session`` (version 1) says what
a session does next. All others are ignored, as the envelope demands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FETCH: Final = "kv.fetch"
SESSION: Final = "meshcache.session"
#: Major versions of the envelope's protocol and of the actions that are understood.
_PROTOCOL: Final = "0"
_VERSION: Final = "1"
#: Most blocks that one request may have fetched.
MAX_BLOCKS: Final = 65_536
#: Longest envelope that is text: MAX_BLOCKS hashes of 32 bytes fit.
MAX_TEXT: Final = 8 << 20
_MAX_SESSION_BYTES: Final = 256
_MAX_WAITING_SECONDS: Final = 604_800
#: Characters of a wrong value that a line of the log shows.
_MAX_SHOWN: Final = 64


@dataclass(frozen=True)
class SessionHint:
    """What a session does after a request; see ``Client.tell``."""

    session: str
    waiting: float | None = None
    branched: bool = False
    ended: bool = False
    #: Tokens at the head of the request that other sessions use as well.
    shared_tokens: int = 0


@dataclass(frozen=True)
class Hints:
    """The hints of one request."""

    session: SessionHint | None = None
    #: Hashes of blocks that will be needed: hexadecimal texts, or the last 64 bits as a number.
    blocks: tuple[int | str, ...] = ()


def read_hints(*envelopes: Any) -> tuple[Hints | None, str]:
    """The hints of the first envelope that is there: a mapping, an object with the same attributes, or JSON text. Also
    returns what is wrong with them, else an empty text. Never raises."""
    for envelope in envelopes:
        if envelope is None:
            continue
        try:
            return _read(_decoded(envelope) if isinstance(envelope, str) else envelope), ""
        except (TypeError, ValueError) as error:
            return None, str(error)
        except Exception as error:
            return None, f"kv_hints cannot be read: {_shown(error)}"
    return None, ""


def _decoded(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise ValueError(f"kv_hints of {len(text)} characters; at most {MAX_TEXT} are read")
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"kv_hints are no JSON text: {error}") from None


def _read(envelope: Any) -> Hints | None:
    version = _field(envelope, "protocol_version")
    if not isinstance(version, str) or version.split(".")[0] != _PROTOCOL:
        raise ValueError(f"kv_hints of protocol version {_shown(version)}; {_PROTOCOL}.x is known")
    actions = _field(envelope, "actions")
    if isinstance(actions, (str, bytes)) or not isinstance(actions, Sequence):
        raise ValueError("kv_hints without a list of actions")
    session: SessionHint | None = None
    blocks: list[int | str] = []
    for action in actions:
        type_, payload = _field(action, "action_type"), _field(action, "payload")
        if type_ not in (FETCH, SESSION) or str(_field(action, "action_version")).split(".")[0] != _VERSION:
            continue
        if not isinstance(payload, Mapping):
            raise ValueError(f"a {type_} of kv_hints without a payload")
        if type_ == SESSION:
            session = _session(payload)
        else:
            blocks += _blocks(payload)
    return None if session is None and not blocks else Hints(session, tuple(blocks[:MAX_BLOCKS]))


def _session(payload: Mapping[str, Any]) -> SessionHint:
    session, waiting = payload.get("session"), payload.get("waiting")
    if not isinstance(session, str) or not 1 <= len(session.encode("utf-8", "replace")) <= _MAX_SESSION_BYTES:
        raise ValueError(f"a session of kv_hints has a name of 1 to {_MAX_SESSION_BYTES} bytes, got {_shown(session)}")
    if waiting is not None and not (_is_number(waiting) and 0 <= waiting <= _MAX_WAITING_SECONDS):
        raise ValueError(f"waiting of kv_hints is 0 to {_MAX_WAITING_SECONDS} seconds, got {_shown(waiting)}")
    flags = [payload.get(name, False) for name in ("branched", "ended")]
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("branched and ended of kv_hints are true or false")
    shared = payload.get("shared_tokens", 0)
    if isinstance(shared, bool) or not isinstance(shared, int) or shared < 0:
        raise ValueError(f"shared_tokens of kv_hints is a number of tokens, got {_shown(shared)}")
    return SessionHint(session, None if waiting is None else float(waiting), flags[0], flags[1], shared)


def _blocks(payload: Mapping[str, Any]) -> list[int | str]:
    blocks = payload.get("block_hashes")
    if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Sequence):
        raise ValueError("a kv.fetch of kv_hints without block_hashes")
    if not all(isinstance(block, (int, str)) and not isinstance(block, bool) for block in blocks):
        raise ValueError("block_hashes of kv_hints are numbers or hexadecimal texts")
    return list(blocks)


def _shown(value: object) -> str:
    """What an engine was given, for a line of its log."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
