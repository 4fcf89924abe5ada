"""The bytes of the client socket, against the golden frames that all languages share."""

from __future__ import annotations

import json
import unittest
from typing import Any

from support import ROOT
from fake_node import TYPES, decode_request
from meshcache import Namespace
from meshcache._wire import protocol
from meshcache.arguments import priority_number

FRAMES: list[dict[str, Any]] = json.loads((ROOT / "test/data/client-frames.json").read_text())


def namespace_of(fields: dict[str, Any] | None) -> Namespace | None:
    if fields is None:
        return None
    ranks = (fields["tpRank"], fields["tpSize"], fields["ppRank"], fields["ppSize"])
    texts = (fields["model"], fields["dtype"], fields["layout"], fields["tag"])
    return Namespace(*texts, *ranks, fields["isMla"], fingerprint=fields.get("fingerprint"))


def flat_pieces(pages: list[list[dict[str, int]]]) -> list[int]:
    flat = []
    for page in pages:
        for piece in page:
            flat += [piece["offset"], piece["length"] | piece["regionId"] << 32]
    return flat


def encode(type_: str, fields: dict[str, Any]) -> bytes:
    """The body of a request, by the codec of the client."""
    keys = protocol.encode_keys(fields.get("keys", []))
    pool = fields.get("pool", "")
    told = (fields.get(name, False) for name in ("named", "hint", "continues"))
    priority = priority_number(fields.get("priority", "normal"))
    flags = protocol.flags_of(*told, fields.get("expiresInMs"), priority)
    match type_:
        case "HELLO":
            compares = fields.get("comparesClocks", False)
            namespace = namespace_of(fields["namespace"])
            return protocol.hello_body(fields["clientName"], fields["processId"], namespace, compares)
        case "FILE":
            return protocol.file_body(
                *(fields[n] for n in ("regionId", "writable", "length", "processId", "descriptor"))
            )
        case "UNREGION":
            return protocol.number_body(fields["regionId"])
        case "EXISTS":
            uncounted = fields.get("uncounted", False)
            return protocol.exists_head(pool, tuple(fields["suffixes"]), fields["perKey"], uncounted) + keys
        case "GET" | "SET":
            head = protocol.transfer_head(pool, flags, len(fields["pages"][0]))
            return head + keys + protocol.encode_pieces(flat_pieces(fields["pages"]))
        case "GET_BYTES":
            return protocol.bytes_head(pool, flags) + keys
        case "GET_STAGED":
            return protocol.staged_head(pool, flags, fields["offset"], fields["room"]) + keys
        case "SET_BYTES":
            pages = [bytes.fromhex(page) for page in fields["pages"]]
            lengths = protocol.encode_lengths([len(page) for page in pages])
            return protocol.bytes_head(pool, flags) + keys + lengths + b"".join(pages)
        case "FENCE" | "CANCEL":
            return protocol.number_body(fields["of"])
        case "LOOKUPS":
            return protocol.lookups_body(fields["asked"], fields["found"])
        case "PIN":
            return protocol.pin_head(pool, fields.get("forMs", 0), fields.get("name")) + keys
        case "END_PINS":
            return protocol.text16(fields["name"])
        case "DELETE" | "STAT" | "UNPIN":
            return protocol.text16(pool) + keys
        case "PREFETCH":
            return protocol.prefetch_head(pool, fields["inMs"]) + keys
        case "TELL":
            told = (fields["branched"], fields["ended"], fields["shared"])
            return protocol.tell_head(pool, fields["session"], fields.get("waitingMs"), *told) + keys
        case "CLEAR":
            return protocol.clear_body(fields["pools"])
        case "STATS" | "PING":
            return b""
        case "FINGERPRINT":
            return protocol.fingerprint_body(fields["client"], fields["fingerprint"])
        case "EVENTS":
            return protocol.events_body(fields["position"], fields["pools"])
    raise AssertionError(type_)


def decode(type_: str, body: bytes, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an answer, by the codec of the client."""
    request = fields.get("request", {})
    match type_:
        case "HELLO":
            hello = protocol.decode_hello(body)
            return {
                "version": hello.version,
                "capabilities": hello.capabilities,
                "bootToken": hello.boot_token.hex(),
                "attachToken": hello.attach_token.hex(),
                "processId": hello.process_id,
                "maxKeys": hello.max_keys,
                "maxBodyBytes": hello.max_body_bytes,
                "maxInFlight": hello.max_in_flight,
                "maxPageBytes": hello.max_page_bytes,
                "maxStagingBytes": hello.max_staging_bytes,
                "nodeId": hello.node_id,
                "packageVersion": hello.package_version,
                **({} if hello.instant is None else {"instantUs": round(hello.instant * 1e6)}),
            }
        case "EXISTS":
            prefix, flags = protocol.decode_exists(body, request["keys"], request["perKey"])
            return {"request": request, "prefix": prefix, **({"flags": flags} if request["perKey"] else {})}
        case "GET" | "SET" | "SET_BYTES" | "DELETE" | "PIN" | "UNPIN" | "PREFETCH":
            return {"request": request, "results": protocol.decode_flags(body, request["keys"])}
        case "GET_BYTES":
            pages: list[str] = []
            names = {protocol.MISS: "miss", protocol.ASK_AGAIN: "again"}
            protocol.decode_pages(
                body, request["keys"], lambda index, length, page: pages.append(names.get(length, page.hex()))
            )
            return {"request": request, "pages": pages}
        case "GET_STAGED":
            places = protocol.decode_places(body, request["keys"], 1 << 16)
            shown = ["miss" if at == protocol.MISS else [at, length] for at, length in places]
            again = [
                ["again", length] if at == protocol.ASK_AGAIN else shown[i] for i, (at, length) in enumerate(places)
            ]
            return {"request": request, "pages": again}
        case "END_PINS":
            return {"pages": int.from_bytes(body, "little")}
        case "PING":
            return {"bootToken": body.hex()}
        case "FINGERPRINT" if "clients" in fields:
            return {"clients": int.from_bytes(body, "little")}
        case "FINGERPRINT":
            return {"fingerprint": protocol.decode_fingerprint_notice(body) or ""}
        case "STATS" | "STAT":
            return {"json": json.loads(body)}
        case "EVENTS":
            events = protocol.decode_events(body, request["pools"])
            return {
                "request": request,
                "kind": ("nothing", "reset", "listed", "complete", "changed")[events.kind],
                "position": events.position,
                "atMs": events.at_ms,
                "groups": [{"pool": pool, "tier": tier, "keys": keys} for pool, tier, keys in events.groups],
            }
    assert body == b""
    return {}


class GoldenFrames(unittest.TestCase):
    def test_every_type_has_frames(self) -> None:
        for kind, names in (("request", set(TYPES.values())), ("answer", set(TYPES.values()) - {"CANCEL", "LOOKUPS"})):
            self.assertEqual({frame["type"] for frame in FRAMES if frame["kind"] == kind}, names)
        for kind in ("record", "record-answer"):
            self.assertEqual({frame["type"] for frame in FRAMES if frame["kind"] == kind}, {"REGION", "STAGING"})

    def test_requests_are_encoded(self) -> None:
        for frame in (frame for frame in FRAMES if frame["kind"] == "request"):
            with self.subTest(frame["name"]):
                number = getattr(protocol, frame["type"])
                body = encode(frame["type"], frame["fields"])
                asked = frame["askedUs"] / 1e6 if "askedUs" in frame else None
                encoded = protocol.frame(number, frame["requestId"], frame["deadlineMs"], body, asked=asked)
                self.assertEqual(encoded.hex(), frame["hex"])

    def test_requests_are_decoded_by_the_fake_node(self) -> None:
        for frame in (frame for frame in FRAMES if frame["kind"] == "request"):
            with self.subTest(frame["name"]):
                data = bytes.fromhex(frame["hex"])
                length, type_, status, request_id, deadline_ms = protocol.HEADER.unpack_from(data)
                self.assertEqual((length, status), (len(data) - 16, int("askedUs" in frame)))
                body = data[24:] if "askedUs" in frame else data[16:]
                self.assertEqual((TYPES[type_], request_id), (frame["type"], frame["requestId"]))
                self.assertEqual(deadline_ms, frame["deadlineMs"])
                self.assertEqual(decode_request(frame["type"], body), frame["fields"])

    def test_answers_are_decoded(self) -> None:
        for frame in (frame for frame in FRAMES if frame["kind"] == "answer"):
            with self.subTest(frame["name"]):
                data = bytes.fromhex(frame["hex"])
                header = protocol.HEADER.unpack_from(data)
                number = getattr(protocol, frame["type"])
                self.assertEqual(header, (len(data) - 16, number, frame["status"], frame["requestId"], 0))
                if frame["status"] == protocol.DONE:
                    self.assertEqual(decode(frame["type"], data[16:], frame["fields"]), frame["fields"])
                else:
                    self.assertEqual({"message": data[16:].decode()}, frame["fields"])

    def test_answers_of_another_length_are_violations(self) -> None:
        checked = (
            "HELLO",
            "EXISTS",
            "GET",
            "SET",
            "SET_BYTES",
            "DELETE",
            "GET_BYTES",
            "PIN",
            "UNPIN",
            "PREFETCH",
            "EVENTS",
            "GET_STAGED",
        )
        for frame in (frame for frame in FRAMES if frame["kind"] == "answer" and frame["status"] == 0):
            if frame["type"] not in checked:
                continue
            body = bytes.fromhex(frame["hex"])[16:]
            # An answer to HELLO is whole without the instant at its end.
            whole = {len(body) - 8} if "instantUs" in frame["fields"] else set()
            for wrong in [body[:end] for end in range(len(body)) if end not in whole] + [body + b"\0"]:
                with self.subTest(frame["name"], size=len(wrong)), self.assertRaises(protocol.Violation):
                    decode(frame["type"], wrong, frame["fields"])

    def test_records_are_encoded(self) -> None:
        for frame in (frame for frame in FRAMES if frame["kind"] == "record"):
            with self.subTest(frame["name"]):
                fields = frame["fields"]
                token = bytes.fromhex(fields["attachToken"])
                if frame["type"] == "REGION":
                    record = protocol.region_record(token, fields["regionId"], fields["writable"], fields["length"])
                else:
                    record = protocol.staging_record(token, fields["length"])
                self.assertEqual(record.hex(), frame["hex"])

    def test_record_answers_are_decoded(self) -> None:
        for frame in (frame for frame in FRAMES if frame["kind"] == "record-answer"):
            with self.subTest(frame["name"]):
                answer = protocol.RECORD_ANSWER.unpack(bytes.fromhex(frame["hex"]))
                self.assertEqual(answer, (frame["status"], 0, frame["fields"]["length"]))

    def test_what_does_not_fit_is_refused(self) -> None:
        self.assertEqual(len(protocol.encode_keys(["k" * 65535])), 4 + 2 + 65535)
        for keys in (["k" * 65536], ["é" * 32768], ["\ud800"]):
            with self.assertRaises(ValueError):
                protocol.encode_keys(keys)
        with self.assertRaises(ValueError):
            protocol.text16("p" * 65536)


if __name__ == "__main__":
    unittest.main()
