"""Which engines share pages, on SGLang's own classes: those that agree in every fact, and no others."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import lab
import sglang.srt.environ as environ
from harness.nodes import Cluster
from meshcache.sglang import changes, geometry

PAGES = 4
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
LOGGER = "meshcache.sglang"

#: The identity of the same pages in every release of SGLang that is tested.
SAME_TEXT = (
    "sglang/2 adapters=none axes=nhd compute=bfloat16 config=name:dummy context=none cp=0/1 dcp=0/1 draft=none dtype=bfloat16 first_layer=0 format=none "
    "head_dim=32 heads=4 kind=heads kv_scales=none layers=4 load=auto options=none overrides=none page=16 pieces=2x16384 quantization=none revision=none "
    "storage=page_first"
)


class IdentityTest(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(1)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cluster.close()
        cls.folder.cleanup()

    def setUp(self) -> None:
        self.tag = lab.new_tag()
        self.keys = lab.hashes(self.tag, PAGES)

    def engine(self, **spec: Any) -> lab.Engine:
        engine = lab.Engine(self.cluster.nodes[0].client_socket, self.tag, **spec)
        self.addCleanup(engine.close)
        return engine

    def shares(self, one: dict[str, Any], other: dict[str, Any]) -> int:
        """How many of the pages that one engine has stored the other one gets. The first one itself gets all of them."""
        self.tag = lab.new_tag()
        writer = self.engine(**one)
        writer.fill(7)
        self.assertEqual(writer.store(self.keys), PAGES)
        self.assertEqual(writer.found(self.keys), PAGES)
        return self.engine(**other).found(self.keys)

    def model(self, name: str, rope_theta: int, weights: bytes) -> str:
        """A folder with a model."""
        folder = Path(self.folder.name, name)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "rope_theta": rope_theta}))
        (folder / "model.safetensors").write_bytes(weights)
        return str(folder)

    def test_equal_engines_share(self) -> None:
        for spec in self.bases():
            with self.subTest(spec):
                self.assertEqual(self.shares(spec, spec), PAGES)

    def bases(self) -> list[dict[str, Any]]:
        kinds: list[dict[str, Any]] = [{}, {"kind": "mla"}, {"layout": "page_head"}, {"layout": "layer_first"}]
        kinds += [{"layout": "page_first_direct", "io": "direct"}, {"dtype": "fp8_e4m3", "kv_cache_dtype": "fp8_e4m3"}]
        return kinds if lab.HAS_HIRADIX else [*kinds, {"kind": "swa"}, {"kind": "mamba"}]

    def test_the_text_is_the_same_in_every_release(self) -> None:
        self.assertEqual(self.engine().layout, SAME_TEXT)

    def test_one_fact_that_differs(self) -> None:
        facts: list[dict[str, Any]] = [
            {"model": "other"},
            {"dtype": "float16"},
            {"dtype": "fp8_e4m3", "kv_cache_dtype": "fp8_e4m3"},
            {"layers": 6},
            {"heads": 2, "head_dim": 64},
            {"head_dim": 64},
            {"page_size": 32},
            {"layout": "page_head"},
            {"layout": "layer_first"},
            {"layout": "page_first_direct", "io": "direct"},
            {"rank": 0, "ranks": 2},
            {"rank": 1, "ranks": 2},
            {"kind": "mla"},
            {"revision": "other"},
            {"load_format": "dummy"},
            {"load_format": "private"},
            {"json_model_override_args": '{"rope_theta": 5}'},
            {"context_length": 1 << 20},
            {"quantization": "fp8"},
            {"forward_hooks": [{"name": "scale", "hook_factory": "own:scale"}]},
            {"dllm_algorithm": "LowConfidence"},
            {"enable_precise_embedding_interpolation": True},
            {"weight_version": "other"},
            {"extra": {"fingerprint": "other"}},
            {"extra": {"tag": "other"}},
        ]
        for fact in facts:
            with self.subTest(fact):
                self.assertEqual(self.shares({}, fact), 0)

    def test_kinds_of_8_bit_floats(self) -> None:
        kinds: list[dict[str, Any]] = [{}, {"kind": "mla"}, {"layout": "page_head", "extra": {"tp_lcm_size": 2}}]
        for kind in kinds if lab.HAS_HIRADIX else [*kinds, {"kind": "swa"}, {"kind": "mamba"}]:
            one, other = ({**kind, "dtype": name, "kv_cache_dtype": name} for name in ("fp8_e4m3", "fp8_e5m2"))
            with self.subTest(kind):
                self.assertEqual(self.shares(one, one), PAGES)
                self.assertEqual(self.shares(one, other), 0)

    def test_a_kind_that_cannot_be_read(self) -> None:
        unknown = {"dtype": "fp8_e4m3"}
        if lab.HAS_HIRADIX:
            self.assertEqual(self.shares(unknown, unknown), PAGES, "the host pool knows its device pool")
            return
        with self.assertLogs(LOGGER, "WARNING") as log:
            self.assertEqual(self.shares(unknown, unknown), 0)
        self.assertIn('state it in the extra config: "facts": {"dtype"', "".join(log.output))
        stated = {**unknown, "extra": {"facts": {"dtype": "float8_e4m3fn", "compute": "bfloat16"}}}
        self.assertEqual(self.shares(stated, stated), PAGES)

    def test_switches_of_the_environment(self) -> None:
        """Releases that do not have a switch share with engines that have not set it."""
        switches = {"SGLANG_USE_HND_KVCACHE": "1", "SGLANG_FP8_IGNORED_LAYERS": "lm_head"}
        switches["SGLANG_HUMMING_ONLINE_QUANT_CONFIG"] = '{"dtype": "int4"}'
        for name, value in switches.items():
            has_it = hasattr(environ.envs, name)
            with self.subTest(name), mock.patch.dict(os.environ):
                os.environ.pop(name, None)
                writer = self.engine()
                self.assertEqual(writer.store(self.keys), PAGES)
                os.environ[name] = value
                engine = self.engine()
                self.assertNotIn("private", engine.layout)
                self.assertEqual(engine.found(self.keys), 0 if has_it else PAGES)

    def test_encodings_of_compressed_pages(self) -> None:
        """The pools themselves need a GPU that this machine may not have; SGLang's choice of their encoding does not."""
        with mock.patch.dict(os.environ):
            os.environ.pop("SGLANG_DSV4_KV_LAYOUT", None)
            self.engine()
            self.assertEqual(geometry._encoding(), "v4")
            if not hasattr(environ.envs, "SGLANG_DSV4_KV_LAYOUT"):
                return
            found = [geometry._encoding()]
            with mock.patch("torch.cuda.is_available", return_value=True), mock.patch(
                "torch.cuda.get_device_capability", return_value=(10, 0)
            ), mock.patch("torch.version.cuda", "13.0"):
                for mode in ("v41", "v41_new"):
                    os.environ["SGLANG_DSV4_KV_LAYOUT"] = mode
                    found.append(geometry._encoding())
            self.assertEqual([one[0] for one in found], ["v", "v41", "v41_new"])

    def test_mla_pages_are_those_of_all_sizes(self) -> None:
        self.assertEqual(
            self.shares({"kind": "mla"}, {"kind": "mla", "rank": 1, "ranks": 2}), PAGES, "replicated pages"
        )
        self.assertEqual(self.shares({"kind": "mla"}, {"kind": "mla", "latent": 64}), 0)

    def test_heads_that_are_split_are_those_of_all_sizes(self) -> None:
        split: dict[str, Any] = {"layout": "page_head", "extra": {"tp_lcm_size": 2}}
        wide, narrow = {**split, "heads": 4}, {**split, "heads": 2, "ranks": 2}
        self.assertEqual(self.shares(narrow, wide), 0, "half of the heads")
        self.tag = lab.new_tag()
        for rank in range(2):
            engine = self.engine(**{**narrow, "rank": rank})
            engine.fill(3)
            self.assertEqual(engine.store(self.keys), PAGES)
        self.assertEqual(self.engine(**wide).found(self.keys), PAGES)
        with self.assertRaisesRegex(ValueError, "cannot be split"):
            self.engine(**{**split, "heads": 4, "extra": {"tp_lcm_size": 8}})

    def test_models_in_folders(self) -> None:
        one, moved = self.model("one", 1, b"weights"), self.model("moved", 1, b"weights")
        self.assertEqual(self.shares({"model_path": one}, {"model_path": moved}), PAGES, "another folder")
        configured, trained = self.model("x", 2, b"weights"), self.model("y", 1, b"others")
        for other in (configured, trained):
            self.assertEqual(self.shares({"model_path": one}, {"model_path": other}), 0)

    def test_storage_that_is_attached_again(self) -> None:
        """Weights that have changed meanwhile are those of the new storage."""
        writer = self.engine()
        self.assertEqual(writer.store(self.keys), PAGES)
        self.attach_again(writer)
        self.assertEqual(writer.found(self.keys), PAGES, "nothing has changed")
        writer.tree.detach_storage_backend()
        weights: Any = changes.of_engine(writer.controller)
        weights.update_begins()
        weights.update_ends(None, has_told=True)
        writer.controller.reset()
        self.attach_again(writer)
        self.assertEqual(writer.found(self.keys), 0)
        self.assertEqual(self.engine().found(self.keys), PAGES, "an engine that starts")

    def attach_again(self, engine: lab.Engine) -> None:
        if engine.controller.storage_backend is not None:
            self.assertEqual(engine.tree.detach_storage_backend()[0], True)
        done = engine.tree.attach_storage_backend(
            storage_backend="dynamic",
            storage_backend_extra_config_json=json.dumps(engine.extra),
            served_model_name=engine.arguments.served_model_name,
        )
        self.assertEqual(done[0], True, done[1])
        engine.storage = engine.controller.storage_backend

    def test_experts_on_the_cpu(self) -> None:
        """Their weights are others than those of the model."""
        one, same, other = (self.model(f"experts-{at}", 1, data) for at, data in enumerate((b"x", b"x", b"y")))
        usual: dict[str, Any] = {"kt_weight_path": one}
        cases: list[tuple[dict[str, Any], dict[str, Any], int]] = [
            ({}, usual, 0),
            (usual, {"kt_weight_path": same}, PAGES),
            (usual, {"kt_weight_path": other}, 0),
            (usual, {**usual, "kt_method": "AMXINT8"}, 0),
        ]
        for writer, reader, pages in cases:
            with self.subTest(reader):
                self.assertEqual(self.shares(writer, reader), pages)

    def test_adapters_of_the_start(self) -> None:
        """SGLang has them as texts or mappings, and as objects once it has resolved its arguments."""
        if lab.HAS_HIRADIX:
            self.skipTest("adapters are refused")
        more = {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["q_proj"]}
        folder = self.model("adapter", 1, b"x")
        named = {**more, "lora_paths": [f"name={folder}"]}
        told = {**more, "lora_paths": [{"lora_name": "name", "lora_path": folder}]}
        self.assertEqual(self.shares(named, named), PAGES)
        self.assertEqual(self.shares(named, told), PAGES)
        self.assertEqual(self.shares(named, {}), 0)
        self.tag = lab.new_tag()
        self.assertEqual(self.engine(**named).store(self.keys), PAGES)
        self.model("adapter", 1, b"y")
        self.assertEqual(self.engine(**named).found(self.keys), 0, "its files were replaced")

    def test_models_of_the_other_hub(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop("SGLANG_USE_MODELSCOPE", None)
            self.assertEqual(self.engine().store(self.keys), PAGES)
            self.assertEqual(self.engine().found(self.keys), PAGES)
            os.environ["SGLANG_USE_MODELSCOPE"] = "true"
            self.assertEqual(self.engine().found(self.keys), 0)

    def test_a_fact_that_cannot_be_read(self) -> None:
        """Each is taken away on both sides: nothing tells whether they are the same."""
        places = ["layout", "layer_num", "start_layer", "head_num", "head_dim", "dtype"]
        for place in places:
            with self.subTest(place), self.assertLogs(LOGGER, "WARNING") as log:
                engines = [self.engine() for _ in range(2)]
                for engine in engines:
                    self.register_without(engine, place)
                engines[0].store(self.keys)
                self.assertEqual(engines[1].storage.batch_exists(self.keys), 0)
                layouts = [engine.layout for engine in engines]
                self.assertTrue(all("private=" in layout for layout in layouts))
                self.assertIn("shares pages with no other engine", "".join(log.output))

    def register_without(self, engine: lab.Engine, place: str) -> None:
        pool = engine.host_pool
        hidden = type(type(pool).__name__, (type(pool),), {})

        def gone(self: Any) -> Any:
            raise AttributeError(place)

        class Proxy:
            def __getattr__(self, name: str) -> Any:
                if name == place:
                    raise AttributeError(name)
                return getattr(pool, name)

        Proxy.__name__ = hidden.__name__
        engine.storage._pools = {}
        engine.storage.register_mem_pool_host(Proxy())

    def test_server_arguments_that_cannot_be_read(self) -> None:
        with mock.patch("meshcache.sglang.framework._server_arguments", side_effect=RuntimeError("moved")):
            with self.assertLogs(LOGGER, "WARNING") as log:
                self.assertEqual(self.shares({}, {}), 0)
        self.assertIn("its config is unknown", "".join(log.output))

    def test_adapters_and_namespaces(self) -> None:
        if lab.HAS_HIRADIX:
            with self.assertRaisesRegex(ValueError, "LoRA adapters the same key"):
                self.engine(enable_lora=True)
            return
        engine, other = self.engine(), self.engine()
        engine.compute(3, 2, namespace="adapter")
        self.assertEqual(other.restore(3, 2), 0, "the base model")
        self.assertEqual(self.engine().restore(3, 2, namespace="adapter"), 2 * engine.page)


if __name__ == "__main__":
    logging.getLogger(LOGGER).setLevel(os.environ.get("LEVEL", "WARNING"))
    unittest.main()
