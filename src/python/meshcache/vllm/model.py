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
from meshcache._engines.model_files import configuration, file_digest, folder_digest, local_folder
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
_FP8: Final = {"fp8": "fp8_e4m3"}


def add_model_facts(facts: Facts, config: Any) -> None:
    """Adds all facts that the ``VllmConfig`` has; None: it could not be found, so that they all are missing."""
    facts.read("compute_dtype", lambda: _compute_dtype(config.model_config), where="ModelConfig.dtype")
    facts.read("config", lambda: _config_digest(config.model_config), where="config.json of ModelConfig.model")
    facts.read("overrides", lambda: _overrides(config.model_config), where="ModelConfig.hf_overrides")
    facts.read("revision", lambda: _revision(config.model_config), where="ModelConfig.revision")
    facts.read("quantization", lambda: _quantization(config.model_config), where="ModelConfig.quantization")
    facts.read("load", lambda: _load(config.load_config), where="LoadConfig.load_format")
    facts.read("kv_scales", lambda: _kv_scales(config.cache_config), where="CacheConfig.calculate_kv_scales")
    facts.read("kv_exempt", lambda: _kv_exempt(config.cache_config), where="CacheConfig.kv_cache_dtype_skip_layers")
    facts.read("states", lambda: _states(config), where="CacheConfig.mamba_cache_dtype")
    facts.read("rope_length", lambda: _rope_length(config.model_config), where="ModelConfig.max_model_len")
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
    "kv_exempt",
    "kv_scales",
    "load",
    "media",
    "overrides",
    "quantization",
    "revision",
    "rope_length",
    "states",
)


def files_digest(config: Any) -> str | None:
    """A fingerprint of the model's files; None: they are not on this host. Raises OSError for files that cannot be read."""
    folder = _folder(config.model_config.model, config.model_config.revision, config.load_config.download_dir)
    return None if folder is None else folder_digest(folder)


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
    return local_folder(model, revision, cache, is_of_other_hub=_is_of_other_hub())


def _is_of_other_hub() -> bool:
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
        return "named-modelscope" if _is_of_other_hub() else "named"
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


def _states(config: Any) -> Any:
    """How states of layers without attention are kept."""
    if not config.model_config.is_hybrid:
        return NONE
    cache = config.cache_config
    return [cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype, cache.mamba_cache_mode]


def _rope_length(model_config: Any) -> Any:
    """Which factors RoPE takes where they follow from the length that the engine was started for."""
    hf_config = model_config.hf_config
    own = [getattr(hf_config, name, None) for name in ("rope_parameters", "rope_scaling", "text_config")]
    own.append(getattr(model_config.hf_text_config, "rope_parameters", None))
    own.append(getattr(model_config.hf_text_config, "rope_scaling", None))
    trees = [part for part in [*own, _json_of(model_config), model_config.hf_overrides] if isinstance(part, Mapping)]
    ropes = {value for tree in trees for value in _values(tree, ("rope_type", "type"))}
    if not ropes & _LENGTH_ROPES:
        return NONE
    lengths = {value for tree in trees for value in _values(tree, ("original_max_position_embeddings",))}
    lengths |= {
        getattr(part, "original_max_position_embeddings", None) for part in (hf_config, model_config.hf_text_config)
    }
    lengths -= {None}
    if len(lengths) != 1:
        return model_config.max_model_len
    return "long" if model_config.max_model_len > next(iter(lengths)) else "short"


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
    folder = _folder(own.model, own.revision, config.load_config.download_dir)
    files = NONE if folder is None else folder_digest(folder) or NONE
    return [speculative_config.method, own.model, own.revision or "main", own.quantization or NONE, files]


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
