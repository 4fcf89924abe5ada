"""The identity of an engine's pages, so that different configurations share none, and checks for unusable ones."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshcache import Namespace
from meshcache._engines.identity import Facts, Unreadable
from meshcache._engines.model_files import configuration, file_digest, folder_digest, local_folder, weights_digest

from . import framework
from .geometry import draft_layers, kind_of_numbers, named_kind, read_geometry
from .guard import logger
from .memory import attribute
from .pool import MAX_PIECES, differs_by_rank
from .settings import Settings

#: Name of the settings in which operators state facts.
EXTRA_CONFIG: Final = "the extra config"

#: Value of a fact that does not apply to this engine.
_NONE: Final = "none"

#: Arguments, in addition to those for loading, that change the effective weights. Those not given are left out.
_QUANTIZATION: Final = (
    "modelopt_checkpoint_restore_path",
    "modelopt_quant",
    "quantization",
    "quantize_and_serve",
    "rl_quant_profile",
    "torchao_config",
)
#: Environment variables of SGLang that change the effective weights. Those that are off are left out.
_QUANTIZATION_SWITCHES: Final = (
    "SGLANG_CPU_QUANTIZATION",
    "SGLANG_DSV4_FP4_DEQUANT",
    "SGLANG_FP4_IGNORED_LAYERS",
    "SGLANG_FP8_IGNORED_LAYERS",
    "SGLANG_HUMMING_INPUT_QUANT_CONFIG",
    "SGLANG_HUMMING_ONLINE_QUANT_CONFIG",
    "SGLANG_QUANT_ALLOW_DOWNCASTING",
)

#: Arguments that change what is computed from the same weights and tokens. Those not given are left out.
_COMPUTING: Final = (
    "dllm_algorithm",
    "dllm_algorithm_config",
    "enable_precise_embedding_interpolation",
    "forward_hooks",
    "kt_max_deferred_experts_per_token",
    "kt_method",
    "kt_num_gpu_experts",
    "kt_weight_path",
    "uno_lora_path",
)
#: Values of ``--load-format`` for weights that come from another engine, a pack, or an unknown place.
_OTHER_SOURCES: Final = ("expert_pack", "ipc_cache", "private", "remote_instance")
#: Possible names of a model on a hub: a name, or an owner and a name.
_HUB_NAME: Final = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

#: Arguments with defaults that only count if another argument is given.
_ONLY_WITH: Final = {"kt_method": "kt_weight_path"}


def head_parts(config: Any, pool: Any) -> list[str]:
    """Suffixes of a page's key for its parts, if heads are split; else an empty list.

    Engines of several tensor-parallel sizes share pages that are split for the least common multiple of their sizes. An
    engine of exactly that size stores whole pages under the name of its single part.
    """
    lcm = getattr(config, "tp_lcm_size", None)
    tp_rank, tp_size = _whole(config, "tp_rank", 0), _whole(config, "tp_size", 1)
    if (
        not lcm
        or getattr(config, "is_mla_model", False)
        or attribute(pool, "layout") != "page_head"
        or lcm % tp_size != 0
    ):
        return []
    split = int(lcm) // tp_size
    return [f"#heads{tp_rank * split + part}of{lcm}" for part in range(split)]


def refuse(pool: Any, parts: Sequence[str], settings: Settings) -> None:
    """Raises ``ValueError`` for engines whose pages would all fail later, or could be those of another request."""
    if framework.IS_INSTALLED and not framework.hashes_have_namespaces() and _uses_adapters():
        raise ValueError(
            "SGLang before 0.5.20 gives pages of different LoRA adapters the same key: update SGLang, "
            "or start the server without --enable-lora and --lora-paths"
        )
    if attribute(pool, "_is_dummy") and not settings.interface_v1:
        raise ValueError('ranks without host memory of their own need "interface_v1": 1 in the extra config')
    buffer = attribute(pool, "kv_buffer")
    if buffer is None:
        return
    layout, layers = attribute(pool, "layout"), attribute(pool, "layer_num")
    if layout == "page_unified":
        raise ValueError(
            'the host pool has the layout "page_unified", whose pages are stored under keys of their own: '
            "start the server with --hicache-mem-layout page_first, page_first_direct or page_head"
        )
    if layout == "layer_first" and layers is not None and 2 * int(layers) > MAX_PIECES:
        raise ValueError(
            f'the host pool has the layout "layer_first", in which a page lies in up to {2 * int(layers)} pieces; at most {MAX_PIECES} '
            "can be moved: start the server with --hicache-mem-layout page_first --hicache-io-backend kernel, or page_first_direct with direct"
        )
    if not settings.interface_v1 and (parts or isinstance(buffer, (list, tuple))):
        raise ValueError('heads that are split or of different sizes need "interface_v1": 1 in the extra config')
    if settings.interface_v1 and not callable(attribute(pool, "get_page_buffer_meta")):
        raise ValueError(f"the pool {type(pool).__name__} cannot tell where its pages are (get_page_buffer_meta)")
    heads = attribute(pool, "head_num")
    if len(parts) > 1 and heads is not None and int(heads) % len(parts) != 0:
        raise ValueError(
            f"the {heads} KV heads of a rank cannot be split into {len(parts)} equal parts: choose a tp_lcm_size that divides the number of KV heads"
        )


def engine_facts(config: Any, pool: Any, parts: Sequence[str], settings: Settings) -> Facts:
    """All facts of an engine and its main pool. Those of data-parallel ranks are equal, as they compute equal pages."""
    facts = Facts("sglang", settings.facts)
    read_geometry(facts, pool, len(parts))
    _read_model(facts, pool)
    if attribute(pool, "layout") == "layer_first":
        # When SGLang copies a page, all keys come before all values; by pointers, both of each layer come in turn.
        facts.read("order", lambda: "layers" if settings.interface_v1 else "halves", where="interface_v1")
    # Each context-parallel rank holds its own slice of every page. Older configurations have no such ranks.
    facts.read("cp", lambda: _rank(config, "attn_cp"), where="attn_cp_rank")
    facts.read("dcp", lambda: _rank(config, "dcp"), where="dcp_rank")
    return facts


def side_pool_facts(pool: Any, name: str, rank: str, settings: Settings) -> Facts:
    """All facts of a side pool in addition to those of its engine. ``rank`` is the engine's rank if ranks have
    different pages; "" if they have the same."""
    facts = Facts(name, settings.facts)
    read_geometry(facts, pool, is_draft=name.startswith("draft"))
    facts.read("tp", lambda: rank or _NONE, where="tp_rank")
    if name.startswith("draft") or draft_layers(pool):
        facts.read("draft", draft_model, where="--speculative-draft-model-path")
    return facts


def side_pool_digest(pool: Any, name: str, config: Any, settings: Settings) -> str:
    """Separates side pools of different layouts and ranks, as the namespace has no rank with MLA or split heads."""
    tp_rank, tp_size = _whole(config, "tp_rank", 0), _whole(config, "tp_size", 1)
    rank = f"{tp_rank}/{tp_size}"
    if bool(getattr(config, "is_mla_model", False)):
        if tp_size == 1 or not differs_by_rank(pool, name):
            rank = ""
        elif name != "mamba":
            logger.warning(
                "pages of the pool %s differ by tensor-parallel rank, and SGLang stores those of rank 0 only: "
                "prefixes that need this pool are misses",
                name,
            )
    facts = side_pool_facts(pool, name, rank, settings)
    facts.warn(logger, EXTRA_CONFIG)
    return hashlib.sha256(facts.layout.encode()).hexdigest()[:12]


def namespace(config: Any, pool: Any, parts: Sequence[str], facts: Facts, tag: str | None) -> Namespace:
    """The namespace of an engine's pages. Its layout contains all facts."""
    tp_rank, tp_size = _whole(config, "tp_rank", 0), _whole(config, "tp_size", 1)
    is_replicated = bool(getattr(config, "is_mla_model", False)) and not differs_by_rank(pool, "kv")
    if parts:
        # The number of the part is in its key, and the number of heads of a rank must not matter.
        tp_rank, tp_size = 0, int(config.tp_lcm_size)
    elif is_replicated:
        # Every rank of every size has the same pages.
        tp_rank, tp_size = 0, 1
    return Namespace(
        model=getattr(config, "model_name", None) or None,
        dtype=_shown_dtype(pool),
        layout=facts.layout,
        tag=tag,
        tp_rank=tp_rank,
        tp_size=tp_size,
        pp_rank=_whole(config, "pp_rank", 0),
        pp_size=_whole(config, "pp_size", 1),
        is_mla=is_replicated,
    )


def initial_fingerprint(settings: Settings) -> str | None:
    """The fingerprint of the initial weights: as stated, else from SGLang's version of them, else from their files.

    None: the model's name alone identifies them. Raises OSError, and ``Unreadable`` if the weights come from elsewhere.
    """
    version = settings.fingerprint or framework.weight_version()
    if version is not None or not framework.IS_INSTALLED:
        return version
    try:
        path, revision = str(framework.given("model_path")), framework.given("revision")
    except Exception:
        # The configuration is then a missing fact, so the engine shares nothing anyway.
        return None
    return _digest_of(path, revision, framework.given("load_format"))


def _digest_of(path: str, revision: str | None, load_format: Any) -> str | None:
    """A digest of the files from which SGLang loads a model; None: the model's name alone identifies them.

    Raises ``Unreadable`` if the weights come from elsewhere, or the files are gone.
    """
    form = attribute(load_format, "value") or load_format
    if form == "dummy":
        # Dummy weights follow from the configuration.
        return None
    if not isinstance(form, str) or form in _OTHER_SOURCES:
        raise Unreadable(f"with --load-format {form} they do not come from the model's files")
    if framework.given("weight_cache_mode") == "client":
        raise Unreadable("with --weight-cache-mode client they come from a daemon that has loaded them before")
    folder = _folder(path, revision, framework.given("download_dir"))
    digest = None if folder is None else folder_digest(folder)
    if digest is None and (folder is not None or framework.given("delete_ckpt_after_loading")):
        raise Unreadable(f"there are no weights in {folder or path}")
    return digest


def _folder(path: str, revision: str | None, cache: str | None = None) -> str | None:
    """The folder of a model on this machine; None if it is only given by name. ``cache`` is SGLang's download folder.

    Raises ``Unreadable`` for a path or address without a folder, which may be different files on another host.
    """
    folder = local_folder(path, revision, cache, is_of_other_hub=_is_of_other_hub())
    if folder is None and (os.path.exists(path) or not _HUB_NAME.fullmatch(path)):
        raise Unreadable(f"{path} is no folder on this machine")
    return folder


def _is_of_other_hub() -> bool:
    """Whether SGLang takes models by name from ModelScope."""
    return os.environ.get("SGLANG_USE_MODELSCOPE", "").lower() in ("true", "1", "yes", "y")


def _read_model(facts: Facts, pool: Any) -> None:
    """Adds facts of the model other than its weights. Without SGLang there is no engine, and all are ``none``."""
    is_there = framework.IS_INSTALLED
    readers = {
        "config": (_config, "--model-path"),
        "revision": (lambda: framework.given("revision") or _NONE, "--revision"),
        "overrides": (_overrides, "--json-model-override-args"),
        "context": (_context, "--context-length"),
        "load": (_load, "--load-format"),
        "quantization": (_quantization, "--quantization, the options of ModelOpt, and the environment"),
        "kv_scales": (_kv_scales, "--quantization-param-path"),
        "compute": (lambda: _compute_dtype(pool), "--dtype"),
        "options": (_options, ", ".join(f"--{name.replace('_', '-')}" for name in _COMPUTING)),
        "adapters": (_adapters, "--lora-paths"),
        "draft": (lambda: draft_model() if draft_layers(pool) else _NONE, "--speculative-draft-model-path"),
    }
    for name, (reader, where) in readers.items():
        facts.read(name, reader if is_there else lambda: _NONE, where=where)


def _config() -> Any:
    """The configuration in the model's folder, or the model's name if it is only given by name."""
    path = str(framework.given("model_path"))
    config = _config_of(path, framework.given("revision"))
    if config is not None:
        return config
    return f"modelscope:{path}" if _is_of_other_hub() else f"name:{path}"


def _config_of(path: str, revision: str | None) -> Mapping[str, Any] | None:
    folder = _folder(path, revision)
    if folder is None:
        return None
    config = configuration(folder)
    if not isinstance(config, dict):
        raise Unreadable(f"there is no config.json with an object in {folder}")
    return config


def _overrides() -> Any:
    text = framework.given("json_model_override_args")
    value = json.loads(text) if isinstance(text, str) else text
    return value or _NONE


def _context() -> Any:
    """The context length, if it exceeds that of the model, as positions are then computed in another way."""
    length = framework.given("context_length")
    if length is None:
        return _NONE
    config = _config_of(str(framework.given("model_path")), framework.given("revision")) or {}
    inner = config.get("text_config")
    limits = [part.get("max_position_embeddings") for part in (config, inner) if isinstance(part, Mapping)]
    known = [limit for limit in limits if isinstance(limit, int)]
    return _NONE if known and int(length) <= min(known) else int(length)


def _load() -> Any:
    extra = framework.given("model_loader_extra_config")
    extra = json.loads(extra) if isinstance(extra, str) and extra else extra
    form = str(framework.given("load_format"))
    return [form, extra] if extra else form


def _quantization() -> Any:
    given = {name: framework.given(name) for name in _QUANTIZATION}
    given.update({name: framework.switch(name) for name in _QUANTIZATION_SWITCHES})
    given = {name: value for name, value in given.items() if value}
    if "modelopt_checkpoint_restore_path" in given:
        given["modelopt_checkpoint_restore_path"] = _weights_at(given["modelopt_checkpoint_restore_path"])
    return given.pop("quantization") if list(given) == ["quantization"] else given or _NONE


def _options() -> Any:
    given = {name: framework.given(name) for name in _COMPUTING}
    found = {name: value for name, value in given.items() if value and given.get(_ONLY_WITH.get(name, name))}
    # A path may have different content on another host.
    if "dllm_algorithm_config" in found:
        found["dllm_algorithm_config"] = file_digest(found["dllm_algorithm_config"])
    for name in ("kt_weight_path", "uno_lora_path"):
        if name in found:
            found[name] = _weights_at(found[name])
    return found or _NONE


def _weights_at(path: str) -> str:
    """A digest of the weights in a folder or file, or of those that were downloaded from the hub under a name."""
    if os.path.isfile(path):
        return weights_digest(path)
    folder = local_folder(path)
    digest = None if folder is None else folder_digest(folder)
    if digest is None:
        raise Unreadable(f"there are no weights at {path}")
    return digest


def _kv_scales() -> str:
    path = framework.given("quantization_param_path")
    return file_digest(path) if path else _NONE


def _compute_dtype(pool: Any) -> str:
    """The type in which attention is computed. A cache that is not quantized has the same type."""
    if framework.in_effect("kv_cache_dtype") == "auto" and attribute(pool, "size_per_token") != 0:
        return kind_of_numbers(pool)
    # With "auto", the type is that of the model's configuration, which is a separate fact.
    return named_kind(str(framework.given("dtype")))


def _uses_adapters() -> bool:
    try:
        return bool(framework.given("enable_lora") or framework.given("lora_paths"))
    except Exception:
        return False


def _adapters() -> Any:
    """Adapters at the server's start. SGLang derives their keys from name and path; later ones get random keys."""
    adapters: dict[str, str] = {}
    for given in framework.in_effect("lora_paths") or ():
        name, path = _adapter_of(given)
        if name is None or path is None:
            raise Unreadable(f"the adapter {given!r} has no name or no path")
        adapters[str(name)] = f"{path} {_weights_at(str(path))}"
    return adapters or _NONE


def _adapter_of(given: Any) -> tuple[Any, Any]:
    """Name and path of an adapter in any form that SGLang uses: ``NAME=PATH``, ``PATH``, a mapping, or an object."""
    if isinstance(given, str):
        name, _, path = given.partition("=")
        return name, path or name
    if isinstance(given, Mapping):
        return given.get("lora_name"), given.get("lora_path")
    return attribute(given, "lora_name"), attribute(given, "lora_path")


def draft_model() -> list[str]:
    """The draft model. Without a path of its own, it is part of the target."""
    names = ("speculative_algorithm", "speculative_draft_load_format", "speculative_draft_model_quantization")
    parts = [str(framework.given(name)) for name in names] if framework.IS_INSTALLED else [_NONE]
    path = framework.given("speculative_draft_model_path") if framework.IS_INSTALLED else None
    if not path:
        return [*parts, "target"]
    revision = framework.given("speculative_draft_model_revision")
    if os.path.isfile(path):
        return [*parts, _weights_at(path)]
    form = framework.given("speculative_draft_load_format") or framework.given("load_format")
    return [*parts, _digest_of(str(path), revision, form) or f"name:{path}", str(revision)]


def _shown_dtype(pool: Any) -> str | None:
    try:
        return kind_of_numbers(pool)
    except Exception:
        return str(attribute(pool, "dtype")).rpartition(".")[2] or None


def _rank(config: Any, kind: str) -> str:
    return f"{_whole(config, f'{kind}_rank', 0)}/{_whole(config, f'{kind}_size', 1)}"


def _whole(config: Any, name: str, default: int) -> int:
    value = getattr(config, name, default)
    return default if value is None else int(value)
