"""What the LMCache plug-in learns of engines, and the keys that their pages have in the cluster."""

from __future__ import annotations

import os
import tempfile
import threading
import types
import unittest
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import lmcache_support as support
from lmcache_support import wait_for

from meshcache._engines import model_files
from meshcache._engines.silence import Silence
from meshcache._engines.weights import Weights
from meshcache.lmcache import Settings, hooks
from meshcache.lmcache.epochs import Epochs
from meshcache.lmcache.framework import logger
from meshcache.lmcache.identity import facts_of
from meshcache.lmcache.pages import PageKeys
from meshcache.lmcache.server import LMCacheServer

KEY = "org/model@02000200@1@00ff"


class dtype:
    """An element type of torch."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.itemsize = name, size

    def __str__(self) -> str:
        return f"torch.{self.name}"


dtype.__module__ = "torch"
FLOAT16, BFLOAT16, UINT8, FLOAT8 = (
    dtype("float16", 2),
    dtype("bfloat16", 2),
    dtype("uint8", 1),
    dtype("float8_e4m3fn", 1),
)


@dataclass
class Layout:
    """A ``MemoryLayoutDesc``."""

    shapes: list[tuple[int, ...]]
    dtypes: list[dtype]


def layout(kind: dtype = FLOAT16, shape: tuple[int, ...] = (2, 4, 256, 64)) -> Layout:
    return Layout([shape], [kind])


def settings(**given: Any) -> Settings:
    return Settings.parse({"facts": {"engine": "test"}, **given})


class PagesTest(unittest.TestCase):
    @staticmethod
    def keys(server: LMCacheServer, **given: Any) -> PageKeys:
        return PageKeys(settings(**given), server, logger)

    def key(self, *layouts: Layout, model: str = "org/model", **given: Any) -> str | None:
        """The key of a page, for a server with engines of these layouts."""
        server = LMCacheServer()
        keys = self.keys(server, **given)
        for each in layouts:
            server.register(model, 2, each, {0: each, 1: each})
        return keys.key_of(KEY.replace("org/model", model), length=None, are_weights_told=False)

    def test_equal_engines_have_equal_keys_and_others_have_not(self) -> None:
        self.assertEqual(self.key(layout()), self.key(layout()))
        self.assertEqual(self.key(layout()), self.key(layout(), layout()))
        facts = {"engine": "test", "kv_cache_dtype": "fp8_e4m3"}
        others = [
            layout(BFLOAT16),
            layout(shape=(2, 8, 256, 32)),
            layout(shape=(4, 256, 128)),
            Layout([(2, 4, 256, 32), (2, 4, 256, 32)], [FLOAT16, FLOAT16]),
        ]
        keys = [self.key(layout()), *map(self.key, others)]
        keys += [self.key(layout(kind), facts=facts) for kind in (UINT8, FLOAT8)]
        self.assertEqual(len(set(keys)), len(keys))
        for key in keys:
            assert key is not None
            self.assertTrue(key.endswith("@" + KEY))

    def test_what_is_not_known_is_shared_with_nobody(self) -> None:
        cases: list[tuple[str, list[Layout], str]] = [
            ("no engine has registered it", [], "org/model"),
            ("their elements have one byte", [layout(UINT8)], "org/model"),
            ("their elements have one byte", [layout(FLOAT8)], "org/model"),
            ("cannot read LMCache's description of them", [Layout([], [])], "org/model"),
            ("cannot read LMCache's description of them", [Layout([(1,)], ["float16"])], "org/model"),  # type: ignore[list-item]
            ("does not see that folder", [layout()], "/nowhere/model"),
        ]
        for text, layouts, model in cases:
            with self.assertLogs(logger, "WARNING") as logs:
                one, other = (self.key(*layouts, model=model) for _ in range(2))
            self.assertNotEqual(one, other, text)
            self.assertEqual([text in line for line in logs.output], [True] * 2, logs.output)
        self.assertEqual(
            *(self.key(layout(), model="/nowhere/model", fingerprint="one") for _ in range(2)),
        )

    def test_engines_of_one_name_and_two_forms_have_no_pages(self) -> None:
        with self.assertLogs(logger, "WARNING") as logs:
            self.assertIsNone(self.key(layout(), layout(BFLOAT16), layout(BFLOAT16)))
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("have registered different pages with this server", logs.output[0])

    def test_pages_that_were_converted_need_a_statement(self) -> None:
        length = 2 * 4 * 256 * 64 * 2
        for given, allowed in [({}, [length]), ({"facts": {"engine": "test", "serde": "fp8"}}, [length, 7])]:
            server = LMCacheServer()
            keys = self.keys(server, **given)
            server.register("org/model", 2, layout(), {1: layout()})
            for each in (length, 7):
                if each in allowed:
                    self.assertIsNotNone(keys.key_of(KEY, length=each, are_weights_told=False))
                else:
                    with self.assertRaisesRegex(ValueError, '"facts": {"serde": "..."}'):
                        keys.key_of(KEY, length=each, are_weights_told=False)

    def test_the_files_of_a_model_count_unless_the_weights_are_told(self) -> None:
        def key_in(folder: str, **given: Any) -> str:
            server = LMCacheServer()
            keys = self.keys(server, **given)
            server.register(folder, 2, layout(), {1: layout()})
            name = KEY.replace("org/model", folder)
            found = wait_for("the files are read", lambda: keys.key_of(name, length=None, are_weights_told=bool(given)))
            return str(found).partition("@")[0]

        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for folder, weights in ((first, b"one"), (second, b"two")):
                with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                    file.write(weights)
            self.assertNotEqual(key_in(first), key_in(second))
            self.assertEqual(key_in(first), key_in(first))
            self.assertEqual(key_in(first, fingerprint="w"), key_in(second, fingerprint="w"))

    def test_files_that_were_replaced_before_an_engine_started_anew_bring_no_pages_of_before(self) -> None:
        server = LMCacheServer()
        keys = self.keys(server)
        with tempfile.TemporaryDirectory() as folder:
            name = KEY.replace("org/model", folder)

            def write(weights: bytes) -> None:
                with open(os.path.join(folder, "model.safetensors.new"), "wb") as file:
                    file.write(weights)
                os.replace(file.name, os.path.join(folder, "model.safetensors"))

            def key(are_weights_told: bool = False) -> str | None:
                return keys.key_of(name, length=None, are_weights_told=are_weights_told)

            def start() -> None:
                server.register(folder, 2, layout(), {1: layout()})

            write(b"one")
            start()
            first = wait_for("the files are read", key)
            start()
            self.assertEqual(key(), first, "a further engine of the same files")
            write(b"one")
            start()
            self.assertEqual(wait_for("the files are read again", key), first, "the same files, written anew")
            write(b"two")
            with self.assertLogs(logger, "WARNING") as logs:
                start()
                wait_for("the change is seen", lambda: logs.output or None)
            self.assertIn("have changed since its engines registered first", logs.output[0])
            self.assertIsNone(key())
            self.assertIsNotNone(key(are_weights_told=True))
            start()
            self.assertIsNone(key(), "LMCache still has pages of the former files")
            server.cleared()
            second = wait_for("the files are read again", key)
            self.assertNotEqual(second, first)

    def test_a_folder_without_weights_says_nothing_of_them(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertLogs(logger, "WARNING") as logs:
            found = []
            for _ in range(2):
                server = LMCacheServer()
                keys = self.keys(server)
                server.register(folder, 2, layout(), {1: layout()})
                name = KEY.replace("org/model", folder)
                found.append(wait_for("it is read", lambda: keys.key_of(name, length=None, are_weights_told=False)))
            self.assertNotEqual(*found)
            self.assertIn("it has no files of weights", logs.output[0])

    def test_a_clear_while_files_are_read_again_counts(self) -> None:
        server = LMCacheServer()
        keys = self.keys(server)
        with tempfile.TemporaryDirectory() as folder:
            name = KEY.replace("org/model", folder)
            path, goes_on = os.path.join(folder, "model.safetensors"), threading.Event()
            os.symlink("nowhere", os.path.join(folder, "README.md"))
            digest = model_files.folder_digest

            def slowly(folder: str) -> str | None:
                found = digest(folder)
                goes_on.wait()
                return found

            def key() -> str | None:
                return keys.key_of(name, length=None, are_weights_told=False)

            for weights in (b"one", b"other"):
                with open(path, "wb") as file:
                    file.write(weights)
                with mock.patch.object(model_files, "folder_digest", slowly if weights == b"other" else digest):
                    server.register(folder, 2, layout(), {1: layout()})
                    if weights == b"one":
                        first = wait_for("the files are read", key)
                        continue
                    self.assertIsNone(key())
                    server.cleared()
                    goes_on.set()
                    self.assertNotEqual(wait_for("the files are read again", key), first)


class FactsTest(unittest.TestCase):
    def layout(self, facts: Mapping[str, str]) -> str:
        return facts_of(settings(facts=facts))[0].layout

    def test_engines_must_be_stated(self) -> None:
        self.assertEqual(self.layout({"engine": "vllm"}), "lmcache/2 engine=vllm page=none")
        self.assertNotEqual(self.layout({}), self.layout({}))
        found, _ = facts_of(settings(facts={}))
        with self.assertLogs(logger, "WARNING") as logs:
            found.warn(logger, "adapter_params")
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn('state it in adapter_params: "facts": {"engine": "..."}', logs.output[0])

    def test_every_statement_counts(self) -> None:
        layouts = {
            self.layout({"engine": "vllm", **more}) for more in ({}, {"dtype": "x"}, {"dtype": "y"}, {"scales": "x"})
        }
        self.assertEqual(len(layouts), 4)

    def test_a_release_whose_engines_are_out_of_sight_needs_a_statement(self) -> None:
        with mock.patch.object(hooks, "is_installed", return_value=True):
            found, server = facts_of(settings())
            self.assertIsNone(server)
            self.assertEqual([fact.name for fact in found.missing], ["page"])
            self.assertIn("there is no method lmcache.v1", found.missing[0].why)
            self.assertEqual(facts_of(settings(facts={"engine": "e", "page": "p"}))[0].missing, ())


class HooksTest(unittest.TestCase):
    @contextmanager
    def modules(self) -> Iterator[tuple[Any, Any]]:
        """A registry and a storage of LMCache."""

        class LayoutDescRegistry:
            registered: list[tuple[Any, ...]] = []

            def register(
                self,
                model_name: str,
                world_size: int,
                layout_desc: Any,
                attn_desc: Any = None,
                group_layout_descs: Any = None,
            ) -> None:
                self.registered.append((model_name, world_size))

        class StorageManager:
            def clear(self, force: bool = False) -> str:
                return f"cleared {force}"

        context = types.SimpleNamespace(LayoutDescRegistry=LayoutDescRegistry)
        storage = types.SimpleNamespace(StorageManager=StorageManager)
        known = {hooks._CONTEXT: context, hooks._STORAGE: storage}
        with mock.patch.object(hooks, "imported", known.get):
            yield LayoutDescRegistry, StorageManager

    def test_registrations_and_clears_are_told_once_however_often_it_is_asked_for(self) -> None:
        with self.modules() as (registry, storage):
            server = hooks.server_of_this_process()
            self.assertIs(hooks.server_of_this_process(), server)
            observer = mock.Mock()
            server.add(observer)
            registry().register("m", 1, layout_desc=layout())
            windows = types.SimpleNamespace(num_chunks_in_sw=[-1, 3])
            registry().register("n", 2, layout(), windows)
            self.assertEqual(registry.registered, [("m", 1), ("n", 2)])
            found = [call.args[0] for call in observer.registered.call_args_list]
            self.assertEqual(
                [(each.model, each.world_size, list(each.forms)) for each in found], [("m", 1, [0]), ("n", 2, [0, 1])]
            )
            self.assertEqual(storage().clear(force=True), "cleared True")
            observer.cleared.assert_called_once_with()
            late = mock.Mock()
            server.add(late)
            self.assertEqual(late.registered.call_count, 2)

    def test_methods_in_another_form_are_not_touched(self) -> None:
        with self.modules() as (registry, storage):
            for owner, name, other in [
                (registry, "register", lambda self, model, layout: None),
                (registry, "register", None),
                (storage, "clear", None),
            ]:
                with mock.patch.object(owner, name, other), self.assertRaises(hooks.HookError):
                    hooks.server_of_this_process()


class EpochsTest(unittest.TestCase):
    def test_work_of_one_epoch_is_not_done_in_another(self) -> None:
        used: list[str | None] = []
        epochs = Epochs(Weights("one"), used.append)
        before = epochs.now
        self.assertTrue(epochs.begin(before))
        change = threading.Thread(target=epochs.told, args=("two",))
        change.start()
        wait_for("the client has left", lambda: len(used) == 1)
        # While one is under way, no other begins, of whatever epoch.
        self.assertFalse(epochs.begin(before) or epochs.begin(epochs.now))
        self.assertFalse(epochs.end(before))
        change.join()
        self.assertEqual((len(used), used[1], epochs.fingerprint), (2, "two", "two"))
        self.assertFalse(epochs.begin(before))
        self.assertTrue(epochs.begin(epochs.now) and epochs.end(epochs.now))
        self.assertFalse(epochs.told("two"))
        self.assertEqual(len(used), 2)


class SilenceTest(unittest.TestCase):
    def test_it_lasts_until_the_node_answers(self) -> None:
        answers, pings, ended = threading.Event(), threading.Semaphore(0), mock.Mock()

        def ping(timeout: float) -> bool:
            pings.release()
            return answers.is_set()

        client: Any = types.SimpleNamespace(is_connected=True, ping=ping)
        silence = Silence(ended)
        self.addCleanup(silence.close)
        self.assertFalse(silence.is_on)
        silence.begin(client)
        for _ in range(3):
            self.assertTrue(pings.acquire(timeout=support.PATIENCE_SECONDS))
        self.assertTrue(silence.is_on)
        ended.assert_not_called()
        answers.set()
        wait_for("it is over", lambda: ended.call_count == 1)
        self.assertFalse(silence.is_on)

    def test_it_ends_when_the_node_is_gone(self) -> None:
        ended = mock.Mock()
        client: Any = types.SimpleNamespace(is_connected=True, ping=lambda timeout: False)
        silence = Silence(ended)
        self.addCleanup(silence.close)
        silence.begin(client)
        self.assertTrue(silence.is_on)
        client.is_connected = False
        wait_for("it is over", lambda: not silence.is_on)
        ended.assert_not_called()


if __name__ == "__main__":
    unittest.main()
