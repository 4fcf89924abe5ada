"""Which engines share chunks: pairs that differ in one fact, of vLLM's own configurations, connector, specification and manager."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import unittest
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from configurations import (
    HAS_LAYOUT,
    Case,
    attention,
    latent,
    model_folder,
    namespace,
    states,
    tier_of,
    tier_types,
    vllm_config,
)
from vllm.config import AttentionConfig, ModelConfig, MultiModalConfig

from meshcache.vllm.adapters import Adapters

#: What this version can be told of images, sounds and videos.
OF_MEDIA = MultiModalConfig.__dataclass_fields__

LONG_ROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 32,
    "long_factor": [2.0] * 32,
    "original_max_position_embeddings": 1024,
    "factor": 4.0,
}


def _scales(config: Any) -> None:
    config.cache_config.calculate_kv_scales = True


def _pruning(method: str) -> Callable[[Any], None]:
    """An engine that leaves out tokens of videos, chosen in this way."""

    def change(config: Any) -> None:
        config.model_config.multimodal_config = MultiModalConfig(video_pruning_rate=0.5)
        if "video_pruning_method" in OF_MEDIA:
            config.model_config.multimodal_config.video_pruning_method = method

    return change


def _encoder_scales(content: bytes | None) -> Callable[[Any], None]:
    """An engine whose encoder of images computes in fp8 with the scales of a file; None: with scales that it measures."""

    def change(config: Any) -> None:
        media = MultiModalConfig(mm_encoder_attn_dtype="fp8")
        config.model_config.multimodal_config = media
        if content is not None:
            with tempfile.NamedTemporaryFile(delete=False) as file:
                file.write(content)
            unittest.addModuleCleanup(os.unlink, file.name)
            media.mm_encoder_fp8_scale_path = file.name

    return change


def _llama4(length: int) -> Callable[[Any], None]:
    """An engine of this length, whose model has what Llama 4 has."""

    def change(config: Any) -> None:
        config.model_config.max_model_len = length
        config.model_config.hf_config.attn_temperature_tuning = True

    return change


def _hidden_states(layers: list[int]) -> dict[str, Any]:
    """Options of an engine that keeps the hidden states of these layers."""
    return {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
    }


#: Engines that differ from the usual one in one fact.
APART = {
    "compute_dtype": Case({"dtype": "bfloat16"}, spec=attention(dtype=torch.bfloat16)),
    # Two of the same size.
    "float16": Case({"dtype": "float16"}, spec=attention(dtype=torch.float16)),
    "kv_dtype": Case(change=lambda config: setattr(config.cache_config, "cache_dtype", "fp8_e4m3")),
    "kind of fp8": Case(change=lambda config: setattr(config.cache_config, "cache_dtype", "fp8_e5m2")),
    "RoPE": Case({"hf_overrides": {"rope_theta": 500000.0}}),
    "epsilon": Case({"hf_overrides": {"rms_norm_eps": 0.001}}),
    "revision": Case(change=lambda config: setattr(config.model_config, "revision", "v2")),
    "quantization": Case(change=lambda config: setattr(config.model_config, "quantization", "fp8")),
    "load": Case({"load_format": "safetensors"}),
    "layers": Case(layers=3),
    "heads": Case(spec=attention(heads=4)),
    "block": Case({"block_size": 64}, spec=attention(block_size=64)),
    "chunk": Case(extra={"block_size": 128}),
    "tp": Case(tp_size=2),
    "tag": Case(tier={"tag": "other"}),
    "fingerprint": Case(tier={"fingerprint": "other"}),
    "skipped layers": Case(change=lambda config: setattr(config.cache_config, "kv_cache_dtype_skip_layers", ["0"])),
    "backend": Case(change=lambda config: setattr(config.attention_config, "backend", "FLASHINFER")),
    "files left out": Case(change=lambda config: setattr(config.load_config, "ignore_patterns", ["model-2*"])),
    "plug-in": Case(change=lambda config: setattr(config, "additional_config", {"order": "nz"})),
    "pruning": Case(change=_pruning("evs")),
    "order of bytes on ROCm": Case(environment={"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "1"}),
    "inputs of Marlin": Case(environment={"VLLM_MARLIN_INPUT_DTYPE": "fp8"}),
    "scaled by positions": Case(change=_llama4(65536)),
    "not scaled by positions": Case(change=_llama4(2048)),
    "hidden states": Case({"speculative_config": _hidden_states([1, 2])}),
    "other hidden states": Case({"speculative_config": _hidden_states([1, 3])}),
}
if HAS_LAYOUT:
    APART |= {
        "layout": Case(layout="LBNHC"),
        "canonical": Case(extra={"canonical_layout": True}),
        "canonical, other layout": Case(extra={"canonical_layout": True}, layout="LBNHC"),
    }
else:
    APART |= {"layout": Case(environment={"VLLM_KV_CACHE_LAYOUT": "NHD"})}

if "model_class_overrides" in ModelConfig.__dataclass_fields__:
    APART["classes"] = Case(
        change=lambda config: setattr(config.model_config, "model_class_overrides", {"LlamaForCausalLM": "own:Llama"})
    )
if "indexer_kv_dtype" in AttentionConfig.__dataclass_fields__:
    APART["indexer"] = Case(change=lambda config: setattr(config.attention_config, "indexer_kv_dtype", "mxfp4"))
    APART["other indexer"] = Case(change=lambda config: setattr(config.attention_config, "indexer_kv_dtype", "nvfp4"))
if "mm_encoder_fp8_scale_path" in OF_MEDIA:
    APART["scales of the encoder"] = Case(change=_encoder_scales(b'{"q": 1}'))
    APART["other scales of the encoder"] = Case(change=_encoder_scales(b'{"q": 2}'))
if "video_pruning_method" in OF_MEDIA:
    APART["other pruning"] = Case(change=_pruning("vidcom2"))

#: Engines that share with the usual one.
TOGETHER = {
    "pool": Case(extra={"cpu_bytes_to_use": 128 << 20}),
    "engine": Case(change=lambda config: setattr(config.kv_transfer_config, "engine_id", "other")),
    "replica": Case(change=lambda config: setattr(config.parallel_config, "data_parallel_index", 3)),
    "length": Case({"max_model_len": 1024}),
    "requests": Case({"max_num_seqs": 7, "enforce_eager": True}),
    "name": Case({"served_model_name": "other"}),
    "seed": Case({"seed": 7}),
    "registered name": Case(extra={"secondary_tiers": [{"type": "meshcache", "timeout": 1}]}),
    "module": Case(tier={"module_path": "meshcache.vllm"}),
}

#: Facts that cannot be read.
UNREADABLE = {
    "overrides": Case({"hf_overrides": lambda config: config}),
    "kv_scales": Case(change=_scales),
    "load": Case(change=lambda config: setattr(config.load_config, "model_loader_extra_config", object())),
    "quantization": Case(change=lambda config: setattr(config.model_config, "quantization", object())),
    "compute_dtype": Case(change=lambda config: setattr(config.model_config, "dtype", None)),
    "attention": Case(change=lambda config: setattr(config.attention_config, "backend", object())),
    "draft": Case(change=lambda config: delattr(config, "speculative_config")),
}
if "mm_encoder_fp8_scale_path" in OF_MEDIA:
    UNREADABLE["media"] = Case(change=_encoder_scales(None))


class IdentityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = model_folder()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.usual = namespace(Case(), cls.folder)

    def test_the_usual_engine_shares(self) -> None:
        self.assertNotIn("private=", self.usual.layout)
        self.assertTrue(self.usual.fingerprint.startswith("files:"))
        self.assertEqual(namespace(Case(), self.folder), self.usual)

    def test_one_fact_keeps_engines_apart(self) -> None:
        found = {}
        for name, case in APART.items():
            with self.subTest(name):
                found[name] = namespace(case, self.folder)
                self.assertNotIn("private=", found[name].layout)
        self.assertEqual(len({self.usual, *found.values()}), 1 + len(APART))

    def test_what_chunks_do_not_show_does_not(self) -> None:
        for name, case in TOGETHER.items():
            with self.subTest(name):
                self.assertEqual(namespace(case, self.folder), self.usual)

    def test_files_of_the_model(self) -> None:
        """The name is the same, and the folder is not."""
        spaces = []
        for config, weight in (({}, b""), ({"rope_theta": 7.0}, b""), ({}, b"x")):
            folder = model_folder(**config)
            self.addCleanup(shutil.rmtree, folder)
            with open(os.path.join(folder, "model.safetensors"), "ab") as file:
                file.write(weight)
            made = namespace(Case(), folder)
            spaces.append((made.layout.replace(folder, ""), made.fingerprint))
        self.assertEqual(spaces[0], (self.usual.layout, self.usual.fingerprint))
        self.assertEqual(len(set(spaces)), 3)

    def test_length_where_positions_depend_on_it(self) -> None:
        def space(length: int) -> Any:
            overrides = {"rope_parameters": LONG_ROPE, "rope_scaling": LONG_ROPE, "max_position_embeddings": 4096}
            return namespace(Case({"max_model_len": length, "hf_overrides": overrides}), self.folder)

        self.assertEqual(space(512), space(1024))
        self.assertEqual(space(2048), space(4096))
        self.assertNotEqual(space(1024), space(2048))

    def test_states_in_padded_pages(self) -> None:
        """Pages of states are as large as those of attention, whatever is in them."""
        cases = [
            Case(spec=states()),
            Case(spec=states(rows=4)),
            Case(spec=states(dtype=torch.float16)),
            # Set late: vLLM chooses the layout itself on some CPUs.
            Case(spec=states(), change=lambda config: os.environ.update(VLLM_SSM_CONV_STATE_LAYOUT="DS")),
        ]
        with mock.patch.object(ModelConfig, "has_inner_state", True):
            made = [namespace(case, self.folder) for case in cases]
            self.assertEqual(namespace(Case(spec=states()), self.folder), made[0])
        self.assertEqual(len(set(made)), len(cases))
        self.assertFalse([space for space in made if "private=" in space.layout])

    def test_weights_that_are_not_in_the_files(self) -> None:
        with self.assertLogs("vllm.meshcache", logging.WARNING) as logs:
            one, other = (namespace(Case({"load_format": "ipc_cache"}), self.folder) for _ in range(2))
        self.assertNotEqual(one.fingerprint, other.fingerprint)
        self.assertTrue(any('set "fingerprint"' in line for line in logs.output), logs.output)
        drawn, again = (namespace(Case({"load_format": "dummy"}), self.folder) for _ in range(2))
        self.assertEqual(drawn, again)
        self.assertNotEqual(drawn, namespace(Case(), self.folder))

    def test_latent_pages_and_numbers_of_workers(self) -> None:
        """As vLLM's own FileMapper has it."""
        from vllm.v1.kv_offload.file_mapper import FileMapper

        with mock.patch.object(ModelConfig, "use_mla", True):
            cases = [Case(spec=latent(), tp_size=size) for size in (1, 2, 4)]
            if HAS_LAYOUT:
                cases += [Case(spec=latent(), tp_size=size, extra={"canonical_layout": True}) for size in (1, 2, 4)]
            made, files = [], []
            for case in cases:
                with tier_of(case, self.folder) as tier:
                    made.append(tier.namespace)
                    files.append(FileMapper.from_offloading_spec("/x", tier._spec, parallel_agnostic=True).base_path)
        for one in range(len(cases)):
            for other in range(one):
                self.assertEqual(made[one] == made[other], files[one] == files[other], (one, other))

    def test_facts_that_cannot_be_read(self) -> None:
        for name, case in UNREADABLE.items():
            if name == "kv_scales" and HAS_LAYOUT:
                # Newer versions calculate no scales.
                continue
            with self.subTest(name), self.assertLogs("vllm.meshcache", logging.WARNING) as logs:
                one, other = namespace(case, self.folder), namespace(case, self.folder)
                self.assertNotEqual(one, other)
                self.assertTrue(any(f"its {name} is unknown" in line for line in logs.output), logs.output)

    def test_facts_that_are_stated(self) -> None:
        overrides = Case({"hf_overrides": lambda config: config}, tier={"facts": {"overrides": "mine"}})
        one, other = namespace(overrides, self.folder), namespace(overrides, self.folder)
        self.assertEqual(one, other)
        self.assertNotEqual(one, self.usual)


class AdapterOptionsTest(unittest.TestCase):
    def test_options_that_decide_what_of_an_adapter_is_applied(self) -> None:
        folder = model_folder()
        self.addCleanup(shutil.rmtree, folder)
        request = SimpleNamespace(lora_int_id=1, lora_name="adapter", lora_path=folder)
        marks = []
        for options in (
            {},
            {"lora_dtype": "auto", "max_lora_rank": 32},
            {"lora_dtype": "float16"},
            {"lora_target_modules": ["q_proj"]},
            {"enable_tower_connector_lora": True},
        ):
            adapters = Adapters()
            adapters.configure(vllm_config(Case({"enable_lora": True, **options}), folder))
            marks.append(adapters.mark(mock.Mock(lora_request=request)))
        self.assertEqual(marks[0], marks[1])
        self.assertEqual(len(set(marks)), 4)


class PluginTest(unittest.TestCase):
    def test_the_tier_is_known_by_name(self) -> None:
        from meshcache.vllm.plugin import register

        register()
        self.assertLessEqual({"meshcache", "MeshCacheTier"}, set(tier_types()))


class OptionsTest(unittest.TestCase):
    def test_requests_choose_the_tier_by_medium_and_place(self) -> None:
        from vllm.v1.kv_offload import base

        if not hasattr(base, "TierFilter"):
            self.skipTest("this version has no choice of tiers")
        folder = model_folder()
        self.addCleanup(shutil.rmtree, folder)
        with tier_of(Case(tier={"locality": "REMOTE"}), folder) as tier:
            chosen = [
                base.TierFilter((base.TierMatcher(medium, place),)).allows(tier.medium, tier.locality)
                for medium, place in (
                    (base.Medium.STORAGE, base.Locality.REMOTE),
                    (base.Medium.CPU, None),
                    (None, base.Locality.LOCAL),
                )
            ]
            self.assertEqual(chosen, [True, False, False])
            self.assertEqual(tier.cache_hit_source.value, "external_unspecified")

    def test_an_option_that_a_version_ignores_is_told(self) -> None:
        folder = model_folder()
        self.addCleanup(shutil.rmtree, folder)
        case = Case(extra={"block_size": None, "blocks_per_chunk": 2})
        with self.assertLogs("vllm.meshcache", logging.WARNING) as logs, tier_of(case, folder) as tier:
            logging.getLogger("vllm.meshcache").warning("at least one line")
        told = [line for line in logs.output if "ignores blocks_per_chunk" in line]
        self.assertEqual(bool(told), not hasattr(tier._spec, "blocks_per_chunk"))


class SeedTest(unittest.TestCase):
    def test_a_random_seed_is_told(self) -> None:
        """Newer versions have one seed for all engines, unless the hash is a weak one."""
        folder = model_folder()
        self.addCleanup(shutil.rmtree, folder)
        weak = lambda config: setattr(config.cache_config, "prefix_caching_hash_algo", "xxhash")  # noqa: E731
        for case, is_random in ((Case(), not HAS_LAYOUT), (Case(change=weak), True)):
            with self.assertLogs("vllm.meshcache", logging.WARNING) as logs:
                logging.getLogger("vllm.meshcache").warning("at least one line")
                with tier_of(case, folder, seed=None):
                    pass
            told = [line for line in logs.output if "PYTHONHASHSEED is not set" in line]
            self.assertEqual(bool(told), is_random)


if __name__ == "__main__":
    unittest.main()
