"""Which engines share chunks, by the specification and the configuration that vLLM gives the tier."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import unittest
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import vllm_support as support

import vllm
from vllm import envs

from meshcache import Namespace
from meshcache.vllm import Settings
from meshcache.vllm.identity import Identity, identify
from meshcache.vllm.model import MODEL_FACTS

LONG_ROPE = {"rope_type": "longrope", "original_max_position_embeddings": 4096}


def newer(spec: dict[str, Any] | None = None, facts: dict[str, str] | None = None, **config: Any) -> Identity:
    """The identity of an engine of a version with ``OffloadingConfig``. ``spec`` and ``config`` name what is not as usual."""
    made = support.newer_spec(**(spec or {}))
    return identify(made, support.vllm_config(made, **config), 4096, Settings(facts=facts or {}))


def older(**spec: Any) -> Identity:
    made = support.older_spec(**spec)
    return identify(made, made.vllm_config, 4096, Settings())


class IdentityTest(unittest.TestCase):
    def shared(self, identity: Identity) -> Namespace:
        self.assertEqual([missing.name for missing in identity.facts.missing], [])
        return identity.namespace

    def test_engines_that_differ_in_what_chunks_do_not_show_share(self) -> None:
        usual = self.shared(newer())
        self.assertTrue(usual.computed)
        for spec in (
            {"engine_id": "other"},
            {"data_parallel_index": 3},
            {"extra_config": {"cpu_bytes_to_use": 1 << 40}},
            {"enable_kv_cache_events": True},
            {"worker_kv_bytes_per_block": 1},
        ):
            self.assertEqual(self.shared(newer(spec)), usual, str(spec))
        for config in (
            {"cache__prefix_caching_hash_algo": "sha256_cbor"},
            {"model__max_model_len": 8192},
            {"model__revision": "main"},
            {"load__model_loader_extra_config": {"num_threads": 8}},
        ):
            self.assertEqual(self.shared(newer(**config)), usual, str(config))
        self.assertEqual(self.shared(older()), self.shared(older()))

    def test_engines_that_differ_in_one_fact_never_share(self) -> None:
        specs: list[dict[str, Any]] = [
            {},
            {"name": "other"},
            {"dtype": "fp8"},
            {"dtype": "fp8_e5m2"},
            {"tokens_per_block": 32},
            {"tokens_per_hash": 8},
            {"blocks_per_chunk": 4},
            {"layer_names": ("layer.0",)},
            {"tp_size": 2},
            {"pp_size": 2},
            {"pcp_size": 2},
            {"dcp_size": 2},
            {"canonical_layout": True},
            {"canonical_layout": True, "kv_cache_layout": "LBNHC"},
            {"kv_cache_layout": "LBNHC"},
            {"replicated_layout": True},
        ]
        configs: list[dict[str, Any]] = [
            {"model__dtype": "float16"},
            {"model__override_attention_dtype": "float32"},
            {"model__hf_overrides": {"rope_theta": 1e6}},
            {"model__hf_overrides": {"rms_norm_eps": 1e-6}},
            {"model__revision": "v2"},
            {"model__code_revision": "v2"},
            {"model__quantization": "fp8"},
            {"model__quantization_config": {"linear": "int8"}},
            {"load__load_format": "safetensors"},
            {"load__model_loader_extra_config": {"tensorizer_uri": "s3://other"}},
            {"cache__kv_cache_dtype_skip_layers": ["0"]},
            {"attention__backend": "FLASHINFER"},
            {"attention__backend_per_kind": {"mla": "FLASHMLA"}},
            {
                "model__multimodal_config": SimpleNamespace(
                    mm_processor_kwargs={"size": 1},
                    video_pruning_rate=None,
                    video_pruning_method="evs",
                    mm_encoder_attn_dtype=None,
                    mm_encoder_fp8_scale_path=None,
                )
            },
            {
                "model__multimodal_config": SimpleNamespace(
                    mm_processor_kwargs=None,
                    video_pruning_rate=None,
                    video_pruning_method="evs",
                    mm_encoder_attn_dtype=None,
                    mm_encoder_fp8_scale_path=None,
                )
            },
        ]
        spaces = [self.shared(newer(spec)) for spec in specs] + [self.shared(newer(**config)) for config in configs]
        spaces += [
            self.shared(older(**spec))
            for spec in (
                {},
                {"model": "other"},
                {"cache_dtype": "fp8"},
                {"dtype": "torch.float16"},
                {"block_size": 32},
                {"layer_names": ["layer.0"]},
                {"tensor_parallel_size": 2},
                {"pipeline_parallel_size": 2},
                {"prefill_context_parallel_size": 2},
                {"decode_context_parallel_size": 2},
            )
        ]
        self.assertEqual(len(set(spaces)), len(spaces))

    def test_older_releases_share_with_themselves_alone(self) -> None:
        """0.26 has changed in which order keys and values lie, and the name of the layout is the same."""
        spaces = []
        for version in ("0.25.1", "0.26.0"):
            with mock.patch.object(vllm, "__version__", version):
                spaces += [self.shared(older()), self.shared(older())]
        self.assertEqual(spaces[0], spaces[1])
        self.assertNotEqual(spaces[0], spaces[2])

    def test_the_length_counts_where_the_positions_depend_on_it(self) -> None:
        def space(length: int) -> Namespace:
            hf_config = SimpleNamespace(rope_parameters=LONG_ROPE)
            return self.shared(newer(model__hf_config=hf_config, model__max_model_len=length))

        self.assertEqual(space(2048), space(4096))
        self.assertEqual(space(8192), space(16384))
        self.assertNotEqual(space(4096), space(8192))

    def test_the_length_counts_where_attention_is_scaled_by_it(self) -> None:
        """As Llama 4 does, unless its configuration for generation says otherwise."""

        def space(length: int, generation: Any = None, override: Any = None) -> Namespace:
            return self.shared(
                newer(
                    model__hf_text_config=SimpleNamespace(attn_temperature_tuning=True),
                    model__max_model_len=length,
                    model__try_get_generation_config=lambda: generation or {},
                    model__override_generation_config=override or {},
                )
            )

        is_on, is_off = {"attn_temperature_tuning": True}, {"attn_temperature_tuning": False}
        self.assertEqual(space(4096), space(32768))
        self.assertEqual(space(32769), space(4096, is_on))
        self.assertEqual(space(4096), space(65536, is_on, is_off))
        self.assertNotEqual(space(32768), space(32769))

    def test_the_length_counts_where_the_base_of_rope_follows_from_it(self) -> None:
        rope = {"rope_type": "dynamic", "max_trained_positions": 2048}
        for parameters, is_same in ((rope, False), ({"rope_type": "dynamic"}, True)):
            hf_config = SimpleNamespace(rope_parameters=parameters)
            one, other = (self.shared(newer(model__hf_config=hf_config, model__max_model_len=n)) for n in (4096, 8192))
            self.assertEqual(one == other, is_same)

    def test_states_count_by_how_they_lie_in_a_page(self) -> None:
        """Pages are padded, so that the size of a chunk does not tell."""

        def space(layout: str = "SD", *, is_uniform: bool = False, has_groups: bool = True, **changes: Any) -> Identity:
            usual = {"shapes": ((3, 8), (4, 4)), "dtypes": ("bfloat16", "float32"), "mamba_type": "mamba2"}
            state = SimpleNamespace(**{**usual, "mamba_cache_mode": "align", **changes})
            spec = SimpleNamespace(kv_cache_specs={"layer.1": state}) if is_uniform else state
            groups = [SimpleNamespace(kv_cache_spec=part) for part in (SimpleNamespace(), spec)]
            made = support.newer_spec()
            config = support.vllm_config(made, model__has_inner_state=True)
            layouts = SimpleNamespace(get_conv_state_layout=lambda: layout)
            name = "vllm.model_executor.layers.mamba.mamba_utils"
            parents = {name.rsplit(".", count)[0]: ModuleType("parent") for count in range(1, 4)}
            with mock.patch.dict(sys.modules, {**parents, name: layouts}):
                return identify(
                    made,
                    config,
                    4096,
                    Settings(),
                    kv_cache_config=SimpleNamespace(kv_cache_groups=groups) if has_groups else None,
                )

        self.assertEqual(self.shared(space()), self.shared(space(num_speculative_blocks=3)))
        spaces = [
            space(),
            space("DS"),
            space(is_uniform=True),
            space(shapes=((4, 8), (4, 4))),
            space(dtypes=("bfloat16", "bfloat16")),
            space(mamba_cache_mode="all"),
        ]
        self.assertEqual(len({self.shared(identity) for identity in spaces}), len(spaces))
        self.assertEqual([missing.name for missing in space(has_groups=False).facts.missing], ["states"])

    def test_variables_of_the_environment(self) -> None:
        spaces = [self.shared(newer())]
        for name, value in (("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", True), ("VLLM_MARLIN_INPUT_DTYPE", "fp8")):
            with mock.patch.object(envs, name, value, create=True):
                spaces.append(self.shared(newer()))
        self.assertEqual(len(set(spaces)), 3)
        with mock.patch.object(envs, "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", False, create=True):
            self.assertEqual(self.shared(newer()), spaces[0])

    def test_what_the_draft_model_keeps(self) -> None:
        def space(dtype: str | None = None, layers: Any = None) -> Namespace:
            hf_config = SimpleNamespace(eagle_aux_hidden_state_layer_ids=layers)
            own = SimpleNamespace(
                model="draft", revision=None, quantization=None, model_weights="", hf_config=hf_config
            )
            made = support.newer_spec()
            config = support.vllm_config(made)
            config.speculative_config = SimpleNamespace(
                method="extract_hidden_states", draft_model_config=own, kv_cache_dtype=dtype
            )
            return self.shared(identify(made, config, 4096, Settings()))

        self.assertEqual(space(), space("auto"))
        spaces = [space(), space("fp8"), space(layers=[1, 2]), space(layers=[1, 3])]
        self.assertEqual(len(set(spaces)), 4)

    def test_chunks_that_are_the_same_for_all_numbers_of_workers_are_shared(self) -> None:
        canonical = {"canonical_layout": True, "is_parallelism_agnostic": True}
        one_copy = {"replicated_layout": True}
        outermost = {"kv_cache_layout": "BHLNC", "is_parallelism_agnostic": True}
        for facts in (canonical, one_copy, outermost):
            two, four = (self.shared(newer({**facts, "tp_size": size, "world_size": size})) for size in (2, 4))
            self.assertEqual(two, four, str(facts))
        # Each worker has some heads of each layer, so that the order of the bytes follows from the number of workers.
        for facts in ({"is_parallelism_agnostic": True}, {**outermost, "blocks_per_chunk": 2}):
            two, four = (self.shared(newer({**facts, "tp_size": size})) for size in (2, 4))
            self.assertNotEqual(two, four, str(facts))

    def test_names_of_the_same_kind_of_number_are_one(self) -> None:
        self.assertEqual(self.shared(newer({"dtype": "fp8"})), self.shared(newer({"dtype": "fp8_e4m3"})))
        resolved, unresolved = newer({"dtype": "bfloat16"}), newer({"dtype": "auto"})
        self.assertEqual(self.shared(resolved), self.shared(unresolved))
        self.assertNotEqual(self.shared(unresolved), self.shared(newer({"dtype": "auto"}, model__dtype="float16")))


class UnreadableTest(unittest.TestCase):
    def private(self, name: str, one: Identity, other: Identity) -> None:
        self.assertIn(name, [missing.name for missing in one.facts.missing])
        self.assertNotEqual(one.namespace, other.namespace)
        with self.assertLogs("vllm.meshcache", "WARNING") as logs:
            one.warn()
        self.assertTrue(any(f"its {name} is unknown" in line for line in logs.output), logs.output)

    def test_each_fact_of_the_specification(self) -> None:
        def without(path: str) -> Any:
            spec = support.newer_spec()
            config = SimpleNamespace(
                **{field.name: getattr(spec.config, field.name) for field in dataclasses.fields(spec.config)}
            )
            spec.config = config
            owner, _, name = path.rpartition(".")
            if not owner:
                delattr(config, name)
                return spec
            part = getattr(config, owner)
            kept = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.name != name}
            setattr(config, owner, SimpleNamespace(**kept))
            return spec

        for path, name in {
            "model.name": "model",
            "model.dtype": "kv_dtype",
            "parallel.tp_size": "parallel",
            "parallel.is_parallelism_agnostic": "parallel",
            "groups": "layers",
            "cache.blocks_per_chunk": "tokens",
        }.items():
            with self.subTest(path=path):
                one, other = (
                    identify(spec, support.vllm_config(spec), 4096, Settings())
                    for spec in (without(path), without(path))
                )
                self.private(name, one, other)
        for facts, name in (
            ({"tp_size": 0}, "parallel"),
            ({"groups": ()}, "layers"),
            ({"kv_cache_layout": None}, "page_format"),
        ):
            with self.subTest(facts=facts):
                self.private(name, newer(facts), newer(facts))

    def test_each_fact_of_the_configuration(self) -> None:
        for config, name in (
            ({"model__dtype": "auto"}, "compute_dtype"),
            ({"model__hf_overrides": lambda config: config}, "overrides"),
            ({"model__hf_overrides": {"text_config": object()}}, "overrides"),
            ({"model__quantization": object()}, "quantization"),
            ({"load__model_loader_extra_config": object()}, "load"),
            ({"cache__calculate_kv_scales": True}, "kv_scales"),
        ):
            with self.subTest(config=config):
                self.private(name, newer(**config), newer(**config))

    def test_a_configuration_that_cannot_be_found(self) -> None:
        spec = support.newer_spec()
        one, other = (identify(spec, None, 4096, Settings()) for _ in range(2))
        for name in set(MODEL_FACTS) - {"device", "environment"}:
            self.private(name, one, other)

    def test_a_stated_fact_is_as_good(self) -> None:
        config = {"cache__calculate_kv_scales": True}
        one, other = (newer(facts={"kv_scales": "set 7"}, **config) for _ in range(2))
        self.assertEqual(one.namespace, other.namespace)
        self.assertNotEqual(one.namespace, newer(facts={"kv_scales": "set 8"}, **config).namespace)

    def test_what_cannot_be_followed(self) -> None:
        spec = support.newer_spec()
        one, other = (
            identify(spec, support.vllm_config(spec), 4096, Settings(), missing_hooks=["resets"]) for _ in range(2)
        )
        self.private("resets", one, other)

    def test_a_length_that_vllm_chooses_after_it_has_made_the_model_is_unknown(self) -> None:
        tuned, rope = SimpleNamespace(attn_temperature_tuning=True), {
            "rope_type": "dynamic",
            "max_trained_positions": 2,
        }
        for name, config in (
            ("temperature", {"model__hf_text_config": tuned}),
            ("rope_length", {"model__hf_config": SimpleNamespace(rope_parameters=rope)}),
        ):
            one, other = (newer(model__original_max_model_len=-1, **config) for _ in range(2))
            self.private(name, one, other)
        self.assertEqual(newer().facts.layout, newer(model__original_max_model_len=-1).facts.layout)

    def test_files_that_cannot_be_read(self) -> None:
        with mock.patch("meshcache.vllm.identity.files_digest", side_effect=PermissionError("no")):
            self.private("files", newer(), newer())

    def test_weights_that_are_not_in_the_files_are_unknown(self) -> None:
        """Until the operator states them, or the engine is told."""
        with tempfile.TemporaryDirectory() as folder:
            for config, why in (
                ({"model__model_weights": "s3://bucket/model"}, "the weights are in s3://bucket/model"),
                ({"load__load_format": "ipc_cache"}, "the load format ipc_cache"),
                ({"load__load_format": "mine"}, "the load format mine"),
                ({"model__model": folder}, f"{folder} has no files of weights"),
                ({"model__model": f"{folder}/none"}, f"{folder}/none is not on this host"),
            ):
                self.assertIn(why, str(newer(**config).unknown_weights))
                made = support.newer_spec()
                stated = identify(made, support.vllm_config(made, **config), 4096, Settings(fingerprint="v1"))
                self.assertIsNone(stated.unknown_weights)
        self.assertIsNone(newer().unknown_weights)
        self.assertIsNone(newer(load__load_format="dummy").unknown_weights, "drawn alike by all engines")

    def test_a_model_without_a_name_needs_a_tag(self) -> None:
        spec = support.newer_spec(name="")
        with self.assertRaisesRegex(ValueError, 'set "tag"'):
            identify(spec, support.vllm_config(spec), 4096, Settings())
        self.assertIsNone(identify(spec, support.vllm_config(spec), 4096, Settings(tag="mine")).namespace.model)


if __name__ == "__main__":
    unittest.main()
