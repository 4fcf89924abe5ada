"""Checks and converts the arguments of callers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from ._memory.memory import check_plain
from ._wire import protocol


def checked_keys(keys: Sequence[str], what: str = "keys") -> Sequence[str]:
    """Checks a sequence of strings, and returns it as a list or tuple. Raises TypeError and ValueError."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{what} must be a sequence of strings, got a single {type(keys).__name__}")
    if not isinstance(keys, (list, tuple)):
        keys = list(keys)
    try:
        joined = "".join(keys)
        # No key is longer than all keys together, so they are checked one by one only if that is too long.
        if len(joined) > protocol.MAX_TEXT_BYTES or not joined.isascii():
            protocol.encode_keys(keys)
    except TypeError as error:
        raise TypeError(f"{what} must be strings: {error}") from None
    return keys


#: Suffix of the pools of keys that are bytes.
_BYTES_POOL: Final = "\0bytes"
#: Most bytes of such a key: requests have it in hexadecimal digits.
_MAX_BYTES_KEY: Final = protocol.MAX_TEXT_BYTES // 2


def keys_of(keys: Sequence[str] | Sequence[bytes], pool: str) -> tuple[Sequence[str], str]:
    """Keys (all strings, or all bytes, which are other keys) and pool for requests. Raises TypeError and ValueError."""
    checked_text(pool, "pool")
    if not isinstance(keys, (str, bytes, list, tuple)):
        keys = cast(Sequence[str], list(keys))
    if isinstance(keys, (list, tuple)) and keys and isinstance(keys[0], bytes):
        if not all(isinstance(key, bytes) for key in keys):
            raise TypeError("keys must be strings, or all be bytes")
        longest = max(map(len, keys))
        if longest > _MAX_BYTES_KEY:
            raise ValueError(f"a key of {longest:,} bytes is too long: at most {_MAX_BYTES_KEY:,} are allowed")
        return checked_keys([cast(bytes, key).hex() for key in keys]), bytes_pool(pool)
    return checked_keys(cast(Sequence[str], keys)), pool


def bytes_pool(pool: str) -> str:
    """The pool that requests use for those keys of `pool` that are bytes."""
    return pool + _BYTES_POOL


def main_pool(pool: str) -> bool:
    """Whether this is the main pool in requests, for keys of either kind."""
    return pool.removesuffix(_BYTES_POOL) in ("", "kv")


def checked_text(text: str, what: str) -> str:
    """Checks that a string fits into a request. Raises TypeError and ValueError."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a string, got {text!r}")
    protocol.text16(text)
    return text


def flat_view(data: object) -> memoryview:
    """The bytes of a page, without a copy. Raises TypeError and ValueError."""
    try:
        view = memoryview(cast(Any, data))
    except TypeError:
        raise TypeError(f"a page must support the buffer protocol, as bytes do; got {type(data).__name__}") from None
    except ValueError as error:
        raise ValueError(f"a page must be plain data: {error}; give its bytes, as array.view('u1') does") from None
    if not view.c_contiguous:
        raise ValueError("a page must be contiguous, in C order")
    check_plain(view.format, "a page")
    # An empty view of several dimensions cannot be cast.
    return view.cast("B") if view.nbytes > 0 else memoryview(b"")


#: State of the pages' conversation: "open" (or 1), "closed" (or 2), 0 for unknown; 3 has a meaning of the caller's own.
Hint = Literal["open", "closed", 0, 1, 2, 3]
_HINTS: Final[dict[object, int]] = {"open": 1, "closed": 2, 0: 0, 1: 1, 2: 2, 3: 3}


def hint_number(hint: Hint) -> int:
    """The number of a hint in requests. Raises ValueError."""
    number = _HINTS.get(hint) if type(hint) in (int, str) else None
    if number is None:
        raise ValueError(f'hint must be "open", "closed", 0, 1, 2 or 3; got {hint!r}')
    return number


#: Order in which a node evicts pages from its memory: low ones before all others, high ones after all others.
Priority = Literal["low", "normal", "high"]
_PRIORITIES: Final[dict[object, int]] = {"normal": 0, "low": 1, "high": 2}


def priority_number(priority: Priority) -> int:
    """The number of a priority in requests. Raises ValueError."""
    number = _PRIORITIES.get(priority) if type(priority) is str else None
    if number is None:
        raise ValueError(f'priority must be "low", "normal" or "high"; got {priority!r}')
    return number


def expiry_ms(expires_in: float | None) -> int | None:
    """Converts the time until a page expires to whole milliseconds, at least one. Raises TypeError and ValueError."""
    if expires_in is None:
        return None
    if isinstance(expires_in, bool) or not isinstance(expires_in, (int, float)):
        raise TypeError(f"expires_in must be a number of seconds or None, got {expires_in!r}")
    if not 0 < expires_in * 1000 <= protocol.MAX_EXPIRY_MS:
        raise ValueError(
            f"expires_in must be above 0 and at most {protocol.MAX_EXPIRY_MS // 1000} seconds, got {expires_in!r}"
        )
    return max(1, round(expires_in * 1000))


def pin_milliseconds(seconds: float) -> int:
    """Converts the time of a pin to milliseconds, rounded up. Raises TypeError and ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"seconds must be a number, got {seconds!r}")
    if not seconds > 0:
        raise ValueError(f"seconds must be above 0, got {seconds!r}")
    return min(math.ceil(min(seconds, 1e9) * 1000), protocol.MAX_PIN_MS)


def waiting_ms(seconds: float, name: str) -> int:
    """Converts the time until pages are needed to whole milliseconds. Raises TypeError and ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}")
    if not 0 <= seconds * 1000 <= protocol.MAX_WAITING_MS:
        raise ValueError(f"{name} must be 0 to {protocol.MAX_WAITING_MS // 1000} seconds, got {seconds!r}")
    return round(seconds * 1000)


def name_of(name: str, what: str, max_bytes: int) -> str:
    """Checks the name of a session or pin. Raises TypeError and ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, got {name!r}")
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= max_bytes:
        raise ValueError(f"{what} must have 1 to {max_bytes} bytes of UTF-8, got {name[:64]!r}")
    return checked_text(name, what)


def page_count(count: int, name: str) -> int:
    """Checks a number of pages. Raises TypeError and ValueError."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be a number of pages, got {count!r}")
    if not 0 <= count < 1 << 32:
        raise ValueError(f"{name} must be a number of pages, 0 or more, got {count!r}")
    return count


def checked_timeout(timeout: float) -> float:
    """Checks a timeout in seconds, and caps it at 1,000,000. Raises TypeError and ValueError."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more; got {timeout!r}")
    return min(timeout, 1e6)
