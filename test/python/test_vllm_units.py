"""Parts of the vLLM tier by themselves: settings, pools and specifications that are refused, namespaces, lookups, jobs."""

from __future__ import annotations

import importlib
import threading
import unittest
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import vllm_support as support

from meshcache.vllm import MeshCacheTier, Settings, plugin
from meshcache.vllm.epochs import Epochs
from meshcache.vllm.framework import CONSTRUCTOR_PARAMETERS
from meshcache.vllm.jobs import Job, Jobs, slots_of
from meshcache.vllm.lookups import FAILED_SECONDS, KNOWN_SECONDS, Lookups, RequestLookups
from meshcache.vllm.pool import PrimaryPool

WAIT_SECONDS = 1.0


class SettingsTest(unittest.TestCase):
    def test_defaults_and_own_keys(self) -> None:
        self.assertEqual(Settings.parse({}), Settings())
        self.assertEqual(Settings.parse(None).timeout, 5.0)
        given = {"client_socket": "/run/x", "tag": "v2", "timeout": "2", "mode": "staged", "required": 1}
        settings = Settings.parse({**given, "end_frozen_node": "false"})
        self.assertEqual(settings, Settings("/run/x", "v2", 2.0, "staged", True, False))

    def test_the_time_of_a_job_includes_the_fence(self) -> None:
        self.assertEqual([Settings(timeout=seconds).fence_seconds for seconds in (20.0, 4.0, 2.0)], [1.0, 1.0, 0.5])
        self.assertEqual([Settings(timeout=seconds).lookup_seconds for seconds in (20.0, 0.5)], [1.0, 0.5])

    def test_wrong_settings_are_refused_with_what_is_allowed(self) -> None:
        for params, message in [
            ({"timeout": 0}, "timeout must be a number above 0 and below 60 (seconds), got 0"),
            ({"timeout": 60}, "below 60"),
            ({"timeout": None}, "got None"),
            ({"mode": "fast"}, "mode must be one of auto, direct, staged, bytes, got 'fast'"),
            ({"required": "perhaps"}, "required must be true, false, 1 or 0"),
            ({"client_socket": ""}, "client_socket must be a non-empty string"),
            ({"tag": 3}, "tag must be a non-empty string"),
            ({"socket_path": "/x"}, 'did you mean "client_socket"?'),
            ({"time_out": 3}, 'did you mean "timeout"?'),
            ({"root_dir": "/x"}, "unknown key 'root_dir'"),
            ({"locality": "NEAR"}, "locality must be one of LOCAL, REMOTE"),
            ({"on_reset": "perhaps"}, "on_reset must be one of unknown_weights, same_weights"),
            ({"facts": ["x"]}, "facts must map names to non-empty strings or numbers"),
        ]:
            with self.subTest(params=params), self.assertRaises(ValueError) as caught:
                MeshCacheTier(support.newer_spec(), memoryview(bytearray(8)), "MeshCacheTier", **params)
            self.assertIn(message, str(caught.exception))
            self.assertTrue(str(caught.exception).startswith("secondary_tiers: "), caught.exception)

    def test_what_the_base_class_takes_is_not_a_setting(self) -> None:
        """A version of vLLM to come may pass more to the constructor of a tier."""
        self.assertLessEqual({"offloading_spec", "primary_kv_view", "tier_type"}, CONSTRUCTOR_PARAMETERS)
        taken: dict[str, Any] = {}

        def base(self: Any, **arguments: Any) -> None:
            taken.update(arguments)

        parts = {"CONSTRUCTOR_PARAMETERS": CONSTRUCTOR_PARAMETERS | {"detector"}}
        view = memoryview(bytearray(16)).cast("B", (1, 16))
        with mock.patch.dict(MeshCacheTier.__init__.__globals__, parts):
            with mock.patch.object(MeshCacheTier.__mro__[1], "__init__", base):
                tier = MeshCacheTier(support.newer_spec(), view, "MeshCacheTier", detector=7, timeout=3)
        self.addCleanup(tier.shutdown)
        self.assertEqual((taken["detector"], taken["tier_type"], "timeout" in taken), (7, "MeshCacheTier", False))


class PoolTest(unittest.TestCase):
    def test_pools_of_other_forms_are_refused(self) -> None:
        wide = memoryview(bytearray(64)).cast("B", (4, 16))
        for view, message in [
            (bytearray(8), "must be a memoryview, got bytearray"),
            (memoryview(bytearray(8)), "got the shape (8,)"),
            (memoryview(bytearray(64)).cast("B", (2, 2, 16)), "got the shape (2, 2, 16)"),
            (wide[::2], "with strides (32, 1)"),
            (wide.toreadonly(), "read-only"),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, "primary pool") as caught:
                PrimaryPool(view)
            self.assertIn(message, str(caught.exception))
        pool = PrimaryPool(wide)
        self.assertEqual((pool.count, pool.slot_bytes), (4, 16))


class LookupsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 100.0
        self.lookups = Lookups(WAIT_SECONDS, lambda: self.now)

    def test_a_key_is_asked_for_once_and_answered_for_a_while(self) -> None:
        self.assertIsNone(self.lookups.find(b"a"))
        self.assertIsNone(self.lookups.find(b"a"))
        self.assertIsNone(self.lookups.find(b"b"))
        asked = self.lookups.questions()
        self.assertEqual([entry.key for entry in asked], [b"a", b"b"])
        self.assertEqual(self.lookups.questions(), [])
        self.assertEqual(self.lookups.waiting(asked), (asked, WAIT_SECONDS))
        self.lookups.answer(asked, [True, False])
        self.assertEqual([self.lookups.find(key) for key in (b"a", b"b")], [True, False])
        self.now += KNOWN_SECONDS
        self.assertEqual([self.lookups.find(key) for key in (b"a", b"b")], [None, None])
        self.assertEqual(len(self.lookups.questions()), 2)

    def test_asking_again_ends_with_a_miss(self) -> None:
        """Also when entries are dropped between two lookups: nobody is told to ask again for ever."""
        for is_swept in (False, True):
            key = b"swept" if is_swept else b"kept"
            self.assertIsNone(self.lookups.find(key))
            asked = self.lookups.questions()
            self.now += WAIT_SECONDS
            self.assertEqual(self.lookups.waiting(asked)[0], [])
            if is_swept:
                self.lookups.questions()
            self.assertIs(self.lookups.find(key), False)
            self.assertEqual(self.lookups.questions(), [])
            # The answer comes late, and is better than none.
            self.lookups.answer(asked, [True])
            self.assertIs(self.lookups.find(key), True)

    def test_a_load_that_failed_is_a_miss_next_whatever_was_known(self) -> None:
        asked = [self.lookups.find(key) for key in (b"a", b"b")] and self.lookups.questions()
        self.lookups.answer(asked[:1], [True])
        self.lookups.failed([b"a", b"b", b"c"])
        self.lookups.answer(asked, [True, True])
        self.now += FAILED_SECONDS - 0.1
        self.assertEqual([self.lookups.find(key) for key in (b"a", b"b", b"c")], [False] * 3)
        self.lookups.failed([b"d"])
        self.assertIs(self.lookups.find(b"a"), False)
        self.now += FAILED_SECONDS + 0.1
        self.assertEqual([self.lookups.find(key) for key in (b"a", b"d")], [None, None])

    def test_what_was_stored_is_there(self) -> None:
        self.lookups.find(b"a")
        self.lookups.failed([b"a"])
        self.lookups.stored([b"a", b"unknown"])
        self.assertIs(self.lookups.find(b"a"), True)
        self.assertIsNone(self.lookups.find(b"unknown"))

    def test_what_is_old_is_dropped(self) -> None:
        for number in range(3000):
            self.lookups.find(number.to_bytes(4, "big"))
            self.lookups.failed([number.to_bytes(4, "little")])
        self.lookups.answer(self.lookups.questions(), [False] * 3000)
        for _ in range(100):
            self.now += KNOWN_SECONDS
            self.lookups.questions()
        self.assertEqual(len(self.lookups), 0)

    def test_a_node_that_is_silent_keeps_one_request_waiting(self) -> None:
        """Until it answers again, which one question at a time finds out."""
        self.assertIsNone(self.lookups.find(b"a"))
        asked = self.lookups.questions()
        self.now += WAIT_SECONDS
        self.assertIs(self.lookups.find(b"a"), False)
        self.assertEqual([self.lookups.find(key) for key in (b"b", b"c")], [False, False])
        self.assertEqual(self.lookups.questions(), [])
        self.now += WAIT_SECONDS
        self.assertEqual([self.lookups.find(key) for key in (b"d", b"e")], [False, False])
        [probe] = self.lookups.questions()
        self.assertEqual(probe.key, b"d")
        # The wait for an answer has ended.
        self.lookups.answer([probe], [False], in_time=False)
        self.assertIs(self.lookups.find(b"f"), False)
        self.lookups.answer(asked, [True])
        self.assertIs(self.lookups.find(b"a"), True)
        self.assertIsNone(self.lookups.find(b"g"))

    def test_nothing_is_known_of_the_chunks_of_other_weights(self) -> None:
        for key in (b"a", b"b"):
            self.lookups.find(key)
        asked = self.lookups.questions()
        self.lookups.answer(asked[:1], [True])
        self.lookups.find(b"c")
        self.lookups.failed([b"d"])
        self.lookups.forget()
        self.lookups.answer(asked, [True, True])
        self.assertEqual([self.lookups.find(key) for key in (b"a", b"b", b"c", b"d")], [None] * 4)
        self.assertEqual([entry.key for entry in self.lookups.questions()], [b"a", b"b", b"c", b"d"])


class RequestLookupsTest(unittest.TestCase):
    """What vLLM looks up for a request, in the order of its scheduler, counts once, as a prefix."""

    def setUp(self) -> None:
        self.lookups = RequestLookups()

    def request(self, name: str, keys: Sequence[bytes] = (), tokens: int = 16) -> Any:
        """A request that begins. ``keys``: what this version of vLLM says of its chunks."""
        self.lookups.begin(name)
        context = support.generation(support.NEWER).base.ReqContext(name)
        for index, key in enumerate(keys):
            context.set_offload_key_position(key, (index + 1) * tokens)
        return context

    def note(self, context: Any, keys: Sequence[bytes], answers: Sequence[bool | None]) -> None:
        for key, answer in zip(keys, answers):
            self.lookups.note(context, key, answer)

    def test_answers_of_several_steps_are_one_lookup(self) -> None:
        keys = support.chunk_keys("steps", 5)
        one, other = self.request("one"), self.request("other")
        self.note(one, keys, [None] * 5)
        self.note(other, keys[:2], [None, None])
        self.note(one, keys, [True, True, None, None, None])
        self.note(other, keys[:2], [True, True])
        # vLLM's own pool has the first chunks by now, and loading one fails later.
        self.note(one, keys[2:], [True, False])
        self.note(one, keys[:1], [False])
        self.assertEqual(self.lookups.scheduled(["other", "one", "unknown"]), [(2, 2), (5, 3)])

    def test_a_request_counts_until_it_is_scheduled_or_ends(self) -> None:
        keys = support.chunk_keys("once", 3)
        context = self.request("once")
        self.note(context, keys, [True] * 3)
        self.assertEqual(self.lookups.scheduled(["once"]), [(3, 3)])
        # It was preempted.
        self.note(context, keys, [True, True, False])
        self.assertEqual(self.lookups.scheduled(["once"]), [])
        self.assertEqual(self.lookups.end("once"), [])
        self.note(context, keys, [True] * 3)
        self.assertEqual(self.lookups.end("once"), [])
        # Its name is used again, and it is aborted before it is scheduled.
        context = self.request("once")
        self.note(context, keys, [True, None, None])
        self.assertEqual(self.lookups.end("once"), [(3, 1)])
        self.request("silent")
        self.assertEqual(self.lookups.end("silent"), [])
        self.assertEqual(len(self.lookups), 0)

    def test_chunks_that_are_not_asked_for_behind_a_missing_one_count(self) -> None:
        keys, others = support.chunk_keys("behind", 8), support.chunk_keys("behind", 4, group=1)
        context = self.request("behind", keys)
        for index, key in enumerate(others):
            context.set_offload_key_position(key, (index + 1) * 32)
        # vLLM's own pool has the first two.
        self.note(context, keys[2:], [True, False])
        self.assertEqual(self.lookups.scheduled(["behind"]), [(6, 1)])
        context = self.request("all there", keys)
        self.note(context, keys[:3], [True] * 3)
        self.assertEqual(self.lookups.scheduled(["all there"]), [(3, 3)])
        older = self.request("older")
        self.note(older, keys, [True, False])
        self.assertEqual(self.lookups.scheduled(["older"]), [(2, 1)])

    def test_further_groups_hold_the_same_tokens(self) -> None:
        keys, others = support.chunk_keys("groups", 4), support.chunk_keys("groups", 4, group=1)
        context = self.request("groups")
        self.note(context, keys, [True] * 4)
        self.note(context, others, [False] * 4)
        self.assertEqual(self.lookups.scheduled(["groups"]), [(4, 4)])

    def test_the_order_is_that_of_the_request(self) -> None:
        """Windows are looked up from the end on, and a chunk that vLLM's own pool has lost meanwhile after those behind it."""
        keys = support.chunk_keys("order", 4)
        window = self.request("window", keys)
        self.note(window, keys[::-1], [False, True, True])
        self.assertEqual(self.lookups.scheduled(["window"]), [(3, 2)])
        lost = self.request("lost", keys)
        self.note(lost, keys[1:], [True, True, None])
        self.note(lost, [keys[0], keys[3]], [True, False])
        self.assertEqual(self.lookups.scheduled(["lost"]), [(4, 3)])


class JobsTest(unittest.TestCase):
    def jobs(self, move: Any) -> Jobs:
        jobs = Jobs(move, move, 0.0, Epochs())

        def end() -> None:
            jobs.end()
            self.assertTrue(jobs.join(60.0))

        self.addCleanup(end)
        return jobs

    @staticmethod
    def job(job_id: int, count: int, *, is_load: bool = True, seconds: float = 3600.0) -> Job:
        keys = [number.to_bytes(4, "big") for number in range(count)]
        job = Job(job_id, is_load, keys, list(range(count)), 0.0)
        job.deadline = job.submitted_at + seconds
        return job

    def test_each_job_has_one_result(self) -> None:
        def move(keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> list[bool]:
            if slots[0] == 64:
                raise OSError("it breaks")
            return [slot % 2 == 0 for slot in slots]

        jobs = self.jobs(move)
        for job_id in range(20):
            jobs.submit(self.job(job_id, (0, 1, 2, 300)[job_id % 4], is_load=job_id % 3 == 0))
        self.assertGreater(len(jobs), 0)
        jobs.drain()
        finished = sorted(jobs.finished(), key=lambda job: job.job_id)
        self.assertEqual([job.job_id for job in finished], list(range(20)))
        self.assertEqual([job.success for job in finished], [True, True, False, False] * 5)
        self.assertEqual([len(job.moved_keys) for job in finished], [0, 1, 1, 32] * 5)
        self.assertEqual([len(job.failed_keys) for job in finished], [0, 0, 1, 268] * 5)
        self.assertEqual((len(jobs), jobs.finished()), (0, []))

    def test_a_key_with_two_chunks_was_moved_when_both_were(self) -> None:
        job = Job(1, True, [b"a", b"b", b"a", b"c"], [0, 1, 2, 3], 0.0, flags=[True, True, False, True])
        job.end()
        self.assertEqual((job.failed_keys, job.moved_keys), ({b"a"}, (b"b", b"c")))

    def test_a_job_whose_time_is_over_is_not_begun(self) -> None:
        moved: list[int] = []

        def move(keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> list[bool]:
            moved.append(len(keys))
            return [True] * len(keys)

        jobs = self.jobs(move)
        jobs.submit(self.job(1, 3, seconds=0.0))
        jobs.submit(self.job(2, 3))
        jobs.drain()
        self.assertEqual({job.job_id: job.success for job in jobs.finished()}, {1: False, 2: True})
        self.assertEqual(moved, [3])

    def test_wrong_counts_are_failures(self) -> None:
        jobs = self.jobs(lambda keys, slots, seconds: [True] * (len(keys) - 1))
        jobs.submit(self.job(1, 3))
        other = self.job(2, 3)
        other.slots.pop()
        jobs.submit(other)
        jobs.drain()
        self.assertEqual([job.success for job in jobs.finished()], [False, False])

    def test_submitting_and_fetching_do_not_wait_for_threads(self) -> None:
        gate = threading.Event()

        def move(keys: Sequence[bytes], slots: Sequence[int], seconds: float) -> list[bool]:
            gate.wait(60.0)
            return [True] * len(keys)

        jobs = self.jobs(move)
        for job_id in range(100):
            jobs.submit(self.job(job_id, 3))
        self.assertEqual(jobs.finished(), [])
        self.assertEqual(len(jobs), 100)
        gate.set()
        jobs.drain()
        self.assertEqual(len(jobs.finished()), 100)

    def test_slots_by_either_name(self) -> None:
        class Array:
            def tolist(self) -> list[int]:
                return [1, 2]

        self.assertEqual(slots_of(SimpleNamespace(chunk_ids=Array())), [1, 2])
        self.assertEqual(slots_of(SimpleNamespace(block_ids=(3, 4))), [3, 4])
        self.assertEqual(slots_of(SimpleNamespace(chunk_ids=[5], block_ids=[6])), [5])
        self.assertEqual(slots_of(SimpleNamespace()), [])


class PluginTest(unittest.TestCase):
    def test_the_tier_is_registered_once_under_each_name(self) -> None:
        registered: dict[str, tuple[str, str]] = {}

        class Factory:
            @classmethod
            def register_tier(cls, tier_type: str, module_path: str, class_name: str) -> None:
                if tier_type in registered:
                    raise ValueError(f"Tier {tier_type!r} is already registered.")
                registered[tier_type] = (module_path, class_name)

        with mock.patch.object(plugin, "imported", lambda name: SimpleNamespace(SecondaryTierFactory=Factory)):
            plugin.register()
            plugin.register()
        self.assertEqual(set(registered), {"meshcache", "MeshCacheTier"})
        for module_path, class_name in registered.values():
            self.assertIs(getattr(importlib.import_module(module_path), class_name), MeshCacheTier)

    def test_a_version_without_tiers_is_left_alone(self) -> None:
        with self.assertNoLogs("vllm.meshcache"), mock.patch.object(plugin, "imported", lambda name: None):
            plugin.register()

    def test_a_registration_that_fails_does_not_end_the_engine(self) -> None:
        broken = SimpleNamespace(SecondaryTierFactory=SimpleNamespace())
        with self.assertLogs("vllm.meshcache", "WARNING"), mock.patch.object(plugin, "imported", lambda name: broken):
            plugin.register()


class StuckClient:
    """A client whose calls last until the gate is opened, and that the scheduler's own thread must not call."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.gate = threading.Event()
        self.is_connected = True
        self.scheduler = threading.get_ident()
        self.called = threading.Event()
        self.lookups: list[tuple[int, int]] = []

    def register(self, memory: Any, **options: Any) -> Any:
        return SimpleNamespace(mode="direct")

    def _last(self, keys: Sequence[bytes], *arguments: Any, **options: Any) -> list[bool]:
        assert threading.get_ident() != self.scheduler, "the scheduler waits for the node"
        self.called.set()
        self.gate.wait(60.0)
        return [True] * len(keys)

    exists_many = get_into = set_from = _last

    def count_lookup(self, asked: int, found: int) -> None:
        self._last(())
        self.lookups.append((asked, found))

    def close(self) -> None:
        self.gate.set()


class StuckTest(unittest.TestCase):
    def test_no_call_of_the_scheduler_waits_for_the_node(self) -> None:
        """Whatever the client does: the calls return while all of its calls are stuck."""
        for name in support.GENERATIONS:
            names = support.generation(name)
            with self.subTest(name=name), mock.patch.dict(support.sharing_globals(names), {"Client": StuckClient}):
                view = memoryview(bytearray(64 * 16)).cast("B", (64, 16))
                tier = names.make_tier({}, view, support.spec(name))
                client, context = tier._sharing._client, names.base.ReqContext("request")
                keys = support.chunk_keys("stuck", 200)
                for step in range(50):
                    tier.on_new_request(context)
                    for key in keys[: 4 * step]:
                        self.assertIn(tier.lookup(key, context), (names.retry, names.miss))
                    tier.submit_load(names.job(2 * step, keys[:8], range(8), True, context))
                    tier.submit_store(names.job(2 * step + 1, keys[8:16], range(8, 16), False, context))
                    tier.touch(keys[:8], context)
                    self.assertEqual(list(tier.get_finished_jobs()), [])
                    tier.on_schedule_end()
                    tier.on_request_finished(context)
                    self.assertTrue(tier.has_pending_work())
                self.assertTrue(client.called.wait(60.0))
                client.gate.set()
                tier.drain_jobs()
                finished = list(tier.get_finished_jobs())
                self.assertEqual(sorted(result.job_id for result in finished), list(range(100)))
                tier.shutdown()
                self.assertEqual([asked for asked, _ in client.lookups], [4 * step for step in range(1, 50)])

    def test_chunks_that_are_not_stored_are_told_in_the_log(self) -> None:
        """Once in a while, and only when there is a node: without one, the client says so."""
        for name in support.GENERATIONS:
            names = support.generation(name)
            with self.subTest(name=name), mock.patch.dict(support.sharing_globals(names), {"Client": RefusingClient}):
                view = memoryview(bytearray(64 * 16)).cast("B", (64, 16))
                tier = names.make_tier({}, view, support.spec(name))
                keys, context = support.chunk_keys("refused", 3), names.base.ReqContext("request")
                tier.on_new_request(context)
                with self.assertLogs("vllm.meshcache", "WARNING") as logs:
                    for job_id in range(3):
                        tier.submit_store(names.job(job_id, keys, range(3), False, context))
                    tier.drain_jobs()
                self.assertEqual([result.success for result in tier.get_finished_jobs()], [False] * 3)
                self.assertEqual(len(logs.output), 1, logs.output)
                self.assertIn("2 of 3 chunks of 16 bytes were not stored: the node has no room", logs.output[0])
                tier.shutdown()


class RefusingClient(StuckClient):
    """A client of a node that stores the first chunk of each call alone."""

    def set_from(self, keys: Sequence[bytes], *arguments: Any, **options: Any) -> list[bool]:
        return [True] + [False] * (len(keys) - 1)


if __name__ == "__main__":
    unittest.main()
