"""Writes client-frames.json anew, from the layouts of src/clients/wire/PROTOCOL.md and from no codec:

    python3 test/data/write_client_frames.py > test/data/client-frames.json
    npx biome format --write test/data/client-frames.json

The frames are the contract between nodes and their clients: a change here means that the two no longer understand each other.
Kinds: request and answer are frames with a header; record and record-answer cross the socket of descriptors.
Tokens and pages are in hexadecimal. An answer's fields have what its request must be remembered for, in "request".
"""

from __future__ import annotations

import json
import sys
from struct import pack
from typing import Any

TYPES = {
    "HELLO": 1,
    "FILE": 2,
    "UNREGION": 3,
    "EXISTS": 4,
    "GET": 5,
    "SET": 6,
    "GET_BYTES": 7,
    "SET_BYTES": 8,
    "FENCE": 9,
    "CANCEL": 10,
    "DELETE": 11,
    "CLEAR": 12,
    "STATS": 13,
    "PING": 14,
    "STAT": 15,
    "PIN": 16,
    "UNPIN": 17,
    "EVENTS": 18,
    "FINGERPRINT": 19,
    "LOOKUPS": 20,
    "GET_STAGED": 21,
}
BOOT = bytes(range(0x10, 0x20))
ATTACH = bytes(range(0xA0, 0xB0))
frames: list[dict[str, Any]] = []


def text16(text: str) -> bytes:
    data = text.encode()
    return pack("<H", len(data)) + data


def opt16(text: str | None) -> bytes:
    return b"\0" if text is None else b"\1" + text16(text)


def keys(*names: str) -> bytes:
    data = [name.encode() for name in names]
    return pack("<I", len(data)) + b"".join(pack("<H", len(key)) for key in data) + b"".join(data)


def request(name: str, type_: str, body: bytes, fields: dict[str, Any], id_: int = 7, deadline_ms: int = 4500) -> None:
    header = pack("<IHHII", len(body), TYPES[type_], 0, id_, deadline_ms)
    frame = {"name": name, "kind": "request", "type": type_, "requestId": id_, "deadlineMs": deadline_ms}
    frames.append({**frame, "fields": fields, "hex": (header + body).hex()})


def answer(name: str, type_: str, body: bytes, fields: dict[str, Any], id_: int = 7, status: int = 0) -> None:
    header = pack("<IHHII", len(body), TYPES[type_], status, id_, 0)
    frame = {"name": name, "kind": "answer", "type": type_, "requestId": id_, "status": status}
    frames.append({**frame, "fields": fields, "hex": (header + body).hex()})


def record(name: str, type_: str, body: bytes, fields: dict[str, Any]) -> None:
    frames.append({"name": name, "kind": "record", "type": type_, "fields": fields, "hex": body.hex()})


def record_answer(name: str, type_: str, status: int, length: int) -> None:
    body = pack("<IIQ", status, 0, length)
    frame = {"name": name, "kind": "record-answer", "type": type_, "status": status}
    frames.append({**frame, "fields": {"length": length}, "hex": body.hex()})


# HELLO
hello = pack("<IHH", 0x4348434D, 1, 1)
fields: dict[str, Any] = {
    "oldestVersion": 1,
    "newestVersion": 1,
    "clientName": "engine-0",
    "processId": 4321,
    "isTold": True,
}
request(
    "hello without a namespace",
    "HELLO",
    hello + pack("<I", 0) + text16("engine-0") + pack("<I", 4321),
    {**fields, "isTold": False, "namespace": None},
    id_=1,
    deadline_ms=1000,
)
request(
    "hello with a namespace",
    "HELLO",
    hello + pack("<I", 5) + text16("engine-0") + pack("<I", 4321)
    # model, dtype, layout (absent), tag (empty, which is not absent)
    + opt16("Qwen/Qwen3-32B") + opt16("bfloat16") + opt16(None) + opt16("") + pack("<4I", 1, 4, 2, 3) + b"\0",
    {
        **fields,
        "namespace": {
            "model": "Qwen/Qwen3-32B",
            "dtype": "bfloat16",
            "layout": None,
            "tag": "",
            "tpRank": 1,
            "tpSize": 4,
            "ppRank": 2,
            "ppSize": 3,
            "isMla": False,
        },
    },
    id_=1,
    deadline_ms=1000,
)
request(
    "hello with a namespace of MLA",
    "HELLO",
    hello
    + pack("<I", 5)
    + text16("engine-0")
    + pack("<I", 4321)
    + opt16("modèle-é")
    + opt16(None)
    + opt16("page_first")
    + opt16(None)
    + pack("<4I", 0, 1, 0, 1)
    + b"\1",
    {
        **fields,
        "namespace": {
            "model": "modèle-é",
            "dtype": None,
            "layout": "page_first",
            "tag": None,
            "tpRank": 0,
            "tpSize": 1,
            "ppRank": 0,
            "ppSize": 1,
            "isMla": True,
        },
    },
    id_=1,
    deadline_ms=0,
)
request(
    "hello with a fingerprint",
    "HELLO",
    hello
    + pack("<I", 7)
    + text16("engine-0")
    + pack("<I", 4321)
    + opt16("llama")
    + opt16(None)
    + opt16(None)
    + opt16(None)
    + pack("<4I", 0, 1, 0, 1)
    + b"\0"
    + text16("sha256:5eed"),
    {
        **fields,
        "namespace": {
            "model": "llama",
            "dtype": None,
            "layout": None,
            "tag": None,
            "tpRank": 0,
            "tpSize": 1,
            "ppRank": 0,
            "ppSize": 1,
            "isMla": False,
            "fingerprint": "sha256:5eed",
        },
    },
    id_=1,
    deadline_ms=0,
)
answer(
    "hello is answered",
    "HELLO",
    pack("<HHI", 1, 0, 15)
    + BOOT
    + ATTACH
    + pack("<IIIIQQ", 77, 8192, 67108864, 256, 33554432, 1073741824)
    + text16("node-1")
    + text16("0.1.0"),
    {
        "version": 1,
        "capabilities": 15,
        "bootToken": BOOT.hex(),
        "attachToken": ATTACH.hex(),
        "processId": 77,
        "maxKeys": 8192,
        "maxBodyBytes": 67108864,
        "maxInFlight": 256,
        "maxPageBytes": 33554432,
        "maxStagingBytes": 1073741824,
        "nodeId": "node-1",
        "packageVersion": "0.1.0",
    },
    id_=1,
)
answer("hello is refused", "HELLO", b"version 1 only", {"message": "version 1 only"}, id_=1, status=6)

# FILE and UNREGION
request(
    "file, writable",
    "FILE",
    pack("<IIQII", 3, 1, 0x123456789A, 4321, 17),
    {"regionId": 3, "writable": True, "length": 0x123456789A, "processId": 4321, "descriptor": 17},
)
request(
    "file, for reading only",
    "FILE",
    pack("<IIQII", 4, 0, 4096, 4321, 18),
    {"regionId": 4, "writable": False, "length": 4096, "processId": 4321, "descriptor": 18},
)
answer("file is answered", "FILE", b"", {})
request("unregion", "UNREGION", pack("<I", 3), {"regionId": 3})
answer("unregion is answered", "UNREGION", b"", {})

# EXISTS
request(
    "exists, the prefix only",
    "EXISTS",
    text16("") + b"\0\0" + keys("a", "bc"),
    {"pool": "", "perKey": False, "suffixes": [], "keys": ["a", "bc"]},
)
request(
    "exists, a flag for each key, with suffixes",
    "EXISTS",
    text16("kv") + b"\1\2" + text16("-k") + text16("-v") + keys("a", "schlüssel", ""),
    {"pool": "kv", "perKey": True, "suffixes": ["-k", "-v"], "keys": ["a", "schlüssel", ""]},
)
request(
    "exists that the node does not count",
    "EXISTS",
    text16("mamba") + b"\3\0" + keys("a"),
    {"pool": "mamba", "perKey": True, "uncounted": True, "suffixes": [], "keys": ["a"]},
)
answer("exists is answered", "EXISTS", pack("<I", 2), {"request": {"keys": 2, "perKey": False}, "prefix": 2})
answer(
    "exists is answered for each key",
    "EXISTS",
    pack("<I", 1) + b"\1\0\1",
    {"request": {"keys": 3, "perKey": True}, "prefix": 1, "flags": [True, False, True]},
)

# GET and SET
pieces = [
    [{"offset": 0, "length": 4096, "regionId": 1}, {"offset": 0x1_0000_0000, "length": 512, "regionId": 2}],
    [{"offset": 4096, "length": 4096, "regionId": 1}, {"offset": 0x1_0000_0200, "length": 512, "regionId": 2}],
]
packed = b"".join(
    pack("<QII", piece["offset"], piece["length"], piece["regionId"]) for page in pieces for piece in page
)
request(
    "get, two pieces a page",
    "GET",
    text16("mamba") + b"\0\2" + keys("page-0", "page-1") + packed,
    {"pool": "mamba", "keys": ["page-0", "page-1"], "pages": pieces},
)
answer("get is answered", "GET", b"\1\0", {"request": {"keys": 2}, "results": [True, False]})
answer("get with a region that is not there", "GET", b"no region 9", {"message": "no region 9"}, status=2)
answer("get into a file that was cut short", "GET", b"region 1", {"message": "region 1"}, status=3)
request(
    "set of computed contents, from staging memory",
    "SET",
    text16("kv") + b"\0\1" + keys("page-0") + pack("<QII", 65536, 1048576, 0),
    {
        "pool": "kv",
        "named": False,
        "keys": ["page-0"],
        "pages": [[{"offset": 65536, "length": 1048576, "regionId": 0}]],
    },
)
request(
    "set of named contents",
    "SET",
    text16("kv") + b"\1\1" + keys("page-0") + pack("<QII", 1, 2, 3),
    {"pool": "kv", "named": True, "keys": ["page-0"], "pages": [[{"offset": 1, "length": 2, "regionId": 3}]]},
)
request(
    "get, the rest of a request of a conversation that is over",
    "GET",
    text16("kv") + bytes((2 << 1 | 8, 1)) + keys("page-0") + pack("<QII", 1, 2, 3),
    {
        "pool": "kv",
        "hint": 2,
        "continues": True,
        "keys": ["page-0"],
        "pages": [[{"offset": 1, "length": 2, "regionId": 3}]],
    },
)
request(
    "set of named contents that expire after a minute",
    "SET",
    text16("kv") + b"\x11" + pack("<Q", 60000) + b"\1" + keys("page-0") + pack("<QII", 1, 2, 3),
    {
        "pool": "kv",
        "named": True,
        "expiresInMs": 60000,
        "keys": ["page-0"],
        "pages": [[{"offset": 1, "length": 2, "regionId": 3}]],
    },
)
request(
    "set of named contents, with a hint of the caller's own",
    "SET",
    text16("kv") + bytes((1 | 3 << 1, 1)) + keys("page-0") + pack("<QII", 1, 2, 3),
    {
        "pool": "kv",
        "named": True,
        "hint": 3,
        "continues": False,
        "keys": ["page-0"],
        "pages": [[{"offset": 1, "length": 2, "regionId": 3}]],
    },
)
request(
    "set of pages that go last, and expire",
    "SET",
    text16("kv") + bytes((1 << 4 | 2 << 5,)) + pack("<Q", 60000) + b"\1" + keys("page-0") + pack("<QII", 1, 2, 3),
    {
        "pool": "kv",
        "named": False,
        "expiresInMs": 60000,
        "priority": "high",
        "keys": ["page-0"],
        "pages": [[{"offset": 1, "length": 2, "regionId": 3}]],
    },
)
answer("set is answered", "SET", b"\1\1\0", {"request": {"keys": 3}, "results": [True, True, False]})
answer("too much at once", "SET", b"256 in flight", {"message": "256 in flight"}, status=4)

# GET_BYTES and SET_BYTES
request("get bytes", "GET_BYTES", text16("kv") + b"\0" + keys("a", "b", "c"), {"pool": "kv", "keys": ["a", "b", "c"]})
answer(
    "get bytes is answered: a page, a miss, one that did not fit, an empty page",
    "GET_BYTES",
    pack("<4I", 3, 0xFFFFFFFF, 0xFFFFFFFE, 0) + b"\xde\xad\0",
    {"request": {"keys": 4}, "pages": ["dead00", "miss", "again", ""]},
)
request(
    "set bytes",
    "SET_BYTES",
    text16("kv") + b"\0" + keys("a", "b") + pack("<2I", 3, 1) + b"\xde\xad\0" + b"\x01",
    {"pool": "kv", "named": False, "keys": ["a", "b"], "pages": ["dead00", "01"]},
)
request(
    "set bytes, named",
    "SET_BYTES",
    text16("") + b"\1" + keys("a") + pack("<I", 1) + b"\xff",
    {"pool": "", "named": True, "keys": ["a"], "pages": ["ff"]},
)
request(
    "set bytes that expire after ten years",
    "SET_BYTES",
    text16("") + b"\x10" + pack("<Q", 315576000000) + keys("a") + pack("<I", 1) + b"\xff",
    {"pool": "", "named": False, "expiresInMs": 315576000000, "keys": ["a"], "pages": ["ff"]},
)
request(
    "set bytes that go first",
    "SET_BYTES",
    text16("") + b"\x21" + keys("a") + pack("<I", 1) + b"\xff",
    {"pool": "", "named": True, "priority": "low", "keys": ["a"], "pages": ["ff"]},
)
request(
    "get bytes of a conversation that goes on",
    "GET_BYTES",
    text16("kv") + bytes((1 << 1,)) + keys("a"),
    {"pool": "kv", "hint": 1, "continues": False, "keys": ["a"]},
)
request(
    "set bytes, the rest of a request",
    "SET_BYTES",
    text16("kv") + b"\10" + keys("a") + pack("<I", 1) + b"\xff",
    {"pool": "kv", "named": False, "hint": 0, "continues": True, "keys": ["a"], "pages": ["ff"]},
)
answer("set bytes is answered", "SET_BYTES", b"\1\0", {"request": {"keys": 2}, "results": [True, False]})

# FENCE and CANCEL
request("fence of one request", "FENCE", pack("<I", 6), {"of": 6})
request("fence of all requests", "FENCE", pack("<I", 0), {"of": 0}, id_=0xFFFFFFFF, deadline_ms=0xFFFFFFFF)
answer("fence is answered", "FENCE", b"", {})
request("cancel", "CANCEL", pack("<I", 6), {"of": 6}, deadline_ms=0)

# LOOKUPS
request("lookups", "LOOKUPS", pack("<QQ", 0x123456789A, 5), {"asked": 0x123456789A, "found": 5}, deadline_ms=0)

# DELETE, CLEAR, STATS, PING, STAT
request("delete", "DELETE", text16("kv") + keys("a", "b"), {"pool": "kv", "keys": ["a", "b"]})
answer("delete is answered", "DELETE", b"\1\0", {"request": {"keys": 2}, "results": [True, False]})
request("clear", "CLEAR", pack("<H", 0), {"pools": []})
request("clear of further pools", "CLEAR", pack("<H", 2) + text16("kv") + text16("draft"), {"pools": ["kv", "draft"]})
answer("clear is answered", "CLEAR", b"", {})
request("stats", "STATS", b"", {})
answer("stats is answered", "STATS", b'{"client":{"hits":3}}', {"json": {"client": {"hits": 3}}})
request("ping", "PING", b"", {})
answer("ping is answered", "PING", BOOT, {"bootToken": BOOT.hex()})
answer("the node is closing", "PING", b"closing", {"message": "closing"}, status=5)
request("stat", "STAT", text16("kv") + keys("a", "b"), {"pool": "kv", "keys": ["a", "b"]})
answer(
    "stat is answered",
    "STAT",
    b'[{"length":4096,"holders":[{"node_id":"node-1","tier":"memory"}]},null]',
    {"json": [{"length": 4096, "holders": [{"node_id": "node-1", "tier": "memory"}]}, None]},
)

# PIN, UNPIN
pinned = text16("kv") + pack("<I", 60_000) + keys("a", "bé")
request("pin", "PIN", pinned, {"pool": "kv", "forMs": 60_000, "keys": ["a", "bé"]})
answer("pin is answered", "PIN", b"\1\0", {"request": {"keys": 2}, "results": [True, False]})
request("unpin", "UNPIN", text16("") + keys("a"), {"pool": "", "keys": ["a"]})
answer("unpin is answered", "UNPIN", b"\1", {"request": {"keys": 1}, "results": [True]})

# FINGERPRINT
told = text16("vllm") + text16("step-1200")
request("fingerprint", "FINGERPRINT", told, {"client": "vllm", "fingerprint": "step-1200"})
request("fingerprint: none", "FINGERPRINT", text16("vllm") + text16(""), {"client": "vllm", "fingerprint": ""})
answer("fingerprint is answered", "FINGERPRINT", pack("<I", 2), {"clients": 2})
answer("a client is told its fingerprint", "FINGERPRINT", text16("step-1200"), {"fingerprint": "step-1200"}, id_=0)
answer("a client is told that it has no fingerprint", "FINGERPRINT", text16(""), {"fingerprint": ""}, id_=0)

# EVENTS
request("events, a list first", "EVENTS", text16("") + pack("<H", 1) + text16(""), {"position": "", "pools": [""]})
request(
    "events after a position, of two pools",
    "EVENTS",
    text16("k3x-12") + pack("<H", 2) + text16("kv") + text16("mamba"),
    {"position": "k3x-12", "pools": ["kv", "mamba"]},
)
for number, kind, position in ((0, "nothing", "k3x-12"), (1, "reset", "list.1"), (3, "complete", "k3x-12")):
    answer(
        f"events: {kind}",
        "EVENTS",
        bytes((number,)) + text16(position) + pack("<QH", 0, 0),
        {"request": {"pools": 2}, "kind": kind, "position": position, "atMs": 0, "groups": []},
    )
answer(
    "events: pages of a list",
    "EVENTS",
    b"\2" + text16("list.2") + pack("<QH", 0, 1) + pack("<HB", 0, 2) + keys("", "schlüssel"),
    {
        "request": {"pools": 1},
        "kind": "listed",
        "position": "list.2",
        "atMs": 0,
        "groups": [{"pool": 0, "tier": "disk", "keys": ["", "schlüssel"]}],
    },
)
answer(
    "events: pages have changed",
    "EVENTS",
    b"\4"
    + text16("k3x-13")
    + pack("<QH", 1_790_000_000_123, 2)
    + pack("<HB", 1, 0)
    + keys("gone")
    + pack("<HB", 0, 1)
    + keys("a", "b"),
    {
        "request": {"pools": 2},
        "kind": "changed",
        "position": "k3x-13",
        "atMs": 1_790_000_000_123,
        "groups": [{"pool": 1, "tier": None, "keys": ["gone"]}, {"pool": 0, "tier": "memory", "keys": ["a", "b"]}],
    },
)

# GET_STAGED
staged = text16("kv") + bytes((2 << 1 | 8,)) + pack("<QI", 1 << 20, 65_536) + keys("a", "bé", "")
request(
    "get staged",
    "GET_STAGED",
    staged,
    {"pool": "kv", "hint": 2, "continues": True, "offset": 1 << 20, "room": 65_536, "keys": ["a", "bé", ""]},
)
answer(
    "get staged is answered: a page, a miss, one without room",
    "GET_STAGED",
    pack("<6I", 128, 4096, 0xFFFFFFFF, 0, 0xFFFFFFFE, 1 << 20),
    {"request": {"keys": 3}, "pages": [[128, 4096], "miss", ["again", 1 << 20]]},
)
answer("not available here", "FILE", b"FILE", {"message": "FILE"}, status=7)
answer("the node has failed", "STAT", "défaut".encode(), {"message": "défaut"}, status=8)
answer("a header that cannot be right", "GET", b"body of 4 GiB", {"message": "body of 4 GiB"}, id_=0, status=1)

# The socket of descriptors
head = pack("<IHH", 0x4446434D, 1, 1) + ATTACH
record(
    "region, writable",
    "REGION",
    head + pack("<IIQQ", 3, 1, 0x123456789A, 0),
    {"attachToken": ATTACH.hex(), "regionId": 3, "writable": True, "length": 0x123456789A},
)
record(
    "region, for reading only",
    "REGION",
    head + pack("<IIQQ", 4, 0, 4096, 0),
    {"attachToken": ATTACH.hex(), "regionId": 4, "writable": False, "length": 4096},
)
record(
    "staging",
    "STAGING",
    pack("<IHH", 0x4446434D, 1, 2) + ATTACH + pack("<IIQQ", 0, 0, 67108864, 0),
    {"attachToken": ATTACH.hex(), "length": 67108864},
)
record_answer("region is answered", "REGION", 0, 0x123456789A)
record_answer("region is refused", "REGION", 1, 0)
record_answer("staging is answered, with less than was wanted", "STAGING", 0, 33554432)

json.dump(frames, sys.stdout, indent=1, ensure_ascii=False)
print()
