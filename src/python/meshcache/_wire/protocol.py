"""The protocol of the client socket, version 1. See src/clients/wire/PROTOCOL.md of the project."""

from __future__ import annotations

import functools
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from .namespace import Namespace

HELLO: Final = 1
FILE: Final = 2
UNREGION: Final = 3
EXISTS: Final = 4
GET: Final = 5
SET: Final = 6
GET_BYTES: Final = 7
SET_BYTES: Final = 8
FENCE: Final = 9
CANCEL: Final = 10
DELETE: Final = 11
CLEAR: Final = 12
STATS: Final = 13
PING: Final = 14
STAT: Final = 15
PIN: Final = 16
UNPIN: Final = 17
EVENTS: Final = 18
FINGERPRINT: Final = 19
LOOKUPS: Final = 20
GET_STAGED: Final = 21
TELL: Final = 22
PREFETCH: Final = 23
END_PINS: Final = 24

DONE: Final = 0
BAD_REQUEST: Final = 1
NO_REGION: Final = 2
REGION_GONE: Final = 3
TOO_MUCH: Final = 4
CLOSING: Final = 5
REFUSED: Final = 6
ABSENT: Final = 9
TOO_LATE: Final = 10
DENIED: Final = 11

CAN_TAKE_DESCRIPTORS: Final = 1
CAN_GIVE_STAGING: Final = 2
CAN_OPEN_FILES: Final = 4
CAN_TAKE_HINTS: Final = 8
CAN_EXPIRE: Final = 16
CAN_PIN: Final = 32
CAN_TELL_EVENTS: Final = 64
CAN_RANK: Final = 128
CAN_TELL_FINGERPRINTS: Final = 256
CAN_COUNT: Final = 512
CAN_READ_STAGED: Final = 1024
CAN_TAKE_INSTANTS: Final = 2048
CAN_TELL_SESSIONS: Final = 4096

#: Pages that are wanted later than in so many milliseconds are not waited for by the node.
PREFETCH_LEAD_MS: Final = 10_000

EVENTS_NOTHING: Final = 0
EVENTS_RESET: Final = 1
EVENTS_LISTED: Final = 2
EVENTS_COMPLETE: Final = 3
EVENTS_CHANGED: Final = 4

MISS: Final = 0xFFFFFFFF
ASK_AGAIN: Final = 0xFFFFFFFE

VERSION: Final = 1
MAX_TEXT_BYTES: Final = 0xFFFF
MAX_PIECES: Final = 255
MAX_SUFFIXES: Final = 255
MAX_STAT_KEYS: Final = 256
MAX_PIN_MS: Final = 0xFFFFFFFF
#: Longest time after which a session may go on, and longest name of one.
MAX_WAITING_MS: Final = 604_800_000
MAX_SESSION_BYTES: Final = 256
MAX_PIN_NAME_BYTES: Final = 256
MAX_EVENT_POOLS: Final = 16
#: The longest time after which a page may expire: ten years.
MAX_EXPIRY_MS: Final = 315_576_000_000
HEADER: Final = struct.Struct("<IHHII")
RECORD: Final = struct.Struct("<IHH16sIIQQ")
RECORD_ANSWER: Final = struct.Struct("<IIQ")

_INSTANT: Final = struct.Struct("<Q")
_ASKED_HEADER: Final = struct.Struct("<IHHIIQ")
_ONE_KEY: Final = struct.Struct("<IH")
#: Texts whose encoding is remembered, as the names of pools.
_TEXTS_MAX_COUNT: Final = 64
_FLAG_ASKED: Final = 1
_HELLO_MAGIC: Final = 0x4348434D
_RECORD_MAGIC: Final = 0x4446434D
_RECORD_VERSION: Final = 1
_RECORD_REGION: Final = 1
_RECORD_STAGING: Final = 2
_HELLO_ANSWER: Final = struct.Struct("<HHI16s16sIIIIQQ")
_HELLO_FIELDS: Final = (
    "version",
    "zero",
    "capabilities",
    "boot_token",
    "attach_token",
    "process_id",
    "max_keys",
    "max_body_bytes",
    "max_in_flight",
    "max_page_bytes",
    "max_staging_bytes",
)
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


#: Tiers of a node, by their numbers in EVENTS; None: the page is gone.
_TIERS: Final[tuple[Literal["memory", "disk"] | None, ...]] = (None, "memory", "disk")


class Violation(Exception):
    """The node has violated the protocol."""


@dataclass(frozen=True)
class Hello:
    """A node's answer to HELLO."""

    version: int
    capabilities: int
    boot_token: bytes
    attach_token: bytes
    process_id: int
    max_keys: int
    max_body_bytes: int
    max_in_flight: int
    max_page_bytes: int
    max_staging_bytes: int
    node_id: str
    package_version: str
    #: Reading of the node's monotonic clock in seconds; None: the client did not ask for it.
    instant: float | None = None


@dataclass(frozen=True)
class EventsAnswer:
    """The answer to EVENTS."""

    kind: int
    position: str
    at_ms: int
    #: Each group is the index of a pool in the request, the tier that has the pages now (None: gone), and their keys.
    groups: list[tuple[int, Literal["memory", "disk"] | None, list[str]]]


def frame(
    type_: int, request_id: int, deadline_ms: int, body: bytes, page_bytes: int = 0, asked: float | None = None
) -> bytes:
    """A request with its header. `page_bytes` is the length of the pages that follow as the end of the body. `asked` is
    the monotonic time of the call, from which the deadline counts; default: the time at which the node reads it."""
    size = len(body) + page_bytes
    if asked is None:
        return HEADER.pack(size, type_, 0, request_id, deadline_ms) + body
    size += _INSTANT.size
    return _ASKED_HEADER.pack(size, type_, _FLAG_ASKED, request_id, deadline_ms, int(asked * 1e6)) + body


@functools.lru_cache(_TEXTS_MAX_COUNT)
def text16(text: str) -> bytes:
    """Encodes a string with its length. Raises ValueError if it has more than 65,535 bytes."""
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"a string of {len(data)} bytes is too long: at most {MAX_TEXT_BYTES} are allowed")
    return len(data).to_bytes(2, "little") + data


def _opt16(text: str | None) -> bytes:
    return b"\0" if text is None else b"\1" + text16(text)


def _numbers(kind: str, values: Sequence[int]) -> bytes:
    numbers = array(kind, values)
    if _IS_BIG_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def encode_keys(keys: Sequence[str]) -> bytes:
    """Encodes keys for a request. Raises ValueError if one has more than 65,535 bytes."""
    joined = "".join(keys)
    if len(keys) == 1:
        data = joined.encode()
        if len(data) <= MAX_TEXT_BYTES:
            return _ONE_KEY.pack(1, len(data)) + data
    if joined.isascii():
        lengths = list(map(len, keys))
        data = joined.encode()
    else:
        encoded = [key.encode() for key in keys]
        lengths = list(map(len, encoded))
        data = b"".join(encoded)
    try:
        return len(lengths).to_bytes(4, "little") + _numbers("H", lengths) + data
    except OverflowError:
        raise ValueError(f"a key of {max(lengths)} bytes is too long: at most {MAX_TEXT_BYTES} are allowed") from None


def encode_pieces(flat: Sequence[int]) -> bytes:
    """Encodes the pieces of GET and SET. `flat` has two numbers per piece: offset, and length + (region id << 32)."""
    return _numbers("Q", flat)


def encode_lengths(lengths: Sequence[int]) -> bytes:
    """Encodes the lengths of the pages of SET_BYTES."""
    return struct.pack(f"<{len(lengths)}I", *lengths)


def hello_body(
    name: str,
    process_id: int,
    namespace: Namespace | None,
    compares_clocks: bool = False,
    token: str | None = None,
) -> bytes:
    """Body of HELLO. A client with a namespace of its own receives fingerprint notices. With `compares_clocks`, the
    answer has the reading of the node's monotonic clock. `token` identifies the client as a user of the node."""
    fingerprint = (namespace.fingerprint or None) if namespace is not None else None
    flags = (namespace is not None) | (fingerprint is not None) << 1 | (namespace is not None) << 2
    flags |= compares_clocks << 3 | (token is not None) << 4
    shown = b"" if token is None else text16(token)
    head = struct.pack("<IHHI", _HELLO_MAGIC, VERSION, VERSION, flags)
    body = head + text16(name) + process_id.to_bytes(4, "little")
    if namespace is None:
        return body + shown
    texts = (namespace.model, namespace.dtype, namespace.layout, namespace.tag)
    ranks = struct.pack(
        "<4IB", namespace.tp_rank, namespace.tp_size, namespace.pp_rank, namespace.pp_size, namespace.is_mla
    )
    return body + b"".join(map(_opt16, texts)) + ranks + (b"" if fingerprint is None else text16(fingerprint)) + shown


def fingerprint_body(client: str, fingerprint: str | None) -> bytes:
    """Body of FINGERPRINT, which attached clients with this name are told."""
    return text16(client) + text16(fingerprint or "")


def decode_fingerprint_notice(body: bytes) -> str | None:
    """Decodes the fingerprint that the node sends; None means no fingerprint. Raises Violation."""
    try:
        (length,) = struct.unpack_from("<H", body)
        text = body[2:].decode("ascii")
    except (struct.error, UnicodeDecodeError):
        raise Violation("a fingerprint that cannot be decoded") from None
    if length != len(text) or any(not "!" <= character <= "~" for character in text) or length > 128:
        raise Violation("a fingerprint that no namespace can have")
    return text or None


def file_body(region_id: int, writable: bool, length: int, process_id: int, descriptor: int) -> bytes:
    """Body of FILE, a region that the node opens under /proc."""
    return struct.pack("<IIQII", region_id, writable, length, process_id, descriptor)


def number_body(number: int) -> bytes:
    """Body of UNREGION (a region id), and of FENCE and CANCEL (a request id)."""
    return number.to_bytes(4, "little")


@functools.lru_cache(_TEXTS_MAX_COUNT)
def exists_head(pool: str, suffixes: tuple[str, ...], per_key: bool, uncounted: bool = False) -> bytes:
    """Head of EXISTS, before its keys. With `uncounted`, the client reports the lookup in LOOKUPS."""
    return text16(pool) + bytes((per_key | uncounted << 1, len(suffixes))) + b"".join(map(text16, suffixes))


def lookups_body(asked: int, found: int) -> bytes:
    """Body of LOOKUPS."""
    return struct.pack("<QQ", asked, found)


def flags_of(
    named: bool, hint: int = 0, continues: bool = False, expires_in_ms: int | None = None, priority: int = 0
) -> bytes:
    """Flags of GET, SET, GET_BYTES and SET_BYTES, and the expiry that follows them. `continues`: the request continues
    the call of the client's previous request of these types."""
    flags = named | hint << 1 | continues << 3 | priority << 5
    return bytes((flags,)) if expires_in_ms is None else struct.pack("<BQ", flags | 1 << 4, expires_in_ms)


def transfer_head(pool: str, flags: bytes, pieces: int) -> bytes:
    """Head of GET and SET, before their keys. The pieces follow the keys."""
    return text16(pool) + flags + bytes((pieces,))


def bytes_head(pool: str, flags: bytes = b"\0") -> bytes:
    """Head of GET_BYTES and SET_BYTES, before their keys."""
    return text16(pool) + flags


def staged_head(pool: str, flags: bytes, offset: int, room: int) -> bytes:
    """Head of GET_STAGED, before its keys. The pages go to `room` bytes of the staging memory, from `offset` on."""
    return text16(pool) + flags + struct.pack("<QI", offset, room)


def pin_head(pool: str, milliseconds: int, name: str | None = None) -> bytes:
    """Head of PIN, before its keys. A name takes the place of a time."""
    return text16(pool) + (milliseconds.to_bytes(4, "little") if name is None else bytes(4) + text16(name))


def prefetch_head(pool: str, milliseconds: int) -> bytes:
    """Head of PREFETCH, before its keys."""
    return text16(pool) + milliseconds.to_bytes(4, "little")


def tell_head(
    pool: str, session: str, waiting_ms: int | None, branched: bool = False, ended: bool = False, shared: int = 0
) -> bytes:
    """Head of TELL, before its keys."""
    flags = (waiting_ms is not None) | branched << 1 | ended << 2
    return text16(pool) + text16(session) + struct.pack("<BII", flags, waiting_ms or 0, shared)


def clear_body(pools: Sequence[str]) -> bytes:
    """Body of CLEAR with further pools."""
    if len(pools) > MAX_TEXT_BYTES:
        raise ValueError(f"{len(pools)} pools are too many: at most {MAX_TEXT_BYTES} are allowed")
    return len(pools).to_bytes(2, "little") + b"".join(map(text16, pools))


def events_body(position: str, pools: Sequence[str]) -> bytes:
    """Body of EVENTS after a position."""
    return text16(position) + len(pools).to_bytes(2, "little") + b"".join(map(text16, pools))


def region_record(attach_token: bytes, region_id: int, writable: bool, length: int) -> bytes:
    """Record REGION for the descriptor socket."""
    return RECORD.pack(
        _RECORD_MAGIC, _RECORD_VERSION, _RECORD_REGION, attach_token, region_id, int(writable), length, 0
    )


def staging_record(attach_token: bytes, length: int) -> bytes:
    """Record STAGING for the descriptor socket."""
    return RECORD.pack(_RECORD_MAGIC, _RECORD_VERSION, _RECORD_STAGING, attach_token, 0, 0, length, 0)


def decode_hello(body: bytes) -> Hello:
    """Decodes and checks the answer to HELLO. Raises Violation."""
    try:
        fixed = _HELLO_ANSWER.unpack_from(body)
        node_id, at = _decode_text16(body, _HELLO_ANSWER.size)
        package_version, at = _decode_text16(body, at)
        instant = None
        if at + _INSTANT.size == len(body):
            instant = cast(int, _INSTANT.unpack_from(body, at)[0]) / 1e6
            at = len(body)
    except (struct.error, UnicodeDecodeError) as error:
        raise Violation(f"the answer to HELLO cannot be decoded: {error}") from None
    numbers = dict(zip(_HELLO_FIELDS, fixed))
    del numbers["zero"]
    hello = Hello(**numbers, node_id=node_id, package_version=package_version, instant=instant)
    if at != len(body) or hello.version != VERSION:
        raise Violation(f"the answer to HELLO has version {hello.version} and {len(body)} bytes")
    if min(hello.max_keys, hello.max_body_bytes, hello.max_in_flight, hello.max_page_bytes) < 1:
        raise Violation("the answer to HELLO has a limit of 0")
    return hello


def _decode_text16(body: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<H", body, at)
    end = at + 2 + length
    if end > len(body):
        raise struct.error("it is cut short")
    return body[at + 2 : end].decode(), end


def decode_flags(body: bytes, count: int) -> list[bool]:
    """Decodes one byte per key. Raises Violation."""
    if len(body) != count:
        raise Violation(f"{len(body)} results for {count} keys")
    return [True] * count if body.count(1) == count else [flag == 1 for flag in body]


def decode_exists(body: bytes, count: int, per_key: bool) -> tuple[int, list[bool]]:
    """Decodes the answer to EXISTS: length of the leading run, and a flag per key if `per_key`. Raises Violation."""
    if len(body) != 4 + (count if per_key else 0):
        raise Violation(f"EXISTS of {count} keys is answered with {len(body)} bytes")
    prefix = int.from_bytes(body[:4], "little")
    if prefix > count:
        raise Violation(f"EXISTS of {count} keys finds {prefix}")
    return prefix, decode_flags(body[4:], count) if per_key else []


def decode_pages(body: bytes, count: int, visit: Callable[[int, int, memoryview], None]) -> None:
    """Decodes the answer to GET_BYTES. `visit` gets index, length (or MISS or ASK_AGAIN) and bytes of every page.
    Raises Violation."""
    if len(body) < 4 * count:
        raise Violation(f"GET_BYTES of {count} keys is answered with {len(body)} bytes")
    lengths = struct.unpack_from(f"<{count}I", body)
    if 4 * count + sum(length for length in lengths if length < ASK_AGAIN) != len(body):
        raise Violation("the pages of GET_BYTES are not as long as they are said to be")
    view = memoryview(body)
    at = 4 * count
    for index, length in enumerate(lengths):
        end = at if length >= ASK_AGAIN else at + length
        visit(index, length, view[at:end])
        at = end


def decode_places(body: bytes, count: int, room: int) -> list[tuple[int, int]]:
    """Decodes the answer to GET_STAGED: for each page its position relative to the offset in the request (or MISS or
    ASK_AGAIN), and its length. Raises Violation."""
    if len(body) != 8 * count:
        raise Violation(f"GET_STAGED of {count} keys is answered with {len(body)} bytes")
    places = list(struct.iter_unpack("<II", body))
    for at, length in places:
        if at < ASK_AGAIN and at + length > room:
            raise Violation(f"GET_STAGED with {room} bytes is answered with a page of {length} bytes at {at}")
    return cast("list[tuple[int, int]]", places)


def decode_events(body: bytes, pool_count: int) -> EventsAnswer:
    """Decodes the answer to EVENTS for `pool_count` pools. Raises Violation."""
    try:
        kind = body[0]
        position, at = _decode_text16(body, 1)
        at_ms, group_count = struct.unpack_from("<QH", body, at)
        at += 10
        groups: list[tuple[int, Literal["memory", "disk"] | None, list[str]]] = []
        for _ in range(group_count):
            pool, tier, count = struct.unpack_from("<HBI", body, at)
            lengths = struct.unpack_from(f"<{count}H", body, at + 7)
            at += 7 + 2 * count
            keys = []
            for length in lengths:
                keys.append(body[at : at + length].decode())
                at += length
            if pool >= pool_count:
                raise Violation(f"EVENTS of {pool_count} pools is answered with pool {pool}")
            groups.append((pool, _TIERS[tier], keys))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Violation(f"the answer to EVENTS cannot be decoded: {error}") from None
    if kind > EVENTS_CHANGED or at != len(body):
        raise Violation(f"the answer to EVENTS has kind {kind} and {len(body)} bytes")
    return EventsAnswer(kind, position, at_ms, groups)
