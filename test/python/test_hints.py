"""Hints that requests of engines carry."""

from __future__ import annotations

import logging
import threading
import time
import unittest
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import vllm_support  # noqa: F401  (puts the package and the doubles on the path)
from meshcache._engines import advice
from meshcache._engines.advice import Advice
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
            ("nothing", "no JSON text"),
            ("7", "protocol version"),
            (Bad(), "cannot be read"),
            ({"protocol_version": "0.1", "actions": "none"}, "list of actions"),
            (envelope(action(session, None)), "without a payload"),
            (envelope(action(session, {"session": ""})), "name of 1 to 256 bytes"),
            (envelope(action(session, {"session": "x" * 100_000})), "'" + "x" * 63 + "... (100002 characters)"),
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
    """Records what it is told, and waits for `go` before it brings pages."""

    def __init__(self) -> None:
        self.told: list[tuple[SessionHint, list[Any], int]] = []
        self.brought: list[tuple[list[Any], float]] = []
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def tell(self, hint: SessionHint, keys: Sequence[Any], shared: int) -> None:
        self.told.append((hint, list(keys), shared))

    def prefetch(self, keys: Sequence[Any], by: float) -> None:
        self.go.wait(10)
        self.brought.append((list(keys), by))
        if self.failure is not None:
            raise self.failure


class Now:
    """Follows hints at once."""

    def __init__(self) -> None:
        self.told: list[tuple[SessionHint, list[bytes], int]] = []
        self.fetched: list[bytes] = []
        self.begun: list[str] = []

    def tell(self, hint: SessionHint, keys: Callable[[], Sequence[bytes]], shared: int) -> None:
        self.told.append((hint, list(keys()), shared))

    def fetch(self, keys: Sequence[bytes]) -> None:
        self.fetched = list(keys)

    def begins(self, session: str) -> None:
        self.begun.append(session)


def key(name: int, group: int = 0) -> bytes:
    return name.to_bytes(32, "big") + group.to_bytes(4, "big")


def recorded(name: str) -> tuple[list[str], Complaints]:
    """Complaints, and the lines that they log."""
    lines: list[str] = []
    logger = logging.Logger(name)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    return lines, Complaints(logger)


class Requests(unittest.TestCase):
    def setUp(self) -> None:
        self.lines, complaints = recorded(self.id())
        self.node = Now()
        self.hints = RequestHints(self.node, complaints)  # type: ignore[arg-type]

    def context(self, id_: str, *actions: Any, positions: Any = None, inside: bool = False) -> SimpleNamespace:
        hints = envelope(*actions) if actions else None
        given = {"kv_transfer_params": {"kv_hints": hints}} if inside else {"kv_hints": hints}
        return SimpleNamespace(req_id=id_, _offload_key_positions=positions or {}, **given)

    def test_the_session_of_a_request_is_told_with_its_chunks_in_order(self) -> None:
        told = action("meshcache.session", {"session": "s", "waiting": 9, "shared_tokens": 32})
        context = self.context("r", told, positions={key(2): 64, key(1): 32})
        self.hints.begin(context)
        self.assertEqual(self.node.begun, ["s"])
        self.hints.note(context, [key(2), key(3)])
        self.hints.end(context)
        self.assertEqual(self.node.told, [(SessionHint("s", 9.0, shared_tokens=32), [key(1), key(2), key(3)], 1)])
        self.hints.end(context)
        self.assertEqual(len(self.node.told), 1)

    def test_hints_may_come_in_the_transfer_parameters(self) -> None:
        context = self.context("r", action("meshcache.session", {"session": "s", "ended": True}), inside=True)
        self.hints.begin(context)
        self.hints.end(context)
        self.assertEqual(self.node.told, [(SessionHint("s", ended=True), [], 0)])

    def test_requests_without_hints_are_not_remembered(self) -> None:
        context = self.context("r")
        self.hints.begin(context)
        self.hints.note(context, [key(1)])
        self.hints.end(context)
        self.assertEqual(self.node.told, [])
        self.hints.begin(self.context("q", action("kv.fetch", {"block_hashes": [1]})))
        self.assertEqual(self.node.fetched, [])

    def test_blocks_to_fetch_are_named_whole_or_by_their_last_bits(self) -> None:
        whole = key(1)[:-4].hex()
        self.hints.begin(self.context("a", action("kv.fetch", {"block_hashes": [whole]})))
        self.assertEqual(self.node.fetched, [key(1)])
        self.hints.note(self.context("a"), [key(7), key(8, 1)])
        self.hints.begin(self.context("b", action("kv.fetch", {"block_hashes": [7, 99, "0x" + whole, "no"]})))
        self.assertEqual(self.node.fetched, [key(7), key(7, 1), key(1), key(1, 1)])

    def test_wrong_hints_are_said_once_and_ignored(self) -> None:
        for _ in range(3):
            self.hints.begin(self.context("r", action("kv.fetch", {})))
        self.assertEqual(self.node.fetched, [])
        self.assertEqual(len(self.lines), 1)
        self.assertIn("hints of a request are ignored: a kv.fetch", self.lines[0])


class Advised(unittest.TestCase):
    def setUp(self) -> None:
        self.lines, complaints = recorded(self.id())
        self.node = Node()
        self.advice: Advice[str] = Advice(self.node, complaints)
        self.addCleanup(self.advice.end)

    def until(self, what: str, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain: {what}")
            time.sleep(0.002)

    def tell(self, hint: SessionHint, *keys: str) -> None:
        """Tells of a session, and waits until the node knows."""
        count = len(self.node.told) + 1
        self.advice.tell(hint, lambda: keys, 0)
        self.until("the node knows", lambda: len(self.node.told) == count)

    def test_pages_of_a_session_come_back_before_its_next_request(self) -> None:
        self.tell(SessionHint("s"), "a", "b")
        self.assertEqual(self.node.brought, [])
        # The session goes on so soon that its pages are asked for at once. Pages of earlier requests are among them.
        self.tell(SessionHint("s", waiting=5), "b", "c")
        self.until("its pages are asked for", lambda: self.node.brought)
        [(keys, by)] = self.node.brought
        self.assertEqual(keys, ["a", "b", "c"])
        self.assertTrue(0 < by <= 5, by)
        told = self.node.told[1][0].waiting
        assert told is not None
        self.assertTrue(4 < told <= 5, told)

    def test_a_request_without_pages_says_when_the_session_goes_on(self) -> None:
        self.tell(SessionHint("s"), "a", "b")
        self.tell(SessionHint("s", waiting=0))
        self.until("the pages are asked for", lambda: self.node.brought)
        self.assertEqual(self.node.brought, [(["a", "b"], 0)])

    def test_pages_come_so_long_before_and_no_earlier(self) -> None:
        self.tell(SessionHint("late", waiting=3_600), "a")
        self.tell(SessionHint("soon", waiting=advice.LEAD_SECONDS + 0.3), "b")
        self.assertEqual(self.node.brought, [])
        self.until("the pages are asked for", lambda: self.node.brought)
        [(keys, by)] = self.node.brought
        self.assertEqual(keys, ["b"])
        self.assertTrue(advice.LEAD_SECONDS - 5 < by <= advice.LEAD_SECONDS, by)

    def test_pages_are_not_brought_for_a_request_that_is_here(self) -> None:
        wait = advice.LEAD_SECONDS + 0.2
        self.tell(SessionHint("here", waiting=wait), "a")
        self.tell(SessionHint("ended", waiting=wait), "b")
        self.tell(SessionHint("branched", waiting=wait), "c")
        self.advice.begins("here")
        self.tell(SessionHint("ended", ended=True))
        self.tell(SessionHint("branched", waiting=wait, branched=True), "d")
        self.tell(SessionHint("last", waiting=wait + 0.2), "e")
        self.until("the last pages are asked for", lambda: len(self.node.brought) >= 2)
        self.assertEqual([keys for keys, _ in self.node.brought], [["d"], ["e"]])
        self.assertEqual(list(self.advice._sessions), ["here", "branched", "last"])

    def test_one_request_is_made_at_a_time_and_hints_beyond_the_limit_are_left_out(self) -> None:
        self.node.go.clear()
        for number in range(advice._MAX_WORK + 3):
            self.advice.fetch([str(number)])
        self.advice.tell(SessionHint("s"), lambda: [], 0)
        self.assertEqual(len(self.lines), 1)
        self.assertIn("hints of requests are left out", self.lines[0])
        self.node.go.set()
        self.until("the node has brought them", lambda: len(self.node.brought) >= advice._MAX_WORK)
        self.assertEqual(self.node.brought[:2], [(["0"], 0), (["1"], 0)])
        self.assertEqual(self.node.told, [])

    def test_the_sessions_told_the_longest_time_ago_are_forgotten(self) -> None:
        many = [str(number) for number in range(advice._MAX_KEYS)]
        self.tell(SessionHint("first", waiting=3_600), *many[:-1])
        self.tell(SessionHint("second"), "x")
        self.tell(SessionHint("third"), "y")
        self.assertEqual(list(self.advice._sessions), ["second", "third"])
        self.assertEqual(self.advice._key_count, 2)

    def test_a_failure_is_said_once_and_the_next_hint_is_followed(self) -> None:
        self.node.failure = OSError("gone")
        self.advice.fetch(["a"])
        self.advice.fetch(["b"])
        self.until("both were tried", lambda: len(self.node.brought) == 2)
        self.tell(SessionHint("s"))
        self.assertEqual(self.lines, ["hints of requests do not reach the node: gone"])

    def test_nothing_is_done_after_the_end(self) -> None:
        self.tell(SessionHint("s", waiting=advice.LEAD_SECONDS + 0.1), "a")
        self.advice.end()
        self.advice.fetch(["b"])
        thread = self.advice._thread
        assert thread is not None
        thread.join(10)
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.node.brought, [])


if __name__ == "__main__":
    unittest.main()
