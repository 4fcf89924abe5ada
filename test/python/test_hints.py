"""Hints that requests of engines carry."""

from __future__ import annotations

import logging
import unittest
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import vllm_support  # noqa: F401  (puts the package and the doubles on the path)
from meshcache._engines.complaints import Complaints
from meshcache._engines.hints import Hints, SessionHint, read_hints
from meshcache.vllm.hints import RequestHints


def action(type_: str, payload: Any, version: str = "1.0") -> dict[str, Any]:
    return {"action_id": "1", "action_type": type_, "action_version": version, "payload": payload}


def envelope(*actions: Any, version: str = "0.1") -> dict[str, Any]:
    return {"protocol_version": version, "message_id": "m", "actions": list(actions)}


class Envelopes(unittest.TestCase):
    def test_known_actions_are_read_and_others_ignored(self) -> None:
        session = action("meshcache.session", {"session": "s", "waiting": 3, "shared_tokens": 64, "later": 1}, "1.7")
        fetch = action("kv.fetch", {"block_hashes": [1, "ab"], "source_control_endpoint": "tcp://a:1"})
        others = [action("kv.retain", {}), action("meshcache.session", {}, "2.0"), action("kv.fetch", {}, "0.9")]
        hints, problem = read_hints(None, envelope(session, fetch, *others))
        self.assertEqual(problem, "")
        self.assertEqual(hints, Hints(SessionHint("s", 3.0, shared_tokens=64), (1, "ab")))
        self.assertEqual(read_hints(), (None, ""))
        self.assertEqual(read_hints(envelope(*others)), (None, ""))

    def test_objects_are_read_like_mappings(self) -> None:
        ended = SimpleNamespace(**action("meshcache.session", {"session": "s", "ended": True}))
        hints, _ = read_hints(SimpleNamespace(protocol_version="0.2", message_id="m", actions=(ended,)))
        self.assertEqual(hints, Hints(SessionHint("s", ended=True)))

    def test_what_is_wrong_is_said_and_nothing_raised(self) -> None:
        class Bad:
            @property
            def protocol_version(self) -> str:
                raise RuntimeError("no")

        session = "meshcache.session"
        for wrong, text in (
            (envelope(version="1.0"), "protocol version"),
            ("nothing", "protocol version"),
            (Bad(), "cannot be read"),
            ({"protocol_version": "0.1", "actions": "none"}, "list of actions"),
            (envelope(action(session, None)), "without a payload"),
            (envelope(action(session, {"session": ""})), "name of 1 to 256 bytes"),
            (envelope(action(session, {"session": "s", "waiting": -1})), "waiting"),
            (envelope(action(session, {"session": "s", "waiting": float("nan")})), "waiting"),
            (envelope(action(session, {"session": "s", "ended": 1})), "true or false"),
            (envelope(action(session, {"session": "s", "shared_tokens": True})), "shared_tokens"),
            (envelope(action("kv.fetch", {})), "block_hashes"),
            (envelope(action("kv.fetch", {"block_hashes": [None]})), "block_hashes"),
        ):
            with self.subTest(text=text):
                hints, problem = read_hints(wrong)
                self.assertIsNone(hints)
                self.assertIn(text, problem)


class Node:
    def __init__(self) -> None:
        self.told: list[tuple[SessionHint, list[bytes], int]] = []

    def tell(self, hint: SessionHint, keys: Sequence[bytes], shared: int) -> None:
        self.told.append((hint, list(keys), shared))

    def fetch(self, keys: Sequence[bytes]) -> None:
        raise AssertionError("not asked")


def key(name: int, group: int = 0) -> bytes:
    return name.to_bytes(32, "big") + group.to_bytes(4, "big")


class Requests(unittest.TestCase):
    def setUp(self) -> None:
        self.lines: list[str] = []
        logger = logging.Logger(self.id())
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        self.hints = RequestHints(Complaints(logger))
        self.node = Node()

    def context(self, id_: str, *actions: Any, positions: Any = None, inside: bool = False) -> SimpleNamespace:
        hints = envelope(*actions) if actions else None
        given = {"kv_transfer_params": {"kv_hints": hints}} if inside else {"kv_hints": hints}
        return SimpleNamespace(req_id=id_, _offload_key_positions=positions or {}, **given)

    def test_the_session_of_a_request_is_told_with_its_chunks_in_order(self) -> None:
        told = action("meshcache.session", {"session": "s", "waiting": 9, "shared_tokens": 32})
        context = self.context("r", told, positions={key(2): 64, key(1): 32})
        self.assertEqual(self.hints.begin(context), [])
        self.hints.note(context, [key(2), key(3)])
        self.hints.end(context, self.node)
        self.assertEqual(self.node.told, [(SessionHint("s", 9.0, shared_tokens=32), [key(1), key(2), key(3)], 1)])
        self.hints.end(context, self.node)
        self.assertEqual(len(self.node.told), 1)

    def test_hints_may_come_in_the_transfer_parameters(self) -> None:
        context = self.context("r", action("meshcache.session", {"session": "s", "ended": True}), inside=True)
        self.hints.begin(context)
        self.hints.end(context, self.node)
        self.assertEqual(self.node.told, [(SessionHint("s", ended=True), [], 0)])

    def test_requests_without_hints_are_not_remembered(self) -> None:
        context = self.context("r")
        self.assertEqual(self.hints.begin(context), [])
        self.hints.note(context, [key(1)])
        self.hints.end(context, self.node)
        self.assertEqual(self.node.told, [])
        self.assertEqual(self.hints.begin(self.context("q", action("kv.fetch", {"block_hashes": [1]}))), [])

    def test_blocks_to_fetch_are_named_whole_or_by_their_last_bits(self) -> None:
        whole = key(1)[:-4].hex()
        begin = self.hints.begin
        self.assertEqual(begin(self.context("a", action("kv.fetch", {"block_hashes": [whole]}))), [key(1)])
        self.hints.note(self.context("a"), [key(7), key(8, 1)])
        wanted = begin(self.context("b", action("kv.fetch", {"block_hashes": [7, 99, "0x" + whole, "no"]})))
        self.assertEqual(wanted, [key(7), key(7, 1), key(1), key(1, 1)])

    def test_wrong_hints_are_said_once_and_ignored(self) -> None:
        for _ in range(3):
            self.assertEqual(self.hints.begin(self.context("r", action("kv.fetch", {}))), [])
        self.assertEqual(len(self.lines), 1)
        self.assertIn("hints of a request are ignored: a kv.fetch", self.lines[0])


if __name__ == "__main__":
    unittest.main()
