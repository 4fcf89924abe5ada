"""A node's side of the client socket for tests that inject faults: `python3 fake_node.py PATH [OPTIONS as JSON]`.

It keeps pages in a dictionary. The first key of a request says what goes wrong with it: see `Peer.misbehave`.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

NAMES = (
    "HELLO FILE UNREGION EXISTS GET SET GET_BYTES SET_BYTES FENCE CANCEL DELETE CLEAR STATS PING STAT PIN UNPIN EVENTS"
    " FINGERPRINT LOOKUPS GET_STAGED TELL PREFETCH END_PINS"
)
#: The name of each type of request by its number.
TYPES = dict(enumerate(NAMES.split(), 1))
HEADER = struct.Struct("<IHHII")
MAX_PIN_MS = 600_000
OPTIONS: dict[str, Any] = {
    "capabilities": 3,
    # STATS has what the requests for pages told.
    "shows_told": False,
    # STATS has the pages that were looked up, and found.
    "shows_lookups": False,
    "max_keys": 8192,
    "max_body_bytes": 1 << 26,
    "max_in_flight": 256,
    "max_page_bytes": 1 << 25,
    "max_staging_bytes": 1 << 26,
    "seal_staging": True,
    "boot_token": None,
    "process_id": None,
}


class Reader:
    """Takes values off the front of a body."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("the body is too short")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text16(self) -> str:
        return self.take(self.number(2)).decode()

    def opt16(self) -> str | None:
        return self.text16() if self.number(1) else None

    def keys(self) -> list[str]:
        lengths = [0] * self.number(4)
        lengths = [self.number(2) for _ in lengths]
        return [self.take(length).decode() for length in lengths]

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)


def decode_request(type_: str, body: bytes) -> dict[str, Any]:
    """The fields of a request, named as in client-frames.json. Raises ValueError when the body is anything else."""
    reader = Reader(body)
    fields = DECODERS[type_](reader)
    if reader.at != len(body):
        raise ValueError(f"{type_} has {len(body) - reader.at} bytes too many")
    return fields


def _hello(reader: Reader) -> dict[str, Any]:
    if reader.number(4) != 0x4348434D:
        raise ValueError("wrong magic")
    fields: dict[str, Any] = {"oldestVersion": reader.number(2), "newestVersion": reader.number(2)}
    flags = reader.number(4)
    fields |= {
        "clientName": reader.text16(),
        "processId": reader.number(4),
        "isTold": flags & 4 != 0,
        **({"comparesClocks": True} if flags & 8 else {}),
        "namespace": None,
    }
    if flags & 1:
        namespace: dict[str, Any] = {name: reader.opt16() for name in ("model", "dtype", "layout", "tag")}
        namespace |= {name: reader.number(4) for name in ("tpRank", "tpSize", "ppRank", "ppSize")}
        fields["namespace"] = namespace | {"isMla": reader.number(1) == 1}
        if flags & 2:
            fields["namespace"]["fingerprint"] = reader.text16()
    return fields


def _file(reader: Reader) -> dict[str, Any]:
    fields = {"regionId": reader.number(4), "writable": reader.number(4) == 1, "length": reader.number(8)}
    return fields | {"processId": reader.number(4), "descriptor": reader.number(4)}


def _exists(reader: Reader) -> dict[str, Any]:
    pool, flags = reader.text16(), reader.number(1)
    suffixes = [reader.text16() for _ in range(reader.number(1))]
    if flags > 3:
        raise ValueError(f"flags of {flags}")
    uncounted = {"uncounted": True} if flags & 2 else {}
    return {"pool": pool, "perKey": flags & 1 == 1, **uncounted, "suffixes": suffixes, "keys": reader.keys()}


def _told(reader: Reader, flags: int, is_set: bool) -> dict[str, Any]:
    """What the flags, and what follows them, tell beside `named`; nothing when the client tells nothing."""
    if flags > 95 or flags & 113 and not is_set:
        raise ValueError(f"flags of {flags}")
    told = {} if flags & 14 == 0 else {"hint": flags >> 1 & 3, "continues": flags & 8 != 0}
    told |= {"priority": ("low", "high")[(flags >> 5) - 1]} if flags >> 5 else {}
    return told | ({"expiresInMs": reader.number(8)} if flags & 16 else {})


def _transfer(reader: Reader, is_set: bool) -> dict[str, Any]:
    pool, flags = reader.text16(), reader.number(1)
    told = _told(reader, flags, is_set)
    pieces = reader.number(1)
    keys = reader.keys()
    pages = [
        [{"offset": reader.number(8), "length": reader.number(4), "regionId": reader.number(4)} for _ in range(pieces)]
        for _ in keys
    ]
    return {"pool": pool, **({"named": flags & 1 == 1} if is_set else {}), **told, "keys": keys, "pages": pages}


def _get_bytes(reader: Reader) -> dict[str, Any]:
    pool, flags = reader.text16(), reader.number(1)
    return {"pool": pool, **_told(reader, flags, False), "keys": reader.keys()}


def _get_staged(reader: Reader) -> dict[str, Any]:
    pool, flags = reader.text16(), reader.number(1)
    fields = {"pool": pool, **_told(reader, flags, False), "offset": reader.number(8), "room": reader.number(4)}
    return fields | {"keys": reader.keys()}


def _set_bytes(reader: Reader) -> dict[str, Any]:
    pool, flags = reader.text16(), reader.number(1)
    told, keys = _told(reader, flags, True), reader.keys()
    lengths = [reader.number(4) for _ in keys]
    fields = {"pool": pool, "named": flags & 1 == 1, **told, "keys": keys}
    return fields | {"pages": [reader.take(length).hex() for length in lengths]}


def _pin(reader: Reader) -> dict[str, Any]:
    pool, milliseconds = reader.text16(), reader.number(4)
    how = {"forMs": milliseconds} if milliseconds > 0 else {"name": reader.text16()}
    return {"pool": pool, **how, "keys": reader.keys()}


def _tell(reader: Reader) -> dict[str, Any]:
    pool, session, flags = reader.text16(), reader.text16(), reader.number(1)
    waiting, shared = reader.number(4), reader.number(4)
    told = {"waitingMs": waiting} if flags & 1 else {}
    more = {"branched": bool(flags & 2), "ended": bool(flags & 4), "shared": shared, "keys": reader.keys()}
    return {"pool": pool, "session": session, **told, **more}


DECODERS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "HELLO": _hello,
    "FILE": _file,
    "UNREGION": lambda reader: {"regionId": reader.number(4)},
    "EXISTS": _exists,
    "GET": lambda reader: _transfer(reader, False),
    "SET": lambda reader: _transfer(reader, True),
    "GET_BYTES": _get_bytes,
    "GET_STAGED": _get_staged,
    "SET_BYTES": _set_bytes,
    "FENCE": lambda reader: {"of": reader.number(4)},
    "CANCEL": lambda reader: {"of": reader.number(4)},
    "LOOKUPS": lambda reader: {"asked": reader.number(8), "found": reader.number(8)},
    "DELETE": lambda reader: {"pool": reader.text16(), "keys": reader.keys()},
    "CLEAR": lambda reader: {"pools": [reader.text16() for _ in range(reader.number(2))]},
    "STATS": lambda reader: {},
    "PING": lambda reader: {},
    "STAT": lambda reader: {"pool": reader.text16(), "keys": reader.keys()},
    "PIN": _pin,
    "END_PINS": lambda reader: {"name": reader.text16()},
    "UNPIN": lambda reader: {"pool": reader.text16(), "keys": reader.keys()},
    "PREFETCH": lambda reader: {"pool": reader.text16(), "inMs": reader.number(4), "keys": reader.keys()},
    "TELL": _tell,
    "EVENTS": lambda reader: {
        "position": reader.text16(),
        "pools": [reader.text16() for _ in range(reader.number(2))],
    },
    "FINGERPRINT": lambda reader: {"client": reader.text16(), "fingerprint": reader.text16()},
}


def encode_text16(text: str) -> bytes:
    return struct.pack("<H", len(text.encode())) + text.encode()


class Peer:
    """One connection of a client."""

    def __init__(self, node: FakeNode, sock: socket.socket, token: bytes) -> None:
        self.node = node
        self.sock = sock
        self.token = token
        self.regions: dict[int, mmap.mmap] = {}
        self.staging: int | None = None
        #: Requests that are held: by id, what their end does.
        self.said_absent: set[str] = set()
        self.held: dict[int, Callable[[], None]] = {}
        #: Keys, hint and whether it continues, of each request for pages.
        self.told: list[tuple[int, int, bool]] = []
        #: The expiry of each request that sets pages.
        self.expiries: list[int | None] = []
        self.priorities: list[str | None] = []
        self.ignores_cancel = False
        self.lock = threading.Lock()
        #: What was told of sessions.
        self.sessions: list[dict[str, Any]] = []
        #: Pinned pages, by pool and key, and the milliseconds of each.
        self.pins: dict[tuple[str, str], int] = {}

    def answer(self, type_: int, request_id: int, body: bytes = b"", status: int = 0) -> None:
        with self.lock:
            self.sock.sendall(HEADER.pack(len(body), type_, status, request_id, 0) + body)

    def receive(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def run(self) -> None:
        try:
            while (header := self.receive(16)) is not None:
                length, type_, status, request_id, _ = HEADER.unpack(header)
                body = self.receive(length)
                if body is None:
                    break
                if status != 0 or request_id == 0:
                    raise ValueError("wrong header")
                self.serve(type_, request_id, decode_request(TYPES[type_], body))
        except OSError:
            pass
        finally:
            self.node.peers.pop(self.token, None)
            self.sock.close()

    def serve(self, type_: int, request_id: int, fields: dict[str, Any]) -> None:
        name = TYPES[type_]
        if name == "CANCEL":
            end = self.held.pop(fields["of"], None)
            if end is not None and not self.ignores_cancel:
                end()
            return
        if name == "LOOKUPS":
            self.count_lookup(fields["asked"], fields["found"])
            return
        keys = fields.get("keys") or [""]
        if self.misbehave(keys[0], type_, request_id, fields):
            return
        self.finish(type_, request_id, fields)

    def finish(self, type_: int, request_id: int, fields: dict[str, Any]) -> None:
        if TYPES[type_] in ("GET", "SET", "GET_BYTES", "SET_BYTES", "GET_STAGED"):
            self.told.append((len(fields["keys"]), fields.get("hint", 0), fields.get("continues", False)))
        if TYPES[type_] in ("SET", "SET_BYTES"):
            self.expiries.append(fields.get("expiresInMs"))
            self.priorities.append(fields.get("priority"))
        body = getattr(self, TYPES[type_].lower())(fields)
        if isinstance(body, int):
            self.answer(type_, request_id, b"refused", body)
        else:
            self.answer(type_, request_id, body)

    def misbehave(self, key: str, type_: int, request_id: int, fields: dict[str, Any]) -> bool:
        """True: the request is not to be served as it should."""
        fault, _, argument = key.partition("=")
        if fault == "hold":
            # Answered when it is cancelled: with misses.
            self.held[request_id] = lambda: self.answer(type_, request_id, bytes(len(fields["keys"])))
        elif fault == "freeze":
            # Stopped as by SIGSTOP, with the request under way.
            # To this thread, so that it goes no further before the process has stopped.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return False
        elif fault == "late-write":
            # Writes for so many milliseconds, whatever is cancelled meanwhile, then answers.
            self.held[request_id] = lambda: None
            threading.Thread(
                target=self.write_late, args=(type_, request_id, fields, int(argument)), daemon=True
            ).start()
        elif fault == "write-then-die":
            threading.Thread(
                target=self.write_late, args=(type_, request_id, fields, int(argument), True), daemon=True
            ).start()
        elif fault == "close":
            self.sock.shutdown(socket.SHUT_RDWR)
        elif fault == "close-and-write":
            # The connection ends first, what was under way a moment later.
            self.node.ending = threading.Event()
            threading.Thread(
                target=self.write_late, args=(type_, request_id, fields, int(argument)), daemon=True
            ).start()
            self.sock.shutdown(socket.SHUT_RDWR)
        elif fault == "raw":
            self.sock.sendall(bytes.fromhex(argument))
        elif fault == "raw-and-close":
            self.sock.sendall(bytes.fromhex(argument))
            self.sock.shutdown(socket.SHUT_RDWR)
        elif fault == "status":
            self.answer(type_, request_id, "nö".encode(), int(argument))
        elif fault == "absent":
            # The memory is not there at first.
            if TYPES[type_] not in ("GET", "SET") or TYPES[type_] in self.said_absent:
                return False
            self.said_absent.add(TYPES[type_])
            self.answer(type_, request_id, b"not there", 9)
        elif fault == "body":
            self.answer(type_, request_id, bytes.fromhex(argument))
        elif fault == "half":
            self.sock.sendall(HEADER.pack(1, type_, 0, request_id, 0)[:9])
        elif fault == "deaf":
            # Takes nothing more off the socket.
            threading.Event().wait()
        else:
            return False
        return True

    def write_late(
        self, type_: int, request_id: int, fields: dict[str, Any], milliseconds: int, dies: bool = False
    ) -> None:
        until = time.monotonic() + milliseconds / 1000
        count = 0
        while time.monotonic() < until:
            count = count % 255 + 1
            for page in fields["pages"]:
                for piece in page:
                    region = self.regions[piece["regionId"]]
                    region[piece["offset"] : piece["offset"] + piece["length"]] = bytes((count,)) * piece["length"]
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.node.ending is not None:
            self.node.ending.set()
        try:
            self.answer(type_, request_id, bytes(len(fields["keys"])))
        except OSError:
            pass

    def memory(self, region_id: int) -> mmap.mmap:
        if region_id == 0 and 0 not in self.regions and self.staging is not None:
            self.regions[0] = mmap.mmap(self.staging, 0)
        return self.regions[region_id]

    def hello(self, fields: dict[str, Any]) -> bytes | int:
        if self.node.options.get("refuse_hello"):
            return 6
        # As PROTOCOL.md has it: not before the requests of the earlier connection have ended.
        if self.node.ending is not None:
            self.node.ending.wait()
        options = self.node.options
        process_id = options["process_id"] or os.getpid()
        fixed = struct.pack("<HHI", 1, 0, options["capabilities"]) + self.node.boot_token + self.token
        limits = ("max_keys", "max_body_bytes", "max_in_flight", "max_page_bytes", "max_staging_bytes")
        fixed += struct.pack("<IIIIQQ", process_id, *(options[limit] for limit in limits))
        return fixed + encode_text16("fake-node") + encode_text16("0.0.0")

    def file(self, fields: dict[str, Any]) -> bytes | int:
        path = f"/proc/{fields['processId']}/fd/{fields['descriptor']}"
        descriptor = os.open(path, os.O_RDWR if fields["writable"] else os.O_RDONLY)
        self.add_region(fields["regionId"], descriptor, fields["length"], fields["writable"])
        return b""

    def add_region(self, region_id: int, descriptor: int, length: int, writable: bool) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.regions[region_id] = mmap.mmap(descriptor, length, prot=protection)
        os.close(descriptor)

    def pin(self, fields: dict[str, Any]) -> bytes | int:
        if fields.get("forMs", 0) > MAX_PIN_MS:
            return 1
        wanted = [(fields["pool"], key) for key in fields["keys"]]
        here = [page for page in wanted if page in self.node.pages]
        if "name" in fields:
            self.node.names.setdefault(fields["name"], set()).update(here)
        else:
            self.pins.update((page, fields["forMs"]) for page in here)
        return bytes(page in self.node.pages for page in wanted)

    def unpin(self, fields: dict[str, Any]) -> bytes | int:
        return bytes(self.pins.pop((fields["pool"], key), None) is not None for key in fields["keys"])

    def end_pins(self, fields: dict[str, Any]) -> bytes | int:
        return len(self.node.names.pop(fields["name"], ())).to_bytes(4, "little")

    def prefetch(self, fields: dict[str, Any]) -> bytes | int:
        if fields["inMs"] > 10_000:
            return bytes(len(fields["keys"]))
        return bytes((fields["pool"], key) in self.node.pages for key in fields["keys"])

    def tell(self, fields: dict[str, Any]) -> bytes | int:
        self.sessions.append(fields)
        return b""

    def unregion(self, fields: dict[str, Any]) -> bytes | int:
        return b"" if self.regions.pop(fields["regionId"], None) is not None else 2

    def exists(self, fields: dict[str, Any]) -> bytes | int:
        suffixes = fields["suffixes"] or [""]
        flags = [
            all((fields["pool"], key + suffix) in self.node.pages for suffix in suffixes) for key in fields["keys"]
        ]
        prefix = ([*flags, False]).index(False)
        if not fields.get("uncounted"):
            self.count_lookup(len(flags), prefix)
        return struct.pack("<I", prefix) + (bytes(flags) if fields["perKey"] else b"")

    def get(self, fields: dict[str, Any]) -> bytes | int:
        flags = []
        for key, pieces in zip(fields["keys"], fields["pages"]):
            page = self.node.pages.get((fields["pool"], key), b"")
            flags.append(len(page) > 0 and len(page) == sum(piece["length"] for piece in pieces))
            at = 0
            for piece in pieces if flags[-1] else []:
                if piece["regionId"] not in self.regions and piece["regionId"] != 0:
                    return 2
                part = page[at : at + piece["length"]]
                self.memory(piece["regionId"])[piece["offset"] : piece["offset"] + piece["length"]] = part
                at += piece["length"]
        return bytes(flags)

    def set(self, fields: dict[str, Any]) -> bytes | int:
        for key, pieces in zip(fields["keys"], fields["pages"]):
            parts = [self.memory(p["regionId"])[p["offset"] : p["offset"] + p["length"]] for p in pieces]
            self.node.pages[fields["pool"], key] = b"".join(parts)
        return b"\1" * len(fields["keys"])

    def get_bytes(self, fields: dict[str, Any]) -> bytes | int:
        lengths, pages = [], []
        room = self.node.options["max_body_bytes"] - 4 * len(fields["keys"])
        for key in fields["keys"]:
            page = self.node.pages.get((fields["pool"], key))
            if page is None:
                lengths.append(0xFFFFFFFF)
            elif len(page) > room:
                lengths.append(0xFFFFFFFE)
            else:
                room -= len(page)
                lengths.append(len(page))
                pages.append(page)
        return struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(pages)

    def get_staged(self, fields: dict[str, Any]) -> bytes | int:
        places: list[int] = []
        used = 0
        for key in fields["keys"]:
            page = self.node.pages.get((fields["pool"], key))
            if page is None:
                places += (0xFFFFFFFF, 0)
            elif used + len(page) > fields["room"]:
                places += (0xFFFFFFFE, len(page))
            else:
                at = fields["offset"] + used
                self.memory(0)[at : at + len(page)] = page
                places += (used, len(page))
                used += len(page)
        return struct.pack(f"<{len(places)}I", *places)

    def set_bytes(self, fields: dict[str, Any]) -> bytes | int:
        if "" in fields["pages"]:
            return 1
        for key, page in zip(fields["keys"], fields["pages"]):
            self.node.pages[fields["pool"], key] = bytes.fromhex(page)
        return b"\1" * len(fields["keys"])

    def count_lookup(self, asked: int, found: int) -> None:
        lookups = self.node.lookups
        self.node.lookups = (lookups[0] + asked, lookups[1] + found)

    def fence(self, fields: dict[str, Any]) -> bytes | int:
        return b""

    def delete(self, fields: dict[str, Any]) -> bytes | int:
        for key in fields["keys"]:
            self.node.pages.pop((fields["pool"], key), None)
        return b"\1" * len(fields["keys"])

    def clear(self, fields: dict[str, Any]) -> bytes | int:
        self.node.pages.clear()
        return b""

    def stats(self, fields: dict[str, Any]) -> bytes | int:
        shown = {
            "told": self.told,
            "expiries": self.expiries,
            "priorities": self.priorities,
            "sessions": self.sessions,
        }
        told = shown if self.node.options["shows_told"] else {}
        lookups = {"lookups": self.node.lookups} if self.node.options["shows_lookups"] else {}
        return json.dumps({"pages": len(self.node.pages), **told, **lookups}).encode()

    def ping(self, fields: dict[str, Any]) -> bytes | int:
        return self.node.boot_token

    def stat(self, fields: dict[str, Any]) -> bytes | int:
        found = [self.node.pages.get((fields["pool"], key)) for key in fields["keys"]]
        holders = [{"node_id": "fake-node", "tier": "memory"}]
        entries = [None if page is None else {"length": len(page), "holders": holders} for page in found]
        return json.dumps(entries).encode()

    def events(self, fields: dict[str, Any]) -> bytes | int:
        """A list in two parts, and then no change."""
        kind, position = {"": (1, "list.1"), "list.1": (2, "list.2"), "list.2": (3, "fake-1")}.get(
            fields["position"], (0, fields["position"])
        )
        groups = b""
        if kind == 2:
            for index, pool in enumerate(fields["pools"]):
                keys = [key.encode() for of, key in self.node.pages if of == pool]
                lengths = struct.pack(f"<HBI{len(keys)}H", index, 1, len(keys), *map(len, keys))
                groups += lengths + b"".join(keys)
        count = len(fields["pools"]) if kind == 2 else 0
        return bytes((kind,)) + encode_text16(position) + struct.pack("<QH", 0, count) + groups


class FakeNode:
    """Listens at a path and at the socket of descriptors."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.options = OPTIONS | options
        token = self.options["boot_token"]
        self.boot_token = os.urandom(16) if token is None else bytes.fromhex(token)
        self.pages: dict[tuple[str, str], bytes] = {}
        self.lookups = (0, 0)
        #: Pages that are pinned by name.
        self.names: dict[str, set[tuple[str, str]]] = {}
        self.peers: dict[bytes, Peer] = {}
        self.ending: threading.Event | None = None
        # Whoever can attach finds the socket of descriptors, too.
        self.listeners = [self._listen(f"{path}.fds", self._take_descriptor), self._listen(path, self._serve)]

    def _listen(self, path: str, serve: Callable[[socket.socket], None]) -> socket.socket:
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(64)

        def accept() -> None:
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return listener

    def _serve(self, sock: socket.socket) -> None:
        peer = Peer(self, sock, os.urandom(16))
        self.peers[peer.token] = peer
        peer.run()

    def _take_descriptor(self, sock: socket.socket) -> None:
        record, descriptors, _, _ = socket.recv_fds(sock, 48, 2)
        magic, version, kind, token, region_id, flags, length, zero = struct.unpack("<IHH16sIIQQ", record)
        peer = self.peers.get(token)
        if (magic, version, zero) != (0x4446434D, 1, 0) or peer is None:
            sock.sendall(struct.pack("<IIQ", 1, 0, 0))
        elif kind == 1:
            peer.add_region(region_id, descriptors[0], length, flags == 1)
            sock.sendall(struct.pack("<IIQ", 0, 0, length))
        else:
            length = min(length, self.options["max_staging_bytes"])
            peer.staging = os.memfd_create("staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(peer.staging, length)
            if self.options["seal_staging"]:
                fcntl.fcntl(peer.staging, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            socket.send_fds(sock, [struct.pack("<IIQ", 0, 0, length)], [peer.staging])
        sock.close()


def main() -> None:
    FakeNode(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    print("ready", flush=True)
    # Ends with the test that has started it.
    sys.stdin.read()


if __name__ == "__main__":
    main()
