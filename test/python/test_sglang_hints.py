"""Hints that requests of SGLang carry, without SGLang: its modules are stand-ins here. `test/engines/sglang` has real ones."""

from __future__ import annotations

import json
import sys
import unittest
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import sglang_support  # noqa: F401  (puts the package on the path)
from meshcache._engines import hints as envelopes
from meshcache._engines.complaints import Complaints
from meshcache.sglang import framework, hooks
from meshcache.sglang.guard import logger
from meshcache.sglang.hints import RequestHints
from support import wait_for

PAGE_SIZE = 4


def envelope(type_: str, payload: Any) -> dict[str, Any]:
    action = {"action_id": "1", "action_type": type_, "action_version": "1.0", "payload": payload}
    return {"protocol_version": "0.1", "message_id": "m", "actions": [action]}


def named_pages(tokens: Sequence[int], *namespace: Any, page_size: int, is_bigram: bool) -> list[str]:
    whole = len(tokens) // page_size
    return [f"{namespace}:{list(tokens[at * page_size : (at + 1) * page_size])}" for at in range(whole)]


class Client:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[str], dict[str, Any]]] = []
        self.brought: list[tuple[list[str], str]] = []

    def tell(self, session: str, keys: Sequence[str], **news: Any) -> None:
        self.told.append((session, list(keys), news))

    def prefetch(self, keys: Sequence[str], *, by: float, pool: str) -> None:
        self.brought.append((list(keys), pool))


class Pool:
    def __init__(self, key_pool: str, parts: tuple[str, ...] = ()) -> None:
        self.key_pool, self.parts = key_pool, parts

    def keys(self, keys: Sequence[str]) -> list[str]:
        return [key + part for key in keys for part in self.parts] if self.parts else list(keys)


class Owner:
    """Has pools, as a storage has."""

    def __init__(self, *pools: Pool) -> None:
        self.client, self.pools = Client(), pools

    def hinted_pools(self) -> Any:
        return self.client, self.pools


def request(hints: Any = None, custom: Any = None, rid: str = "r") -> SimpleNamespace:
    return SimpleNamespace(
        rid=rid,
        kv_hints=hints,
        sampling_params=SimpleNamespace(custom_params=custom),
        origin_input_ids=[1, 2, 3, 4, 5, 6],
        output_ids=[7, 8, 9],
        extra_key="x",
        cache_salt=None,
    )


TREE = SimpleNamespace(page_size=PAGE_SIZE, tree_core=SimpleNamespace(is_eagle=False))
NAMESPACE = ("x", None)
PAGES = [f"{NAMESPACE}:[1, 2, 3, 4]", f"{NAMESPACE}:[5, 6, 7, 8]"]


class Requests(unittest.TestCase):
    def setUp(self) -> None:
        self.owner = Owner(Pool("kv"), Pool("mamba.1"))
        self.hints = RequestHints(self.owner.hinted_pools, Complaints(logger))
        patch = mock.patch.object(framework, "page_keys", named_pages)
        patch.start()
        self.addCleanup(patch.stop)

    def told(self, count: int) -> list[Any]:
        wait_for("the node knows", lambda: len(self.owner.client.told) == count)
        return self.owner.client.told

    def test_a_session_is_told_with_the_whole_pages_of_its_request(self) -> None:
        told = request(
            envelope("meshcache.session", {"session": "s", "branched": True, "ended": True, "shared_tokens": 5})
        )
        for _ in range(2):
            self.hints.begin(told, TREE)
        for _ in range(2):
            self.hints.end(told)
        first, last = self.told(2)
        self.assertEqual(first[:2], ("s", PAGES))
        self.assertEqual(first[2], dict(waiting=None, branched=True, ended=False, shared=1, pool="kv"))
        # The last pool has the rest of the news, when the pages of all pools are known.
        self.assertEqual(last[2], dict(waiting=None, branched=False, ended=True, shared=1, pool="mamba.1"))

    def test_pages_of_a_session_come_back(self) -> None:
        self.hints.begin(request(envelope("meshcache.session", {"session": "s", "waiting": 0})), TREE)
        self.hints.end(request())
        wait_for("the pages are brought", lambda: len(self.owner.client.brought) == 2)
        self.assertEqual(self.owner.client.brought, [(PAGES, "kv"), (PAGES, "mamba.1")])

    def test_the_last_token_of_an_answer_has_no_page(self) -> None:
        told = request(envelope("meshcache.session", {"session": "s"}))
        told.output_ids = [7, 8]
        self.hints.begin(told, TREE)
        self.hints.end(told)
        self.assertEqual(self.told(2)[0][1], PAGES[:1])

    def test_hints_are_json_text_in_the_custom_parameters(self) -> None:
        self.owner.pools = (Pool("kv", ("a", "b")),)
        text = json.dumps(envelope("kv.fetch", {"block_hashes": ["0xf1", "f2"]}))
        # The scheduler may look for the pages of a request several times.
        for rid in ("r", "r", "q"):
            self.hints.begin(request(custom={"kv_hints": text}, rid=rid), TREE)
        self.hints.begin(request(envelope("kv.fetch", {"block_hashes": ["f3"]}), rid="last"), TREE)
        wait_for("the pages are brought", lambda: (["f3a", "f3b"], "kv") in self.owner.client.brought)
        self.assertEqual(self.owner.client.brought[:-1], 2 * [(["f1a", "f1b", "f2a", "f2b"], "kv")])

    def test_pages_are_named_by_their_first_bits_once_the_engine_has_looked_for_them(self) -> None:
        key, other = "f" * 16 + "0" * 48, "1" * 64
        self.hints.note([key])
        fetch = envelope("kv.fetch", {"block_hashes": [-1, int("1" * 16, 16)]})
        self.hints.begin(request(fetch), TREE)
        self.hints.note([key, other, "not hexadecimal"])
        self.hints.begin(request(fetch, rid="q"), TREE)
        wait_for("the pages are brought", lambda: self.owner.client.brought)
        self.assertEqual(self.owner.client.brought[0], ([key, other], "kv"))

    def test_wrong_hints_are_ignored_and_said_once(self) -> None:
        with self.assertLogs(logger, "WARNING") as lines:
            for wrong in ("{", "[" * 100_000, "7", json.dumps(envelope("kv.fetch", {}))):
                self.hints.begin(request(custom={"kv_hints": wrong}), TREE)
                self.hints.end(request())
        self.assertEqual(len(lines.output), 1)
        self.assertEqual(self.hints._requests, {})

    def test_nothing_is_raised_in_the_scheduler(self) -> None:
        told = request(envelope("meshcache.session", {"session": "s"}))
        with self.assertLogs(logger, "WARNING"):
            self.hints.begin(told, SimpleNamespace(page_size="many"))
        self.hints.begin(told, TREE)
        told.origin_input_ids = ["not", "numbers"]
        with self.assertLogs(logger, "WARNING"):
            self.hints.end(told)
        self.assertEqual(self.owner.client.told, [])

    def test_text_is_not_longer_than_the_limit(self) -> None:
        hints, problem = envelopes.read_hints(" " * (envelopes.MAX_TEXT + 1))
        self.assertIsNone(hints)
        self.assertIn("characters", problem)

    def test_a_storage_that_is_gone_is_not_kept(self) -> None:
        told = request(envelope("meshcache.session", {"session": "s"}))
        self.hints.begin(told, TREE)
        client = self.owner.client
        del self.owner
        self.hints.end(told)
        self.assertEqual(client.told, [])


class Hooks(unittest.TestCase):
    def modules(self, begin: Any, has_field: bool = True) -> tuple[Any, Any]:
        """Puts stand-ins for SGLang's modules in their places; returns its classes."""

        class Scheduler:
            tree_cache = TREE
            _prefetch_kvcache = begin

        class Req:
            finished_reason: Any = None

            def update_finish_state(self, new_accepted_len: int = 1) -> int:
                self.finished_reason = "length"
                return new_accepted_len

        names: dict[str, dict[str, Any]] = {
            "managers.scheduler": {"Scheduler": Scheduler},
            "managers.schedule_batch": {"Req": Req},
            "mem_cache.utils": {"get_storage_hash_str": None},
            "mem_cache.radix_cache": {"RadixKey": None},
        }
        if has_field:
            names["managers.kv_hints"] = {}
        modules = {}
        for name, content in names.items():
            module = ModuleType(f"sglang.srt.{name}")
            vars(module).update(content)
            modules[module.__name__] = module
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)
        return Scheduler, Req

    def test_requests_are_seen_when_they_begin_and_end(self) -> None:
        def prefetch(self: Any, req: Any, storage_hit_end: int | None = None) -> Any:
            return req, storage_hit_end

        scheduler, req = self.modules(prefetch)
        self.assertTrue(hooks.follow_hints())
        self.assertTrue(hooks.follow_hints())
        with mock.patch.object(hooks, "hints") as seen:
            one = req()
            self.assertEqual(scheduler()._prefetch_kvcache(one, storage_hit_end=3), (one, 3))
            seen.request_begins.assert_called_once_with(one, TREE)
            self.assertEqual(one.update_finish_state(2), 2)
            seen.request_ends.assert_called_once_with(one)

    def test_unexpected_functions_are_left_alone_and_said_once(self) -> None:
        def other(self: Any, requests: Any) -> Any:
            return requests

        scheduler, _ = self.modules(other)
        with self.assertLogs(logger, "WARNING") as lines:
            self.assertFalse(hooks.follow_hints())
        self.assertIn("kv_hints of requests are ignored", lines.output[0])
        self.assertIs(vars(scheduler)["_prefetch_kvcache"], other)

    def test_older_versions_whose_requests_have_no_hints_are_not_complained_about(self) -> None:
        self.modules(None, has_field=False)
        with self.assertNoLogs(logger, "WARNING"):
            self.assertFalse(hooks.follow_hints())

    def test_without_a_scheduler_there_is_nothing_to_follow(self) -> None:
        with self.assertNoLogs(logger, "WARNING"):
            self.assertFalse(hooks.follow_hints())


if __name__ == "__main__":
    unittest.main()
