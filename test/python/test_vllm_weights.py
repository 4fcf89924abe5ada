"""What the tier does when the weights of its engine change, or may have changed: through vLLM's own calls, and through jobs under way."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import tempfile
import threading
import unittest
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import vllm_support as support
from support import wait_for
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore

import meshcache.vllm
from meshcache._engines.identity import Unreadable
from meshcache.vllm import hooks
from meshcache.vllm.adapters import Adapters
from meshcache.vllm.epochs import Epochs
from meshcache.vllm.jobs import Job, Jobs

SLOT_BYTES = 16
NAMES = support.generation(support.NEWER)


class MemoryClient:
    """A client of a store in this process: chunks by fingerprint and key."""

    chunks: dict[tuple[str | None, bytes], bytes] = {}

    def __init__(self, socket: Any, *, namespace: Any, **options: Any) -> None:
        self.fingerprint = namespace.fingerprint
        self.is_connected = True
        self.view: Any = None

    def register(self, memory: Any, **options: Any) -> Any:
        self.view = memory
        return SimpleNamespace(mode="direct")

    def set_fingerprint(self, fingerprint: str | None) -> None:
        self.fingerprint = fingerprint

    def exists_many(self, keys: Sequence[bytes], **options: Any) -> list[bool]:
        return [(self.fingerprint, key) in self.chunks for key in keys]

    def set_from(self, keys: Sequence[bytes], pieces: Any, **options: Any) -> list[bool]:
        for key, (_, start, size) in zip(keys, pieces):
            self.chunks[self.fingerprint, key] = bytes(self.view.cast("B")[start : start + size])
        return [True] * len(keys)

    def get_into(self, keys: Sequence[bytes], pieces: Any, **options: Any) -> list[bool]:
        return [(self.fingerprint, key) in self.chunks for key in keys]

    def close(self) -> None:
        self.is_connected = False


class EngineOfDoubles:
    """vLLM's scheduler and core with one tier."""

    def __init__(self, spec: Any = None, **params: Any) -> None:
        self.view = memoryview(bytearray(8 * SLOT_BYTES)).cast("B", (8, SLOT_BYTES))
        with mock.patch.dict(support.sharing_globals(NAMES), {"Client": MemoryClient}):
            self.tier = NAMES.make_tier(params, self.view, spec or support.newer_spec())
        manager = SimpleNamespace(secondary_tiers=[self.tier])
        connector = SimpleNamespace(connector_scheduler=SimpleNamespace(manager=manager))
        self.scheduler = Scheduler(support.vllm_config(support.newer_spec()), connector)
        self.core = EngineCore(self.scheduler)
        self._numbers = iter(range(1 << 20))

    def context(self) -> Any:
        """A request begins."""
        context = NAMES.base.ReqContext(f"request-{next(self._numbers)}")
        self.tier.on_new_request(context)
        return context

    def stores(self, key: bytes, context: Any = None) -> bool:
        """Whether a chunk is stored for a request."""
        job = NAMES.job(next(self._numbers), [key], [0], False, context or self.context())
        self.tier.submit_store(job)
        self.tier.drain_jobs()
        [result] = self.tier.get_finished_jobs()
        return bool(result.success)

    def finds(self, key: bytes) -> bool:
        """Whether a request finds a chunk."""
        context = self.context()

        answers: list[Any] = []

        def is_answered() -> bool:
            answers.append(self.tier.lookup(key, context))
            self.tier.on_schedule_end()
            return answers[-1] is not NAMES.retry

        wait_for("the lookup is answered", is_answered)
        return answers[-1] is NAMES.hit

    @property
    def fingerprint(self) -> str | None:
        space = self.tier.namespace
        assert space is not None
        return space.fingerprint


class Case(unittest.TestCase):
    def setUp(self) -> None:
        MemoryClient.chunks = {}

    def engine(self, **params: Any) -> EngineOfDoubles:
        engine = EngineOfDoubles(**params)
        self.addCleanup(engine.tier.shutdown)
        return engine


class ResetTest(Case):
    def test_nothing_from_before_a_reset_is_shared_until_the_weights_are_told(self) -> None:
        for reset in (
            lambda engine: engine.scheduler.reset_prefix_cache(),
            lambda engine: engine.scheduler.reset_prefix_cache(False, True),
            lambda engine: engine.scheduler.reset_prefix_cache(reset_connector=True),
            lambda engine: engine.core.collective_rpc("reload_weights"),
            lambda engine: engine.core.collective_rpc("update_weights", None, (), {"info": 1}),
            lambda engine: engine.core.collective_rpc("update_config", args=({},)),
            lambda engine: engine.core.collective_rpc(lambda worker: None),
        ):
            one, other = self.engine(), self.engine()
            self.assertTrue(one.stores(b"a") and other.finds(b"a") and one.finds(b"a"))
            with self.assertLogs("vllm.meshcache", "WARNING"):
                reset(one)
            one.scheduler.reset_prefix_cache()
            self.assertFalse(one.finds(b"a"))
            self.assertTrue(one.stores(b"b") and one.finds(b"b"))
            self.assertFalse(other.finds(b"b"))
            self.assertTrue(other.finds(b"a"))
            one.tier.set_fingerprint("v2")
            self.assertFalse(one.finds(b"a") or one.finds(b"b"))
            self.assertTrue(one.stores(b"c"))
            other.core.set_weight_version("v2")
            self.assertTrue(other.finds(b"c"))
            self.assertFalse(other.finds(b"a"))

    def test_the_pool_in_host_memory_is_dropped_with_the_cache(self) -> None:
        """vLLM itself leaves it alone unless it is asked: its chunks of the earlier weights would be found first."""
        engine = self.engine()
        engine.context()
        self.assertTrue(engine.scheduler.reset_prefix_cache())
        self.assertEqual(engine.scheduler.resets, ["cache", "connector"])
        engine.scheduler.reset_prefix_cache(reset_connector=True)
        self.assertEqual(engine.scheduler.resets[2:], ["cache", "connector"])

    def test_a_statement_keeps_the_chunks(self) -> None:
        engine = self.engine(on_reset="same_weights")
        engine.stores(b"a")
        engine.scheduler.reset_prefix_cache()
        for method in ("sleep", "wake_up", "check_health"):
            engine.core.collective_rpc(method)
        self.assertEqual(engine.scheduler.resets, ["cache"])
        self.assertTrue(engine.finds(b"a"))

    def test_a_statement_on_resets_does_not_concern_updates(self) -> None:
        for method in ("reload_weights", "update_weights", lambda worker: None):
            engine = self.engine(on_reset="same_weights", fingerprint="v1")
            self.assertTrue(engine.stores(b"a"))
            engine.core.collective_rpc(method)
            self.assertRegex(str(engine.fingerprint), "^unknown-")
            self.assertFalse(engine.finds(b"a") or engine.stores(b"b"))
            engine.core.set_weight_version("v2")
            # vLLM's pool in host memory still has KV of the former weights.
            self.assertFalse(engine.stores(b"b"))
            engine.scheduler.reset_prefix_cache()
            self.assertEqual(engine.scheduler.resets, ["cache", "connector"])
            engine.core.set_weight_version("v2")
            self.assertTrue(engine.stores(b"b"))
            engine.scheduler.reset_prefix_cache()
            self.assertEqual((engine.fingerprint, engine.scheduler.resets[2:]), ("v2", ["cache"]))

    def test_weights_that_are_unknown_at_the_start(self) -> None:
        with mock.patch("meshcache.vllm.identity.files_digest", side_effect=Unreadable("the weights are in s3://x")):
            with self.assertLogs("vllm.meshcache", "WARNING") as logs:
                one, other = self.engine(on_reset="same_weights"), self.engine()
        self.assertTrue(any('are in s3://x; set "fingerprint" in the tier\'s entry' in line for line in logs.output))
        self.assertTrue(one.stores(b"a"))
        self.assertFalse(other.finds(b"a"))
        for engine in (one, other):
            engine.tier.set_fingerprint("v1")
        self.assertTrue(one.stores(b"a") and other.finds(b"a"))

    def test_a_reset_leaves_the_pools_of_other_connectors_alone(self) -> None:
        """Of a ``MultiConnector``: one that stores pages on a server of its own would drop those of all engines."""
        engine, resets = self.engine(), []
        own = engine.scheduler.connector
        own.reset_cache = lambda: resets.append("own")
        other = SimpleNamespace(reset_cache=lambda: resets.append("other"))
        engine.scheduler.connector = SimpleNamespace(_connectors=[other, own])
        engine.context()
        self.assertTrue(engine.scheduler.reset_prefix_cache())
        self.assertEqual((resets, engine.scheduler.resets), (["own"], ["cache"]))
        own.reset_cache = lambda: False
        self.assertTrue(engine.scheduler.reset_prefix_cache())
        self.assertFalse(engine.stores(b"a"))

    def test_the_same_version_told_again_brings_the_chunks_back(self) -> None:
        engine = self.engine(fingerprint="v1")
        engine.stores(b"a")
        engine.scheduler.reset_prefix_cache()
        self.assertFalse(engine.finds(b"a"))
        meshcache.vllm.set_fingerprint("v1")
        self.assertTrue(engine.finds(b"a"))

    def test_a_reset_after_the_weights_were_told_belongs_to_their_change(self) -> None:
        engine = self.engine()
        engine.context()
        engine.core.collective_rpc("update_weights")
        engine.core.set_weight_version("v2")
        # The GPU still has KV of the former weights, and it may be part of what a request computes.
        self.assertFalse(engine.stores(b"a"))
        engine.core.set_weight_version("v2")
        engine.scheduler.reset_prefix_cache()
        self.assertEqual(engine.fingerprint, "v2")
        self.assertTrue(engine.stores(b"a"))
        engine.scheduler.reset_prefix_cache()
        self.assertNotEqual(engine.fingerprint, "v2")

    def test_a_reset_that_fails_leaves_kv_of_other_weights(self) -> None:
        engine = self.engine()
        engine.scheduler.add_request(object())
        self.assertFalse(engine.scheduler.reset_prefix_cache())
        self.assertFalse(engine.stores(b"a"))
        engine.scheduler.running.clear()
        self.assertTrue(engine.scheduler.reset_prefix_cache())
        self.assertTrue(engine.stores(b"a"))

    def test_a_request_that_began_before_is_not_stored(self) -> None:
        engine = self.engine()
        before = engine.context()
        engine.scheduler.reset_prefix_cache()
        self.assertFalse(engine.stores(b"a", before))
        self.assertTrue(engine.stores(b"a"))

    def test_calls_of_workers_that_only_read_change_nothing(self) -> None:
        engine = self.engine()
        before = engine.fingerprint
        for method in (
            "get_model",
            "compute_weight_checksums",
            "profile",
            "init_weight_transfer_engine",
            "check_health",
        ):
            self.assertEqual(engine.core.collective_rpc(method), ["done"])
        self.assertEqual(engine.fingerprint, before)

    def test_the_version_is_told_through_a_call_of_workers(self) -> None:
        engine = self.engine()
        self.assertEqual(engine.core.collective_rpc(hooks.TELL, args=("v7",)), [None])
        self.assertEqual((engine.fingerprint, engine.core.calls), ("v7", []))
        with self.assertRaisesRegex(ValueError, "takes one string"):
            engine.core.collective_rpc(hooks.TELL, args=(7,))


class ResultsTest(Case):
    def test_stored_chunks_are_events_where_vllm_publishes_them(self) -> None:
        spec = support.newer_spec(enable_kv_cache_events=True)
        engine = self.engine(spec=spec, enable_kv_events=True, locality="REMOTE")
        self.assertTrue(engine.stores(b"a"))
        place, medium = NAMES.base.Locality.REMOTE, NAMES.base.Medium.STORAGE
        self.assertEqual(list(engine.tier.take_events()), [NAMES.base.OffloadingEvent([b"a"], medium, False, place)])
        self.assertEqual(list(engine.tier.take_events()), [])
        silent = self.engine(spec=spec)
        self.assertTrue(silent.stores(b"a"))
        self.assertEqual(list(silent.tier.take_events()), [])
        with self.assertLogs("vllm.meshcache", "WARNING") as logs:
            self.engine(enable_kv_events=True)
        self.assertIn("vLLM's own KV events are off", logs.output[0])

    def test_results_have_bytes_and_times_for_the_metrics_of_vllm(self) -> None:
        engine = self.engine()
        engine.tier.submit_store(NAMES.job(1, [b"a", b"b"], [0, 1], False, engine.context()))
        engine.tier.drain_jobs()
        [result] = engine.tier.get_finished_jobs()
        self.assertEqual((result.success, result.transfer_bytes), (True, 2 * SLOT_BYTES))
        self.assertGreaterEqual(result.transfer_time, 0.0)


class UnderWayTest(Case):
    def test_a_job_of_earlier_weights_does_not_reach_the_chunks_of_the_present_ones(self) -> None:
        """The call has begun when the weights are told, and goes to the client afterwards."""
        engine = self.engine(timeout=20)
        client = engine.tier._sharing._client
        begun, goes_on = threading.Event(), threading.Event()
        original = client.set_from

        def slow(keys: Any, pieces: Any, **options: Any) -> Any:
            begun.set()
            goes_on.wait(60.0)
            return original(keys, pieces, **options)

        with mock.patch.object(client, "set_from", slow):
            engine.tier.submit_store(NAMES.job(1, [b"a"], [0], False, engine.context()))
            self.assertTrue(begun.wait(60.0))
            telling = threading.Thread(target=engine.tier.set_fingerprint, args=("v2",))
            telling.start()
            wait_for("the client has left the chunks of before", lambda: client.fingerprint is not None)
            goes_on.set()
            telling.join(60.0)
        engine.tier.drain_jobs()
        self.assertEqual(engine.fingerprint, "v2")
        self.assertEqual(client.fingerprint, "v2")
        self.assertNotIn(("v2", b"a"), MemoryClient.chunks)
        self.assertFalse(engine.finds(b"a"))

    def test_a_version_that_came_while_the_node_was_frozen_is_told_again(self) -> None:
        engine, other = self.engine(), self.engine()
        with mock.patch.object(Epochs, "advance", return_value=False), mock.patch.object(
            Epochs, "wait", return_value=False
        ):
            with self.assertLogs("vllm.meshcache") as log:
                engine.tier.set_fingerprint("v2")
        self.assertEqual([record.levelname for record in log.records], ["ERROR"])
        self.assertRegex(str(engine.fingerprint), "^unknown-")
        for each in (engine, other):
            each.tier.set_fingerprint("v2")
        self.assertTrue(engine.stores(b"a") and other.finds(b"a"))

    def test_the_first_lookup_after_a_change_waits_for_the_client_to_attach(self) -> None:
        engine = self.engine(fingerprint="v1")
        engine.stores(b"a")
        engine.scheduler.reset_prefix_cache()
        engine.tier.set_fingerprint("v1")
        states = itertools.chain([False, False], itertools.repeat(True))
        with mock.patch.object(MemoryClient, "is_connected", new_callable=mock.PropertyMock, create=True) as connected:
            connected.side_effect = lambda *given: next(states)
            self.assertTrue(engine.finds(b"a"))

    def test_a_job_that_was_not_begun_fails(self) -> None:
        epochs = Epochs()
        moved: list[Any] = []
        jobs = Jobs(lambda *given: moved.append(given) or [True], lambda *given: [True], 0.0, epochs)
        self.addCleanup(jobs.end)
        job = Job(1, True, [b"a"], [0], 0.0, epochs.number)
        job.deadline = job.submitted_at + 3600
        self.assertTrue(epochs.advance())
        jobs.submit(job)
        jobs.drain()
        self.assertEqual(([done.success for done in jobs.finished()], moved), ([False], []))


class ConfigurationTest(Case):
    def test_a_tier_that_is_made_first_is_bound_when_the_engine_is_complete(self) -> None:
        spec = support.newer_spec()
        view = memoryview(bytearray(8 * SLOT_BYTES)).cast("B", (8, SLOT_BYTES))
        with mock.patch.dict(support.sharing_globals(NAMES), {"Client": MemoryClient}):
            usual = self.engine().tier.namespace
            for call in ("get_kv_connector", "add_request"):
                tier = NAMES.tier(offloading_spec=spec, primary_kv_view=view, tier_type="MeshCacheTier")
                self.addCleanup(tier.shutdown)
                self.assertIsNone(tier.namespace)
                scheduler = Scheduler(support.vllm_config(spec), SimpleNamespace())
                getattr(scheduler, call)(*[object()] * (call == "add_request"))
                self.assertEqual(tier.namespace, usual)

    def test_a_tier_without_a_configuration_is_alone(self) -> None:
        view = memoryview(bytearray(8 * SLOT_BYTES)).cast("B", (8, SLOT_BYTES))
        with mock.patch.dict(support.sharing_globals(NAMES), {"Client": MemoryClient}):
            tier = NAMES.tier(offloading_spec=support.newer_spec(), primary_kv_view=view, tier_type="MeshCacheTier")
            self.addCleanup(tier.shutdown)
            with self.assertLogs("vllm.meshcache", "WARNING") as logs:
                tier.on_new_request(NAMES.base.ReqContext("request"))
        self.assertIn("private=", tier.namespace.layout)
        self.assertTrue(any("its overrides is unknown" in line for line in logs.output), logs.output)

    def test_hooks_that_cannot_be_installed_leave_the_engine_alone(self) -> None:
        with mock.patch.object(hooks, "install", lambda: ["resets", "adapters"]):
            layout = self.engine().tier.namespace.layout
            fixed = self.engine(on_reset="same_weights").tier.namespace.layout
        self.assertIn("private=", layout)
        self.assertNotIn("private=", fixed)
        with mock.patch.object(hooks, "install", lambda: ["weight_changes"]):
            self.assertIn("private=", self.engine(on_reset="same_weights").tier.namespace.layout)


class AdapterTest(Case):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name
        self.write(b"one")
        self.number = id(self) % (1 << 30) + 1
        for number in range(self.number, self.number + 4):
            self.addCleanup(hooks.adapters.removed, number)

    def write(self, weights: bytes) -> None:
        """Replaces the files, as a deployment does."""
        for name, content in (("adapter_config.json", b"{}"), ("adapter_model.safetensors", weights)):
            path = os.path.join(self.path, name)
            with open(f"{path}.new", "wb") as file:
                file.write(content)
            os.replace(f"{path}.new", path)

    def request(self, number: int = 0) -> Any:
        lora = SimpleNamespace(lora_int_id=number or self.number, lora_name="adapter", lora_path=self.path)
        return SimpleNamespaceRequest(lora)

    def keys(self, number: int = 0) -> Any:
        return kv_cache_utils._gen_lora_extra_hash_keys(self.request(number))

    def test_keys_tell_the_files_of_an_adapter_apart(self) -> None:
        self.engine()
        first = self.keys()
        self.assertEqual(first[0][:3], ("lora", "adapter", self.path))
        self.assertEqual(first, self.keys())
        self.assertEqual(first, self.keys(self.number + 1))
        self.write(b"two")
        # Loaded under another number: these are the new files.
        second = self.keys(self.number + 2)
        self.assertNotEqual(first, second)
        self.assertEqual(second, self.keys(self.number + 3))

    def test_an_adapter_whose_files_changed_under_it_is_not_shared(self) -> None:
        engine = self.engine()
        first = self.keys()
        self.write(b"two")
        with self.assertLogs("vllm.meshcache", "WARNING") as logs:
            doubtful = [self.keys(), self.keys()]
        self.assertIn("its files have changed since the engine loaded it", logs.output[0])
        self.assertEqual(len({str(keys) for keys in [first, *doubtful]}), 3)
        # All blocks of one request have the same.
        request = self.request()
        self.assertEqual(*[kv_cache_utils._gen_lora_extra_hash_keys(request) for _ in range(2)])
        engine.core.remove_lora(self.number)
        engine.core.add_lora(self.request().lora_request)
        self.assertEqual(self.keys(), self.keys(self.number + 1))

    def test_files_that_are_written_anew_with_the_same_content_are_the_same(self) -> None:
        self.engine()
        first = self.keys()
        self.write(b"one")
        self.assertEqual(self.keys(), first)

    def test_chunks_that_were_computed_while_the_files_changed_are_not_stored(self) -> None:
        engine = self.engine()
        self.keys()
        before = engine.context()
        self.write(b"two")
        self.assertFalse(engine.stores(b"a", before))
        self.assertFalse(engine.stores(b"b", before))
        self.assertTrue(engine.stores(b"c"))

    def test_a_request_that_comes_after_the_files_changed_is_stored(self) -> None:
        engine = self.engine()
        self.keys()
        self.write(b"two")
        self.keys(self.number + 1)
        self.assertTrue(engine.stores(b"a"))

    def test_an_adapter_that_is_downloaded_when_it_is_loaded(self) -> None:
        engine = self.engine()
        folder, name = self.path, f"org/adapter-{self.number}"
        expected = self.keys()[0][-1]
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, {"HF_HUB_CACHE": cache}):
            self.path = name
            request = self.request(self.number + 1).lora_request

            def download(core: Any, lora_request: Any) -> bool:
                snapshot = os.path.join(cache, f"models--{name.replace('/', '--')}", "snapshots", "main")
                shutil.copytree(folder, snapshot)
                return True

            hooks._loading(download)(engine.core, request)
            self.assertEqual(self.keys(self.number + 1)[0][-1], expected)
            # When vLLM loads it for a request, it may download other files first.
            self.assertNotEqual(self.keys(self.number + 2)[0][-1], expected)
            with mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}):
                self.assertEqual(self.keys(self.number + 3)[0][-1], expected)

    def test_an_adapter_below_the_home_folder(self) -> None:
        self.engine()
        expected = self.keys()[0][-1]
        home, self.path = os.path.split(self.path)
        self.path = f"~/{self.path}"
        with mock.patch.dict(os.environ, {"HOME": home}):
            self.assertEqual(self.keys(self.number + 1)[0][-1], expected)

    def test_an_adapter_that_cannot_be_read_has_one_mark_as_long_as_it_is_loaded(self) -> None:
        """vLLM's own prefix cache goes on finding what the adapter has computed."""
        engine = self.engine()
        self.path = "/nowhere"
        with self.assertLogs("vllm.meshcache", "WARNING") as logs:
            first = self.keys()
        self.assertIn("its files cannot be read here", logs.output[0])
        self.assertEqual(self.keys(), first)
        self.assertNotEqual(self.keys(self.number + 1), first)
        engine.core.remove_lora(self.number)
        self.assertNotEqual(self.keys(), first)

    def test_options_of_vllm_that_decide_what_of_an_adapter_is_applied(self) -> None:
        usual = {"lora_dtype": "auto", "target_modules": None, "max_cpu_loras": 4}
        cases: list[dict[str, Any]] = [
            {},
            {"target_modules": ["q_proj"]},
            {"enable_tower_connector_lora": True},
            {"lora_dtype": "float16"},
            {"enable_moe_shared_loras": True},
        ]
        marks = [self.mark(SimpleNamespace(**{**usual, **case})) for case in cases]
        self.assertEqual(len(set(marks)), len(cases))
        self.assertEqual(self.mark(SimpleNamespace(**{**usual, "max_cpu_loras": 9, "lora_dtype": "bf16"})), marks[0])
        for unknown in (object(), SimpleNamespace(**{**usual, "lora_dtype": object()})):
            with self.assertLogs("vllm.meshcache", "WARNING") as logs:
                self.assertNotEqual(self.mark(unknown), self.mark(unknown))
            self.assertIn("options for adapters are unknown", logs.output[0])

    def mark(self, lora_config: Any) -> str:
        adapters = Adapters()
        adapters.configure(SimpleNamespace(lora_config=lora_config, model_config=SimpleNamespace(dtype="bf16")))
        return adapters.mark(self.request())

    def test_a_request_looks_at_its_own_adapter_alone(self) -> None:
        adapters, names = Adapters(), []
        with mock.patch.object(Adapters, "_check", lambda self, adapter: names.append(adapter.name)):
            for number in range(1, 2000):
                lora = SimpleNamespace(lora_int_id=number, lora_name=str(number), lora_path=f"/nowhere/{number}")
                adapters.mark(SimpleNamespaceRequest(lora))
            self.assertEqual(names, [str(number) for number in range(1, 2000)])
            names.clear()
            adapters.look()
        self.assertEqual(names, [str(number) for number in range(2000 - 1024, 2000)])

    def test_requests_without_an_adapter_are_as_ever(self) -> None:
        self.engine()
        self.assertEqual(kv_cache_utils._gen_lora_extra_hash_keys(SimpleNamespaceRequest(None)), [])


class SimpleNamespaceRequest:
    """A request, which can be referred to weakly as vLLM's can."""

    def __init__(self, lora_request: Any) -> None:
        self.lora_request = lora_request


if __name__ == "__main__":
    logging.basicConfig()
    unittest.main()
