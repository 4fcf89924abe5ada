"""Whose page it is: facts that are read, missing or stated; weights that change; the files of a model."""

from __future__ import annotations

import enum
import json
import logging
import os
import random
import struct
import tempfile
import unittest
import unittest.mock
from collections import OrderedDict
from typing import Any

from support import NodeTest
from meshcache._engines import model_files
from meshcache._engines.identity import Facts, Unreadable, value_text
from meshcache._engines.weights import Weights, fingerprint_of


def facts_of(values: dict[str, Any], stated: dict[str, str] | None = None) -> Facts:
    facts = Facts("engine", stated)
    for name, value in values.items():
        facts.read(name, lambda value=value: value() if callable(value) else value, where=f"config.{name}")
    return facts


def fail() -> Any:
    raise AttributeError("no such attribute")


class Kind(enum.Enum):
    ONE = "1"


class FactsTest(NodeTest):
    GIVEN = {"dtype": "bfloat16", "heads": 8, "layers": [0, 32], "scaled": False, "kind": Kind.ONE}

    def test_equal_facts_have_one_layout_in_any_order(self) -> None:
        layout = facts_of(self.GIVEN).layout
        self.assertEqual(layout, facts_of(dict(reversed(list(self.GIVEN.items())))).layout)
        self.assertRegex(layout, r"^engine/2 dtype=bfloat16 heads=8 kind=ONE layers=~[0-9a-f]{32} scaled=false$")
        self.assertEqual(facts_of(self.GIVEN).missing, ())

    def test_each_fact_counts(self) -> None:
        layouts = {facts_of(self.GIVEN).layout}
        others = {"dtype": "float16", "heads": 4, "layers": [1, 32], "scaled": True, "kind": "TWO"}
        for name, other in others.items():
            layouts.add(facts_of({**self.GIVEN, name: other}).layout)
            layouts.add(facts_of({key: value for key, value in self.GIVEN.items() if key != name}).layout)
        self.assertEqual(len(layouts), 1 + 2 * len(others))

    def test_an_unreadable_fact_shares_with_nobody_and_is_named(self) -> None:
        for unreadable in (None, fail, object(), [object()], lambda: value_text(None)):
            with self.subTest(unreadable=unreadable):
                one, other = (facts_of({**self.GIVEN, "dtype": unreadable}) for _ in range(2))
                self.assertNotEqual(one.layout, other.layout)
                self.assertRegex(one.layout, r" private=[0-9a-f]{32}$")
                self.assertEqual([fact.name for fact in one.missing], ["dtype"])
                self.lines.clear()
                one.warn(self.log, "the extra config")
                self.assertRegex(
                    self.lines[0],
                    r"^WARNING this engine shares pages with no other engine: its dtype is unknown \(config\.dtype: .+\); "
                    r'state it in the extra config: "facts": \{"dtype": "\.\.\."\}',
                )

    def test_a_stated_fact_counts_where_it_cannot_be_read(self) -> None:
        stated = {"dtype": "bfloat16"}
        self.assertEqual(facts_of({**self.GIVEN, "dtype": fail}, stated).layout, facts_of(self.GIVEN).layout)
        self.assertEqual(facts_of({**self.GIVEN, "dtype": "float16"}, stated).layout.count("float16"), 1)
        self.assertEqual(facts_of({**self.GIVEN, "dtype": fail}, stated).missing, ())

    def test_a_stated_name_that_is_no_fact_is_named_beside_the_missing_one(self) -> None:
        self.lines.clear()
        facts_of({**self.GIVEN, "dtype": fail}, {"heads": "8", "dtyp": "bfloat16"}).warn(self.log, "the extra config")
        self.assertIn('; the facts there have "dtyp", which is no fact of these pages', self.lines[0])

    def test_a_name_is_given_once(self) -> None:
        facts = facts_of({"a": 1})
        for name in ("a", "private", "A", "a b", ""):
            with self.subTest(name), self.assertRaises(AssertionError):
                facts.read(name, lambda: 1, where="")

    def test_texts_are_the_same_for_equal_values_only(self) -> None:
        self.assertEqual(value_text({"b": 1, "a": [2, 3.5]}), value_text(OrderedDict([("a", (2, 3.5)), ("b", 1)])))
        self.assertEqual(value_text({3, 1, 2}), value_text(frozenset((2, 3, 1))))
        # A text that looks like a digest is none, and what has spaces or is long cannot be taken for another fact.
        for text in ("~" + "0" * 32, "a b=c", "x" * 65, "", "größe"):
            self.assertRegex(value_text(text), r"^~[0-9a-f]{32}$")
        self.assertEqual(len({value_text(text) for text in ("a b", "a  b", "ab", "")}), 4)
        with self.assertRaises(Unreadable):
            value_text({"a": print})


class WeightsTest(unittest.TestCase):
    def test_after_a_reset_nobody_shares_until_told(self) -> None:
        one, other = Weights("v1"), Weights("v1")
        self.assertTrue(one.are_known)
        self.assertTrue(one.reset() and other.reset())
        self.assertFalse(one.are_known or other.are_known)
        self.assertEqual(len({"v1", one.fingerprint, other.fingerprint}), 3)
        before = one.fingerprint
        self.assertTrue(one.reset())
        self.assertNotEqual(one.fingerprint, before)
        self.assertTrue(one.told("v2") and other.told("v2"))
        self.assertEqual((one.fingerprint, other.fingerprint, one.epoch), ("v2", "v2", 3))
        self.assertFalse(one.told("v2"))
        self.assertEqual(one.epoch, 3)

    def test_a_statement_keeps_the_pages(self) -> None:
        fixed = Weights("v1", are_fixed=True)
        self.assertFalse(fixed.reset())
        self.assertEqual((fixed.fingerprint, fixed.epoch), ("v1", 0))
        named = Weights(None)
        self.assertTrue(named.reset() and named.told(None))
        self.assertEqual((named.fingerprint, named.epoch, named.are_known), (None, 2, True))

    def test_weights_that_do_change_are_unknown_whatever_is_stated_of_resets(self) -> None:
        fixed = Weights("v1", are_fixed=True)
        fixed.forget()
        self.assertFalse(fixed.are_known)
        self.assertEqual(fixed.epoch, 1)
        self.assertNotEqual(fixed.fingerprint, "v1")
        self.assertTrue(fixed.told("v2"))

    def test_a_version_of_any_text_is_a_fingerprint(self) -> None:
        self.assertEqual(fingerprint_of("step-12"), "step-12")
        texts = ("two words", "größe", "", "x" * 129, "unknown-of-somebody")
        fingerprints = {fingerprint_of(text) for text in texts}
        self.assertEqual(len(fingerprints), len(texts))
        for fingerprint in fingerprints:
            self.assertRegex(fingerprint, r"^sha256:[0-9a-f]{64}$")


def safetensors(tensors: dict[str, bytes]) -> bytes:
    """A file of tensors of bytes: length of the header, header, data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


class ModelFilesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meshcache-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.random = random.Random(7)
        self.tensors = {f"layer.{at}": self.random.randbytes(40_000) for at in range(8)}

    def model(self, name: str, **files: bytes | dict[str, Any]) -> str:
        folder = os.path.join(self.root, name)
        os.makedirs(folder, exist_ok=True)
        given: dict[str, bytes | dict[str, Any]] = {
            "config.json": {"rope_theta": 10_000, "model_type": "llama"},
            "model.safetensors": safetensors(self.tensors),
            "README.md": name.encode(),
            **{key.replace("__", "."): value for key, value in files.items()},
        }
        for file, content in given.items():
            with open(os.path.join(folder, file), "wb") as to:
                to.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return folder

    def digests(self, *folders: str) -> list[str | None]:
        return [model_files.folder_digest(folder) for folder in folders]

    def test_equal_files_are_one_model_wherever_they_lie(self) -> None:
        config = b'{ "model_type": "llama",\n "_name_or_path": "/somewhere/else", "rope_theta": 10000 }'
        one, other = self.digests(self.model("one"), self.model("other", config__json=config))
        self.assertEqual(one, other)
        self.assertRegex(one or "", r"^files:[0-9a-f]{32}$")

    def test_one_byte_of_any_tensor_or_setting_is_another_model(self) -> None:
        found = self.digests(self.model("one"))
        found += self.digests(self.model("rope", config__json={"rope_theta": 20_000, "model_type": "llama"}))
        for at, name in enumerate(self.tensors):
            changed = {**self.tensors, name: self.tensors[name][:-1] + b"\0"}
            found += self.digests(self.model(f"changed-{at}", model__safetensors=safetensors(changed)))
        self.assertEqual(len(set(found)), 2 + len(self.tensors))

    def test_code_and_processors_of_a_model_and_any_kind_of_weights_count(self) -> None:
        kinds = ("modeling_own__py", "preprocessor_config__json", "video_preprocessor_config__json", "model__tensors")
        for name in kinds:
            with self.subTest(name):
                one, same, other = self.digests(
                    *(self.model(f"{name}-{at}", **{name: data}) for at, data in enumerate((b"1", b"1", b"2")))
                )
                self.assertEqual(one, same)
                self.assertNotEqual(one, other)

    def test_of_large_weights_each_tensor_is_sampled(self) -> None:
        with unittest.mock.patch.object(model_files, "WHOLE_MAX_BYTES", 1000):
            found = self.digests(self.model("one"), self.model("same"))
            for at, name in enumerate(self.tensors):
                data = self.tensors[name]
                other = {"start": b"\0" * 10 + data[10:], "end": data[:-10] + b"\0" * 10}
                for where, content in other.items():
                    changed = safetensors({**self.tensors, name: content})
                    found += self.digests(self.model(f"{where}-{at}", model__safetensors=changed))
            self.assertEqual(found[0], found[1])
            self.assertEqual(len(set(found)), 1 + 2 * len(self.tensors))
            # A file whose tensors cannot be told apart is sampled all over.
            for name in ("pytorch_model.bin", "broken.safetensors"):
                data = self.random.randbytes(3_000_000)
                one, other = (
                    self.digests(self.model(f"{name}-{end!r}", **{name.replace(".", "__"): data[:-1] + end}))[0]
                    for end in (b"a", b"b")
                )
                self.assertNotEqual(one, other)

    def test_weights_of_an_unknown_kind_count_wherever_they_are_in_the_folder(self) -> None:
        def model(name: str, path: str, data: bytes) -> str:
            folder = self.model(name)
            os.remove(os.path.join(folder, "model.safetensors"))
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            for file, content in ((path, data), ("LICENSE", name.encode()), ("tokenizer.json", name.encode())):
                with open(os.path.join(folder, file), "wb") as to:
                    to.write(content)
            return folder

        for path in ("flax_model.msgpack", "layers/0.tensorstore"):
            with self.subTest(path):
                found = self.digests(
                    *(model(f"{path[:4]}-{at}", path, data) for at, data in enumerate((b"1", b"1", b"2")))
                )
                self.assertRegex(found[0] or "", r"^files:")
                self.assertEqual(found[0], found[1])
                self.assertNotEqual(found[0], found[2])
        # Only a licence and a vocabulary: the weights are somewhere else.
        self.assertEqual(self.digests(model("without", "LICENSE", b"")), [None])

    def test_a_folder_without_weights_has_no_digest(self) -> None:
        os.makedirs(os.path.join(self.root, "empty"))
        self.assertEqual(self.digests(os.path.join(self.root, "empty")), [None])
        with self.assertRaises(OSError):
            model_files.folder_digest(os.path.join(self.root, "nowhere"))

    def test_a_downloaded_model_is_found_by_name_and_revision(self) -> None:
        cache = os.path.join(self.root, "hub")
        snapshots = os.path.join(cache, "models--org--name", "snapshots")
        for commit in ("c0ffee", "beef"):
            os.makedirs(os.path.join(snapshots, commit))
        os.makedirs(os.path.join(cache, "models--org--name", "refs"))
        with open(os.path.join(cache, "models--org--name", "refs", "main"), "w") as file:
            file.write("c0ffee")
        with unittest.mock.patch.dict(os.environ, {"HF_HUB_CACHE": cache}):
            self.assertEqual(model_files.local_folder("org/name"), os.path.join(snapshots, "c0ffee"))
            self.assertEqual(model_files.local_folder("org/name", "beef"), os.path.join(snapshots, "beef"))
            for model, revision in (("org/name", "other"), ("org/else", None), ("/org/name", None), ("a/b/c", None)):
                self.assertIsNone(model_files.local_folder(model, revision))
            self.assertEqual(model_files.local_folder(self.root), self.root)
            # The engine may keep downloads elsewhere, and what is here may be old.
            self.assertIsNone(model_files.local_folder("org/name", None, os.path.join(self.root, "downloads")))
        self.assertEqual(model_files.local_folder("org/name", None, cache), os.path.join(snapshots, "c0ffee"))


if __name__ == "__main__":
    logging.disable(logging.NOTSET)
    unittest.main()
