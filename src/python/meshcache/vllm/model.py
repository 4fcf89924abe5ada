"""Facts of the model as vLLM computes it, taken from what vLLM was given rather than from what a version has made of it."""

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

#: The value of a fact that a model, a version or an engine does not have.
NONE: Final = "none"
_DIGEST_BYTES: Final = 16
#: Options of a loader that change how fast weights are loaded, and not which.
_LOADING_SPEED: Final = frozenset(
    {"concurrency", "distributed", "enable_multithread_load", "memory_limit", "num_threads"}
)
#: Files that vLLM does not load unless it is told otherwise.
_NOT_LOADED: Final = ["original/**/*"]
#: Kinds of RoPE whose factors follow from the length that the engine was started for.
_LENGTH_ROPES: Final = frozenset({"longrope", "su"})
#: Ways of drafting that keep no KV.
_DRAFTS_WITHOUT_KV: Final = frozenset({"ngram", "ngram_gpu", "suffix"})
#: The length above which Llama 4 scales attention by positions, unless its configuration for generation says otherwise.
_LLAMA4_LENGTH: Final = 32768
#: Formats of loading that take the weights from the model's own files, which have a digest or are named by the hub.
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
#: Variables of the environment that change the bytes of KV or their order, with their defaults. Other facts have those that vLLM puts into its configuration.
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
    """Adds all facts that the ``VllmConfig`` has; None: it could not be found, so that they all are missing.

    ``kv_cache_config``: vLLM's ``KVCacheConfig``, which has the layout of states; None: it could not be found.
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


#: The names of the facts that ``add_model_facts`` adds.
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
    """A fingerprint of the model's files; None: its name and configuration identify the weights, which are not in files on this host.

    Raises ``Unreadable`` for weights that are not in these files, and OSError for files that cannot be read.
    """
    model_config, kind = config.model_config, canonical(config.load_config.load_format)
    if kind == "dummy":
        # They are drawn with a fixed seed, and so they follow from the configuration.
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
    """The object storage that has the weights, while ``model`` is a local folder with the configuration alone; None: there is none."""
    weights: str | None = _declared(model_config, "model_weights")
    return weights if weights and weights != model_config.model else None


def kv_dtype(dtype: Any, config: Any) -> str:
    """The data type of KV as it is stored. ``dtype``: what the offloading specification says, which may be "auto"."""
    text = str(dtype).removeprefix("torch.")
    if text == "auto":
        text = str(config.model_config.dtype).removeprefix("torch.")
    if text == "auto":
        raise Unreadable('it is "auto"')
    text = _FP8.get(text, text)
    if text.startswith("fp8") and _platform().is_fp8_fnuz():
        # Some devices have an fp8 with other exponents and without infinity under the same name.
        text += "fnuz"
    return text


def _declared(owner: Any, name: str) -> Any:
    """A setting; None: this version of vLLM does not declare it in the class of its configuration."""
    declared = getattr(type(owner), "__dataclass_fields__", None)
    if declared is not None and name not in declared:
        return None
    if declared is not None and name not in vars(owner):
        # What the class has is only the default.
        raise Unreadable("it is not there")
    return getattr(owner, name)


def _folder(model: str, revision: str | None, cache: str | None = None) -> str | None:
    """The folder in which a model's files lie, also when the model is one file. ``cache``: where vLLM was told to keep downloads."""
    if os.path.isfile(model):
        return os.path.dirname(os.path.abspath(model))
    return local_folder(model, revision, cache, is_of_other_hub=is_of_other_hub())


def is_of_other_hub() -> bool:
    """Whether vLLM takes models by name from ModelScope."""
    return bool(getattr(imported("vllm.envs"), "VLLM_USE_MODELSCOPE", False))


def _json_of(model_config: Any) -> Any:
    """The model's own configuration as its file has it; None: there is no such file on this host."""
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
        # The hub, the name and the revision say which configuration it is.
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
    """What of a configuration was given: fields that are not as they are by default."""
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
    """How states of layers without attention lie in their pages, which are padded to the size of other pages."""
    if not config.model_config.has_inner_state:
        return NONE
    if kv_cache_config is None:
        raise Unreadable("the connector's KVCacheConfig was not found")
    groups = [list(_states_of(group.kv_cache_spec)) for group in kv_cache_config.kv_cache_groups]
    if not any(groups):
        # A model of a class that may have states, and has none.
        return NONE
    layouts = imported("vllm.model_executor.layers.mamba.mamba_utils")
    if layouts is None:
        raise Unreadable("there is no get_conv_state_layout")
    return [layouts.get_conv_state_layout(), groups]


def _states_of(spec: Any) -> Iterator[Any]:
    """The states of a group's layers, once where they are alike."""
    parts = getattr(spec, "kv_cache_specs", None)
    if isinstance(parts, Mapping):
        for name, part in sorted(parts.items()):
            for state in _states_of(part):
                yield [name, state]
    elif hasattr(spec, "shapes"):
        yield [spec.shapes, spec.dtypes, spec.mamba_type, spec.mamba_cache_mode]


def _temperature(model_config: Any) -> Any:
    """Whether Llama 4 scales attention by positions, as its class decides when it is made."""
    parts = (model_config.hf_config, model_config.hf_text_config)
    if not any(hasattr(part, "attn_temperature_tuning") for part in parts):
        return NONE
    given = {**model_config.try_get_generation_config(), **model_config.override_generation_config}
    if "attn_temperature_tuning" in given:
        return given["attn_temperature_tuning"]
    return _length(model_config) > _LLAMA4_LENGTH


def _environment() -> Any:
    """The variables of the environment that are not as they are by default."""
    module = imported("vllm.envs")
    if module is None:
        raise Unreadable("there is no module vllm.envs")
    values = {name: getattr(module, name, default) for name, default in _ENVIRONMENT.items()}
    return {name: value for name, value in values.items() if value != _ENVIRONMENT[name]} or NONE


def _length(model_config: Any) -> int:
    """The length with which the model was made."""
    if getattr(model_config, "original_max_model_len", None) == -1:
        raise Unreadable("vLLM has made the model before it chose the length: give --max-model-len a number")
    return int(model_config.max_model_len)


def _rope_length(model_config: Any) -> Any:
    """Which factors RoPE takes where they follow from the length that the engine was started for."""
    hf_config = model_config.hf_config
    own = [getattr(hf_config, name, None) for name in ("rope_parameters", "rope_scaling", "text_config")]
    own.append(getattr(model_config.hf_text_config, "rope_parameters", None))
    own.append(getattr(model_config.hf_text_config, "rope_scaling", None))
    trees = [part for part in [*own, _json_of(model_config), model_config.hf_overrides] if isinstance(part, Mapping)]
    ropes = {value for tree in trees for value in _values(tree, ("rope_type", "type"))}
    trained = any(True for tree in trees for _ in _values(tree, ("max_trained_positions",)))
    if trained and "dynamic" in ropes:
        # The base follows from how much longer the engine's length is.
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
    """All texts and numbers under these names, wherever they are in a tree."""
    if isinstance(tree, Mapping):
        for name, part in tree.items():
            if name in names and isinstance(part, (str, int)):
                yield part
            yield from _values(part, names)


def _draft(config: Any) -> Any:
    """The model that drafts: its KV may be in the chunks."""
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
    """The layers whose hidden states a drafting model has; None: its files say which, or it has none."""
    own = getattr(hf_config, "eagle_aux_hidden_state_layer_ids", None)
    return None if own is None else list(own)


def _media(model_config: Any) -> Any:
    """What changes images and sounds beside their content, which vLLM's keys have."""
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
    """The scales of an encoder that computes in fp8; None: it does not."""
    path = _declared(media, "mm_encoder_fp8_scale_path")
    if path:
        return file_digest(path)
    if _declared(media, "mm_encoder_attn_dtype") == "fp8":
        raise Unreadable("the scales of the encoder are calculated by each engine for itself")
    return None


def _attention(attention_config: Any) -> Any:
    """Implementations of attention may order the bytes of a block in ways of their own."""
    own = attention_config.backend
    kinds = _declared(attention_config, "backend_per_kind") or {}
    name = "auto" if own is None else canonical(own)
    indexer = _declared(attention_config, "indexer_kv_dtype")
    more: dict[str, Any] = {"kinds": dict(kinds)} if kinds else {}
    if indexer not in (None, "auto"):
        # The KV of an indexer has a type of its own.
        more["indexer"] = indexer
    return [name, more] if more else name


def _platform() -> Any:
    module = imported("vllm.platforms")
    if module is None:
        raise Unreadable("there is no module vllm.platforms")
    return module.current_platform


def _device(config: Any) -> Any:
    """The kind of device, and what its plug-in was told. The CPU's attention packs blocks as its instructions want them."""
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
