"""Facts of the model as vLLM computes it, taken from vLLM's input rather than from what a version derives from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any, Final

from meshcache._engines.identity import Facts, Unreadable, canonical
from meshcache._engines.model_files import configuration, file_digest, folder_digest, is_path, local_folder
from meshcache._engines.modules import imported

#: Value of a fact that does not apply to a model, a version or an engine.
NONE: Final = "none"
_DIGEST_BYTES: Final = 16
#: Options of a loader that affect how fast weights are loaded, but not which ones.
_LOADING_SPEED: Final = frozenset(
    {"concurrency", "distributed", "enable_multithread_load", "memory_limit", "num_threads"}
)
#: Patterns of files that vLLM does not load by default.
_NOT_LOADED: Final = ["original/**/*"]
#: Kinds of RoPE whose factors depend on the engine's maximum length.
_LENGTH_ROPES: Final = frozenset({"longrope", "su"})
#: Methods of drafting without KV.
_DRAFTS_WITHOUT_KV: Final = frozenset({"ngram", "ngram_gpu", "suffix"})
#: Length above which Llama 4 scales attention by position, unless its generation configuration says otherwise.
_LLAMA4_LENGTH: Final = 32768
#: Load formats that take the weights from the model's own files, which are identified by a digest or by the hub.
_FROM_FILES: Final = frozenset(
    {
        "auto",
        "bitsandbytes",
        "fastsafetensors",
        "gguf",
        "hf",
        "instanttensor",
        "mistral",
        "npcache",
        "pt",
        "runai_streamer",
    }
    | {"runai_streamer_sharded", "safetensors", "sharded_state"}
)
#: Environment variables that change the bytes of KV or their order, with defaults; not those in vLLM's configuration.
_ENVIRONMENT: Final[Mapping[str, Any]] = {
    "VLLM_B12X_MOE_FP4_FORCE_A16": False,
    "VLLM_CPU_INT4_W4A8": True,
    "VLLM_DEEPEPLL_NVFP4_DISPATCH": False,
    "VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE": False,
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
    "VLLM_HUMMING_INPUT_QUANT_CONFIG": None,
    "VLLM_HUMMING_ONLINE_QUANT_CONFIG": None,
    "VLLM_HUMMING_USE_F16_ACCUM": False,
    "VLLM_MARLIN_INPUT_DTYPE": None,
    "VLLM_MLA_DISABLE": False,
    "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "",
    "VLLM_ROCM_FP8_MFMA_PAGE_ATTN": False,
    "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16": True,
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "NONE",
    "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": False,
    "VLLM_ROCM_USE_AITER_FP4BMM": True,
    "VLLM_ROCM_USE_AITER_FP8BMM": True,
    "VLLM_TEST_FORCE_FP8_MARLIN": False,
    "VLLM_USE_DEEP_GEMM_E8M0": True,
    "VLLM_XPU_INC_WNA16_BACKEND": "auto",
}
_FP8: Final = {"fp8": "fp8_e4m3"}


def add_model_facts(facts: Facts, config: Any, kv_cache_config: Any) -> None:
    """Adds all facts in the ``VllmConfig``. If it was not found (None), all of them are missing.

    ``kv_cache_config`` is vLLM's ``KVCacheConfig``, which has the layout of states; None if it was not found.
    """
    facts.read("compute_dtype", lambda: _compute_dtype(config.model_config), where="ModelConfig.dtype")
    facts.read("config", lambda: _config_digest(config.model_config), where="config.json of ModelConfig.model")
    facts.read("overrides", lambda: _overrides(config.model_config), where="ModelConfig.hf_overrides")
    facts.read("revision", lambda: _revision(config.model_config), where="ModelConfig.revision")
    facts.read("quantization", lambda: _quantization(config.model_config), where="ModelConfig.quantization")
    facts.read("load", lambda: _load(config.load_config), where="LoadConfig.load_format")
    facts.read("kv_scales", lambda: _kv_scales(config.cache_config), where="CacheConfig.calculate_kv_scales")
    facts.read("kv_exempt", lambda: _kv_exempt(config.cache_config), where="CacheConfig.kv_cache_dtype_skip_layers")
    facts.read("states", lambda: _states(config, kv_cache_config), where="MambaSpec of KVCacheConfig")
    facts.read("rope_length", lambda: _rope_length(config.model_config), where="ModelConfig.max_model_len")
    facts.read("temperature", lambda: _temperature(config.model_config), where="generation_config.json of the model")
    facts.read("environment", _environment, where="vllm.envs")
    facts.read("draft", lambda: _draft(config), where="VllmConfig.speculative_config")
    facts.read("media", lambda: _media(config.model_config), where="ModelConfig.multimodal_config")
    facts.read("attention", lambda: _attention(config.attention_config), where="AttentionConfig.backend")
    facts.read("device", lambda: _device(config), where="vllm.platforms.current_platform")


#: Names of the facts that ``add_model_facts`` adds.
MODEL_FACTS: Final = (
    "attention",
    "compute_dtype",
    "config",
    "device",
    "draft",
    "environment",
    "kv_exempt",
    "kv_scales",
    "load",
    "media",
    "overrides",
    "quantization",
    "revision",
    "rope_length",
    "states",
    "temperature",
)


def files_digest(config: Any) -> str | None:
    """A fingerprint of the model's files; None: the weights are not in files on this host, but are identified by name
    and configuration. Raises ``Unreadable`` if the weights are elsewhere, and OSError if files cannot be read."""
    model_config, kind = config.model_config, canonical(config.load_config.load_format)
    if kind == "dummy":
        # Dummy weights are drawn with a fixed seed, so they follow from the configuration.
        return None
    elsewhere = _weights_elsewhere(model_config)
    if elsewhere is not None:
        raise Unreadable(f"the weights are in {elsewhere}")
    if kind not in _FROM_FILES:
        raise Unreadable(f"the load format {kind} does not take the weights from the model's files")
    model = model_config.model
    folder = _folder(model, model_config.revision, config.load_config.download_dir)
    if folder is None:
        if is_path(model):
            raise Unreadable(f"{model} is not on this host")
        return None
    digest = folder_digest(folder)
    if digest is None and os.path.isdir(model):
        raise Unreadable(f"{model} has no files of weights")
    return digest


def _weights_elsewhere(model_config: Any) -> str | None:
    """The object storage with the weights, if ``model`` is a local folder with only the configuration; else None."""
    weights: str | None = _declared(model_config, "model_weights")
    return weights if weights and weights != model_config.model else None


def kv_dtype(dtype: Any, config: Any) -> str:
    """The data type of stored KV. ``dtype`` is that of the offloading specification, which may be "auto"."""
    text = str(dtype).removeprefix("torch.")
    if text == "auto":
        text = str(config.model_config.dtype).removeprefix("torch.")
    if text == "auto":
        raise Unreadable('it is "auto"')
    text = _FP8.get(text, text)
    if text.startswith("fp8") and _platform().is_fp8_fnuz():
        # On some devices, the same name means an fp8 with another exponent range and without infinity.
        text += "fnuz"
    return text


def _declared(owner: Any, name: str) -> Any:
    """A setting; None if this version of vLLM does not declare it in its configuration class."""
    declared = getattr(type(owner), "__dataclass_fields__", None)
    if declared is not None and name not in declared:
        return None
    if declared is not None and name not in vars(owner):
        # The class attribute is only the default.
        raise Unreadable("it is not there")
    return getattr(owner, name)


def _folder(model: str, revision: str | None, cache: str | None = None) -> str | None:
    """The folder with a model's files, even if the model is a single file. ``cache`` is vLLM's download folder."""
    if os.path.isfile(model):
        return os.path.dirname(os.path.abspath(model))
    return local_folder(model, revision, cache, is_of_other_hub=is_of_other_hub())


def is_of_other_hub() -> bool:
    """Whether vLLM takes models by name from ModelScope."""
    return bool(getattr(imported("vllm.envs"), "VLLM_USE_MODELSCOPE", False))


def _json_of(model_config: Any) -> Any:
    """The model's configuration file as JSON; None: there is no such file on this host."""
    folder = _folder(model_config.hf_config_path or model_config.model, model_config.revision)
    return None if folder is None else configuration(folder, ("config.json", "params.json"))


def _compute_dtype(model_config: Any) -> Any:
    own = canonical(model_config.dtype)
    if own == "auto":
        raise Unreadable('it is "auto"')
    attention = _declared(model_config, "override_attention_dtype")
    return own if attention is None else [own, attention]


def _config_digest(model_config: Any) -> str:
    value = _json_of(model_config)
    if value is None:
        # Hub, name and revision identify the configuration.
        return "named-modelscope" if is_of_other_hub() else "named"
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def _overrides(model_config: Any) -> Any:
    given = model_config.hf_overrides
    if callable(given):
        raise Unreadable("it is a function, which has no text")
    classes = _declared(model_config, "model_class_overrides")
    return [dict(given), dict(classes)] if classes else dict(given) or NONE


def _revision(model_config: Any) -> Any:
    own, code = model_config.revision or "main", model_config.code_revision
    return own if code is None else [own, code]


def _quantization(model_config: Any) -> Any:
    method = model_config.quantization
    more = _declared(model_config, "quantization_config")
    if more is None:
        return NONE if method is None else method
    return [method or NONE, _given(more)]


def _given(value: Any) -> Any:
    """The fields of a configuration that differ from their defaults."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    default = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(value)
    }
    return {name: _given(getattr(value, name)) for name in default if getattr(value, name) != default[name]}


def _load(load_config: Any) -> Any:
    kind = canonical(load_config.load_format)
    more = load_config.model_loader_extra_config or {}
    if not isinstance(more, Mapping):
        raise Unreadable("model_loader_extra_config is an object, which has no text")
    which = {name: value for name, value in more.items() if name not in _LOADING_SPEED}
    left_out = _declared(load_config, "ignore_patterns")
    if left_out and left_out != _NOT_LOADED:
        which["ignore_patterns"] = left_out
    return [kind, which] if which else kind


def _kv_scales(cache_config: Any) -> str:
    if _declared(cache_config, "calculate_kv_scales"):
        raise Unreadable("scales are calculated by each engine for itself")
    return NONE


def _kv_exempt(cache_config: Any) -> Any:
    return list(_declared(cache_config, "kv_cache_dtype_skip_layers") or ()) or NONE


def _states(config: Any, kv_cache_config: Any) -> Any:
    """Layout of the states of layers without attention in their pages, which are padded to the size of other pages."""
    if not config.model_config.has_inner_state:
        return NONE
    if kv_cache_config is None:
        raise Unreadable("the connector's KVCacheConfig was not found")
    groups = [list(_states_of(group.kv_cache_spec)) for group in kv_cache_config.kv_cache_groups]
    if not any(groups):
        # The model's class may have states, but this model has none.
        return NONE
    layouts = imported("vllm.model_executor.layers.mamba.mamba_utils")
    if layouts is None:
        raise Unreadable("there is no get_conv_state_layout")
    return [layouts.get_conv_state_layout(), groups]


def _states_of(spec: Any) -> Iterator[Any]:
    """The states of a group's layers; only once if they are alike."""
    parts = getattr(spec, "kv_cache_specs", None)
    if isinstance(parts, Mapping):
        for name, part in sorted(parts.items()):
            for state in _states_of(part):
                yield [name, state]
    elif hasattr(spec, "shapes"):
        yield [spec.shapes, spec.dtypes, spec.mamba_type, spec.mamba_cache_mode]


def _temperature(model_config: Any) -> Any:
    """Whether Llama 4 scales attention by position, as its class decides when it is constructed."""
    parts = (model_config.hf_config, model_config.hf_text_config)
    if not any(hasattr(part, "attn_temperature_tuning") for part in parts):
        return NONE
    given = {**model_config.try_get_generation_config(), **model_config.override_generation_config}
    if "attn_temperature_tuning" in given:
        return given["attn_temperature_tuning"]
    return _length(model_config) > _LLAMA4_LENGTH


def _environment() -> Any:
    """Environment variables that differ from their defaults."""
    module = imported("vllm.envs")
    if module is None:
        raise Unreadable("there is no module vllm.envs")
    values = {name: getattr(module, name, default) for name, default in _ENVIRONMENT.items()}
    return {name: value for name, value in values.items() if value != _ENVIRONMENT[name]} or NONE


def _length(model_config: Any) -> int:
    """The maximum length with which the model was constructed."""
    if getattr(model_config, "original_max_model_len", None) == -1:
        raise Unreadable("vLLM has made the model before it chose the length: give --max-model-len a number")
    return int(model_config.max_model_len)


def _rope_length(model_config: Any) -> Any:
    """The factors that RoPE uses, if they depend on the engine's maximum length."""
    hf_config = model_config.hf_config
    own = [getattr(hf_config, name, None) for name in ("rope_parameters", "rope_scaling", "text_config")]
    own.append(getattr(model_config.hf_text_config, "rope_parameters", None))
    own.append(getattr(model_config.hf_text_config, "rope_scaling", None))
    trees = [part for part in [*own, _json_of(model_config), model_config.hf_overrides] if isinstance(part, Mapping)]
    ropes = {value for tree in trees for value in _values(tree, ("rope_type", "type"))}
    trained = any(True for tree in trees for _ in _values(tree, ("max_trained_positions",)))
    if trained and "dynamic" in ropes:
        # The base depends on how much the engine's maximum length exceeds the trained one.
        return _length(model_config)
    if not ropes & _LENGTH_ROPES:
        return NONE
    lengths = {value for tree in trees for value in _values(tree, ("original_max_position_embeddings",))}
    lengths |= {
        getattr(part, "original_max_position_embeddings", None) for part in (hf_config, model_config.hf_text_config)
    }
    lengths -= {None}
    if len(lengths) != 1:
        return _length(model_config)
    return "long" if _length(model_config) > next(iter(lengths)) else "short"


def _values(tree: Any, names: tuple[str, ...]) -> Iterator[Any]:
    """All strings and integers with these names anywhere in a tree."""
    if isinstance(tree, Mapping):
        for name, part in tree.items():
            if name in names and isinstance(part, (str, int)):
                yield part
            yield from _values(part, names)


def _draft(config: Any) -> Any:
    """The draft model, whose KV may be in the chunks."""
    speculative_config = _declared(config, "speculative_config")
    if speculative_config is None or speculative_config.method in _DRAFTS_WITHOUT_KV:
        return NONE
    own = speculative_config.draft_model_config
    elsewhere = _weights_elsewhere(own)
    if elsewhere is not None:
        raise Unreadable(f"the weights of the draft model are in {elsewhere}")
    folder = _folder(own.model, own.revision, config.load_config.download_dir)
    files = NONE if folder is None else folder_digest(folder) or NONE
    value = [speculative_config.method, own.model, own.revision or "main", own.quantization or NONE, files]
    more = {"dtype": _declared(speculative_config, "kv_cache_dtype"), "layers": _hidden_layers(own.hf_config)}
    if more["dtype"] == config.cache_config.cache_dtype:
        more["dtype"] = None
    given = {name: part for name, part in more.items() if part is not None}
    return [*value, given] if given else value


def _hidden_layers(hf_config: Any) -> Any:
    """The layers whose hidden states a draft model uses; None: its files say which, or there are none."""
    own = getattr(hf_config, "eagle_aux_hidden_state_layer_ids", None)
    return None if own is None else list(own)


def _media(model_config: Any) -> Any:
    """Settings that change how images and sounds are processed. Their content is in vLLM's keys."""
    media = model_config.multimodal_config
    if media is None:
        return NONE
    given = {
        "processor": media.mm_processor_kwargs or {},
        "pruning": media.video_pruning_rate or 0,
        "encoder": _declared(media, "mm_encoder_attn_dtype"),
        "encoder_scales": _encoder_scales(media),
    }
    if given["pruning"]:
        given["pruning_method"] = _declared(media, "video_pruning_method")
    return {name: value for name, value in given.items() if value} or "plain"


def _encoder_scales(media: Any) -> str | None:
    """Digest of the scales of an encoder that computes in fp8; None if it does not."""
    path = _declared(media, "mm_encoder_fp8_scale_path")
    if path:
        return file_digest(path)
    if _declared(media, "mm_encoder_attn_dtype") == "fp8":
        raise Unreadable("the scales of the encoder are calculated by each engine for itself")
    return None


def _attention(attention_config: Any) -> Any:
    """The implementation of attention, which may have its own order of the bytes of a block."""
    own = attention_config.backend
    kinds = _declared(attention_config, "backend_per_kind") or {}
    name = "auto" if own is None else canonical(own)
    indexer = _declared(attention_config, "indexer_kv_dtype")
    more: dict[str, Any] = {"kinds": dict(kinds)} if kinds else {}
    if indexer not in (None, "auto"):
        # An indexer's KV may have a separate type.
        more["indexer"] = indexer
    return [name, more] if more else name


def _platform() -> Any:
    module = imported("vllm.platforms")
    if module is None:
        raise Unreadable("there is no module vllm.platforms")
    return module.current_platform


def _device(config: Any) -> Any:
    """The kind of device, and its plug-in's settings. Attention on a CPU packs blocks to suit its instruction set."""
    own = _platform()
    name = str(own.device_name) or str(own.device_type)
    if name == "cpu":
        name = "-".join([name, platform.machine(), *sorted(_cpu_features())])
    more = _declared(config, "additional_config")
    return [name, more] if more else name


def _cpu_features() -> set[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            line = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError as error:
        raise Unreadable(f"/proc/cpuinfo: {error}") from error
    return set(line.split()) & {"amx_tile", "asimd", "sve"}
