"""Weights that change in place: whose pages an engine reads and stores then."""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import threading
import types
import unittest
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sglang_support as support
from sglang.srt.managers.cache_controller import HiCacheController
from sglang_fake_client import FakeClient

import meshcache.sglang
from meshcache.sglang import MeshCacheStorage


class Scheduler:
    """What changes weights in SGLang, by the names that it has there."""

    def update_weights_from_disk(self, request: Any) -> tuple[bool, str]:
        if request.version is not None:
            support.server_args.get_global_server_args().weight_version = request.version
        request.while_updating()
        return request.succeeds, ""

    update_weights_from_tensor = update_weights_from_ipc = update_weights_from_disk

    is_updating = False

    def begin_weight_update(self) -> SimpleNamespace:
        return self._switch(True)

    def end_weight_update(self) -> SimpleNamespace:
        return self._switch(False)

    def _switch(self, begins: bool) -> SimpleNamespace:
        succeeds = self.is_updating != begins
        self.is_updating = begins
        return SimpleNamespace(success=succeeds)

    def handle_update_weight_version(self, request: Any) -> None:
        support.server_args.get_global_server_args().weight_version = request.new_version


@contextlib.contextmanager
def scheduler(base: type[Scheduler] = Scheduler) -> Iterator[Scheduler]:
    """A process that serves requests: SGLang's scheduler is loaded, with classes that nobody has followed yet."""
    methods = {**vars(Scheduler), **vars(base)}
    kind: Any = type("Scheduler", (), {k: v for k, v in methods.items() if not k.startswith("__")})
    modules: dict[str, Any] = {
        "sglang.srt.managers.scheduler": SimpleNamespace(Scheduler=kind),
        "sglang.srt.managers.tp_worker": SimpleNamespace(BaseTpWorker=kind),
    }
    with mock.patch.dict(sys.modules, modules):
        yield kind()


class WeightsTest(unittest.TestCase):
    def setUp(self) -> None:
        FakeClient.reset()
        patch = mock.patch("meshcache.sglang.storage.Client", FakeClient)
        patch.start()
        self.addCleanup(patch.stop)
        arguments = support.arguments()
        arguments.__enter__()
        self.addCleanup(arguments.__exit__, None, None, None)

    def engine(self, extra: Any = None) -> Any:
        storage = MeshCacheStorage(support.storage_config(extra), {})
        storage.register_mem_pool_host(support.MHATokenToKVPoolHost(4, 64))
        return SimpleNamespace(storage=storage, controller=HiCacheController(storage))

    def fingerprint(self, engine: Any) -> str | None:
        found: str | None = engine.storage._client.options["namespace"].fingerprint
        return found

    def store(self, engine: Any, key: str) -> bool:
        return bool(engine.storage.batch_set_v1([key], support.Indices(range(4)))[0])

    def finds(self, engine: Any, key: str) -> bool:
        found = engine.storage.batch_exists([key]) == 1
        self.assertEqual(engine.storage.batch_get_v1([key], support.Indices(range(4))), [found])
        return found

    def request(self, version: str | None = None, succeeds: bool = True, while_updating: Any = lambda: None) -> Any:
        return SimpleNamespace(
            weight_version=version, version=version, succeeds=succeeds, while_updating=while_updating
        )

    def test_after_a_reset_without_a_reason_nothing_is_shared_until_the_weights_are_told(self) -> None:
        one, other = self.engine(), self.engine()
        self.assertTrue(self.store(one, "before"))
        with self.assertLogs("meshcache.sglang", "WARNING") as log:
            one.controller.reset()
        self.assertIn("was reset, and the reason is not known", log.output[0])
        self.assertFalse(self.finds(one, "before"))
        self.assertTrue(self.store(one, "after") and self.finds(one, "after"))
        self.assertFalse(self.finds(other, "after"))
        other.controller.reset()
        self.assertFalse(self.finds(other, "after"), "engines with unknown weights do not share")
        for engine in (one, other):
            engine.storage.set_fingerprint("v2")
            self.assertFalse(self.finds(engine, "before") or self.finds(engine, "after"))
        self.assertTrue(self.store(one, "told") and self.finds(other, "told"))
        for engine in (one, other):
            engine.controller.reset()
        meshcache.sglang.set_fingerprint("v2")
        self.assertTrue(self.finds(one, "told") and self.finds(other, "told"), "the same weights, told again")

    def test_a_reset_of_another_engine_of_the_process_changes_nothing(self) -> None:
        one, other = self.engine(), self.engine()
        before = self.fingerprint(other)
        one.controller.reset()
        self.assertEqual(self.fingerprint(other), before)

    def test_the_reset_of_a_tree_that_is_being_made_changes_nothing(self) -> None:
        engine = self.engine()

        class Tree:
            def __init__(self, controller: HiCacheController) -> None:
                self.cache_controller = controller
                self.cache_controller.reset()

        Tree(engine.controller)
        self.assertIsNone(self.fingerprint(engine))

    def test_a_statement_keeps_pages_over_resets_and_not_over_changes(self) -> None:
        with scheduler() as updater:
            engine = self.engine({"on_reset": "same_weights"})
            self.assertTrue(self.store(engine, "a"))
            engine.controller.reset()
            self.assertTrue(self.finds(engine, "a"))
            updater.update_weights_from_disk(self.request())
            engine.controller.reset()
            self.assertFalse(self.finds(engine, "a"))
            self.assertTrue(self.store(engine, "b") and self.finds(engine, "b"))

    def test_a_version_that_the_engine_names_is_followed(self) -> None:
        one, other = self.engine(), self.engine()
        self.store(one, "a")
        support.server_args.get_global_server_args().weight_version = "v2"
        self.assertFalse(self.finds(one, "a"))
        self.assertTrue(self.store(one, "b") and self.finds(other, "b"))
        self.assertEqual(self.fingerprint(self.engine()), "v2", "an engine that starts with this version")

    def test_an_update_with_a_version_shares_with_engines_of_that_version(self) -> None:
        with scheduler() as updater:
            one = self.engine()
            self.store(one, "old")
            inside: list[bool] = []

            def while_updating() -> None:
                inside.append(self.store(one, "mixed"))
                one.controller.reset()
                inside.append(self.store(one, "mixed"))

            updater.update_weights_from_disk(self.request("v2", while_updating=while_updating))
            self.assertEqual(inside, [False, False], "nothing is stored before the update has ended")
            self.assertEqual(self.fingerprint(one), "v2")
            self.assertFalse(self.finds(one, "old") or self.finds(one, "mixed"))
            self.assertTrue(self.store(one, "new") and self.finds(self.engine(), "new"))

    def test_pages_of_the_former_weights_are_not_stored_before_the_cache_is_dropped(self) -> None:
        """With ``flush_cache=False`` the engine's own cache goes on with pages of both weights."""
        with scheduler() as updater:
            engine = self.engine()
            updater.update_weights_from_tensor(self.request("v2"))
            self.assertFalse(self.store(engine, "old"))
            engine.storage.set_fingerprint("v2")
            self.assertFalse(self.store(engine, "old"))
            engine.controller.reset()
            self.assertEqual(self.fingerprint(engine), "v2")
            self.assertTrue(self.store(engine, "new"))

    def test_a_change_without_a_version_is_unknown_until_it_is_told(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            updater.update_weights_from_disk(self.request("v2"))
            engine.controller.reset()
            updater.update_weights_from_disk(self.request())
            engine.controller.reset()
            self.assertRegex(str(self.fingerprint(engine)), "^unknown-")
            updater.handle_update_weight_version(SimpleNamespace(new_version="v2"))
            self.assertEqual(self.fingerprint(engine), "v2", "a version that SGLang has named before")

    def test_during_a_change_it_may_be_told_that_the_name_alone_identifies_the_weights(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            updater.update_weights_from_tensor(self.request())
            engine.storage.set_fingerprint(None)
            engine.controller.reset()
            self.assertIsNone(self.fingerprint(engine))

    def test_a_change_that_failed_is_of_no_version(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            updater.update_weights_from_disk(self.request("v2", succeeds=False))
            support.server_args.get_global_server_args().weight_version = "default"
            engine.controller.reset()
            self.assertRegex(str(self.fingerprint(engine)), "^unknown-")

    def test_weights_that_come_in_a_session_count_at_its_end(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            updater.begin_weight_update()
            updater.update_weights_from_tensor(self.request("v2"))
            engine.controller.reset()
            self.assertFalse(self.store(engine, "a"))
            updater.end_weight_update()
            self.assertTrue(self.store(engine, "a"))
            self.assertEqual(self.fingerprint(engine), "v2")

    def test_calls_that_the_engine_rejects_neither_open_nor_end_an_update(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            self.assertFalse(updater.end_weight_update().success)
            self.assertTrue(self.store(engine, "a"))
            self.assertTrue(updater.begin_weight_update().success)
            self.assertFalse(updater.begin_weight_update().success)
            updater.update_weights_from_tensor(self.request("v2"))
            self.assertTrue(updater.end_weight_update().success)
            self.assertFalse(updater.end_weight_update().success)
            self.assertFalse(self.store(engine, "a"), "the cache has not been flushed")
            engine.controller.reset()
            self.assertTrue(self.store(engine, "a"))
            self.assertEqual(self.fingerprint(engine), "v2")

    def test_a_flush_while_an_update_is_open_is_warned_of_once(self) -> None:
        with scheduler() as updater:
            engine = self.engine()
            updater.begin_weight_update()
            with self.assertLogs("meshcache.sglang", "WARNING") as log:
                engine.controller.reset()
                engine.controller.reset()
            self.assertEqual(len(log.output), 1)
            self.assertIn("until /end_weight_update has succeeded", log.output[0])

    def test_an_update_that_fails_to_open_leaves_unknown_weights(self) -> None:
        class Failing(Scheduler):
            def begin_weight_update(self) -> SimpleNamespace:
                raise RuntimeError("out of memory")

        with scheduler(Failing) as updater:
            engine = self.engine()
            with self.assertRaises(RuntimeError):
                updater.begin_weight_update()
            self.assertFalse(self.store(engine, "a"))
            engine.controller.reset()
            self.assertTrue(self.store(engine, "a"))
            self.assertRegex(str(self.fingerprint(engine)), "^unknown-")

    def test_what_was_begun_with_other_weights_is_not_finished(self) -> None:
        engine = self.engine()
        storage = engine.storage
        begun, told = threading.Event(), threading.Event()
        original = storage._client.set_from

        def slow(*arguments: Any, **named: Any) -> Any:
            if not begun.is_set():
                begun.set()
                told.wait(60)
            return original(*arguments, **named)

        results: list[list[bool]] = []
        with mock.patch.object(storage._client, "set_from", slow), mock.patch(
            "meshcache.sglang.storage._SLICE_PAGES", 1
        ):
            thread = threading.Thread(
                target=lambda: results.append(storage.batch_set_v1(["a", "b"], support.Indices(range(8))))
            )
            thread.start()
            self.assertTrue(begun.wait(60))
            storage.set_fingerprint("v2")
            told.set()
            thread.join()
        self.assertFalse(results[0][1])

    def test_a_process_whose_changes_cannot_be_followed_shares_with_nobody(self) -> None:
        with mock.patch.dict(sys.modules, {"sglang.srt.managers.scheduler": types.ModuleType("scheduler")}):
            with self.assertLogs("meshcache.sglang", "WARNING") as log:
                engine = self.engine()
            self.assertIn("private=", engine.storage._client.options["namespace"].layout)
            self.assertIn("its resets is unknown", log.output[0])

    def test_clearing_the_storage_after_a_change_takes_no_pages_of_others(self) -> None:
        one, other = self.engine(), self.engine()
        for engine in (one, other):
            engine.storage.set_fingerprint("v2")
        self.assertTrue(self.store(other, "a"))
        self.assertTrue(one.storage.clear())
        self.assertTrue(self.finds(other, "a"))
        self.assertTrue(self.store(one, "b"))
        self.assertTrue(one.storage.clear())
        self.assertFalse(self.finds(other, "a"), "pages of the same identity and weights")

    def started(self, extra: Any = None) -> Any:
        """An engine with a controller that has made its storage at the start."""
        made = SimpleNamespace(controller=HiCacheController(make=lambda: self.made(extra)))
        made.storage = made.controller.storage_backend
        return made

    def made(self, extra: Any) -> MeshCacheStorage:
        storage = MeshCacheStorage(support.storage_config(extra), {})
        storage.register_mem_pool_host(support.MHATokenToKVPoolHost(4, 64))
        return storage

    def attach_again(self, engine: Any, extra: Any = None) -> None:
        engine.controller.attach_storage_backend(lambda: self.made(extra))
        engine.storage = engine.controller.storage_backend

    def test_a_storage_that_is_attached_again_has_the_weights_of_its_engine(self) -> None:
        with scheduler() as updater:
            engine = self.started()
            self.assertTrue(self.store(engine, "old"))
            engine.controller.detach_storage_backend()
            self.attach_again(engine)
            self.assertTrue(self.finds(engine, "old"), "nothing has changed")
            engine.controller.detach_storage_backend()
            updater.update_weights_from_disk(self.request())
            engine.controller.reset()
            self.attach_again(engine)
            self.assertFalse(self.finds(engine, "old"))
            self.assertRegex(str(self.fingerprint(engine)), "^unknown-")
            engine.controller.detach_storage_backend()
            updater.update_weights_from_disk(self.request("v2"))
            engine.controller.reset()
            self.attach_again(engine)
            self.assertEqual(self.fingerprint(engine), "v2")

    def test_a_storage_that_is_attached_while_weights_change_is_shut(self) -> None:
        with scheduler() as updater:
            engine = self.started()
            engine.controller.detach_storage_backend()
            updater.begin_weight_update()
            self.attach_again(engine)
            self.assertFalse(self.store(engine, "mixed"))
            updater.end_weight_update()
            self.assertFalse(self.store(engine, "mixed"))
            engine.controller.reset()
            self.assertTrue(self.store(engine, "new"))

    def test_a_fingerprint_of_the_start_says_nothing_of_later_weights(self) -> None:
        with scheduler() as updater:
            engine = self.started({"fingerprint": "mine"})
            self.assertEqual(self.fingerprint(engine), "mine")
            engine.controller.detach_storage_backend()
            support.server_args.get_global_server_args().weight_version = "v2"
            self.attach_again(engine, {"fingerprint": "mine"})
            self.assertEqual(self.fingerprint(engine), "v2")
            engine.controller.detach_storage_backend()
            updater.update_weights_from_disk(self.request())
            engine.controller.reset()
            self.attach_again(engine, {"fingerprint": "mine"})
            self.assertRegex(str(self.fingerprint(engine)), "^unknown-")
            engine.controller.detach_storage_backend()
            self.attach_again(engine, {"fingerprint": "new"})
            self.assertEqual(self.fingerprint(engine), "new")

    def test_the_weights_of_an_engine_that_nobody_has_followed_are_unknown(self) -> None:
        for extra, expected in ((None, "^unknown-"), ({"fingerprint": "mine"}, "^mine$")):
            with scheduler():
                engine = SimpleNamespace(controller=HiCacheController())
                self.attach_again(engine, extra)
                self.assertRegex(str(self.fingerprint(engine)), expected)
                engine.storage.set_fingerprint("v1")
                self.assertEqual(self.fingerprint(engine), "v1")

    def test_each_engine_of_a_process_gets_its_own_weights_back(self) -> None:
        one, other = self.started(), self.started()
        self.assertTrue(self.store(one, "a"))
        other.controller.reset()
        unknown = self.fingerprint(other)
        one.controller.detach_storage_backend()
        self.attach_again(one)
        self.assertTrue(self.finds(one, "a"))
        self.assertEqual(self.fingerprint(other), unknown)

    def test_what_is_stated_of_resets_holds_from_the_attach_on(self) -> None:
        engine = self.started()
        engine.controller.reset()
        engine.controller.detach_storage_backend()
        with self.assertLogs("meshcache.sglang", "WARNING") as log:
            self.attach_again(engine, {"on_reset": "same_weights"})
        self.assertIn("the weights of the running engine are not known", log.output[0])
        engine.storage.set_fingerprint("v1")
        engine.controller.reset()
        self.assertEqual(self.fingerprint(engine), "v1")
        engine.controller.detach_storage_backend()
        self.attach_again(engine)
        engine.controller.reset()
        self.assertRegex(str(self.fingerprint(engine)), "^unknown-")

    def test_the_weights_of_a_storage_that_is_gone_do_not_keep_it_alive(self) -> None:
        engine = self.started()
        gone = weakref.ref(engine.storage)
        del engine
        FakeClient.reset()
        gc.collect()
        self.assertIsNone(gone())

    def test_weights_from_elsewhere_than_the_files_are_unknown(self) -> None:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
            Path(folder, "config.json").write_text("{}")
            Path(folder, "model.safetensors").write_bytes(b"one")
            Path(empty, "config.json").write_text("{}")
            cases: list[dict[str, Any]] = [
                {"model_path": folder, "load_format": "remote_instance"},
                {"model_path": folder, "load_format": "private"},
                {"model_path": folder, "weight_cache_mode": "client"},
                {"model_path": empty},
                {"model_path": f"{folder}/gone"},
                {"model_path": "../gone"},
                {"model_path": "s3://bucket/model"},
                {"model_path": "owner/gone", "delete_ckpt_after_loading": True},
            ]
            for given in cases:
                with self.subTest(given), support.arguments(**given):
                    with self.assertLogs("meshcache.sglang", "WARNING") as log:
                        engine = self.engine()
                    self.assertRegex(str(self.fingerprint(engine)), "^unknown-")
                    self.assertIn('state "fingerprint" in the extra config', log.output[0])
                    self.assertEqual(self.fingerprint(self.engine({"fingerprint": "mine"})), "mine")
                with support.arguments(**given, weight_version="v1"):
                    self.assertEqual(self.fingerprint(self.engine()), "v1")
            with support.arguments(model_path=empty, load_format="dummy"):
                self.assertIsNone(self.fingerprint(self.engine()), "they follow from the configuration")
            with support.arguments(model_path="owner/name"):
                self.assertIsNone(self.fingerprint(self.engine()), "the name says it")

    def test_the_files_of_a_model_are_its_first_fingerprint(self) -> None:
        made: list[str | None] = []
        for weights in (b"one", b"one", b"two"):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "config.json").write_text("{}")
                Path(folder, "model.safetensors").write_bytes(weights)
                with support.arguments(model_path=folder):
                    made.append(self.fingerprint(self.engine()))
                with support.arguments(model_path=folder, weight_version="v1"):
                    self.assertEqual(self.fingerprint(self.engine()), "v1")
                    self.assertEqual(self.fingerprint(self.engine({"fingerprint": "mine"})), "mine")
        self.assertRegex(str(made[0]), "^files:")
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])


if __name__ == "__main__":
    unittest.main()
