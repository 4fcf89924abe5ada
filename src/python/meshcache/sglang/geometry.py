"""The layout of pages in each kind of host pool: the facts that give their bytes a meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from meshcache._engines.identity import Facts, Unreadable, value_text
from meshcache._engines.modules import imported

from . import framework
from .memory import attribute

_Reader = Callable[[Facts, Any, bool], None]

#: Types that say nothing about the numbers: SGLang stores 8-bit floats of both kinds and packed formats in them.
_KINDLESS: Final = frozenset({"uint8", "int8"})
#: Values of ``--kv-cache-dtype`` with other names in torch.
_KINDS_BY_SETTING: Final = {
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "bf16": "bfloat16",
    "half": "float16",
    "float": "float32",
}


def real_pool(pool: Any) -> Any:
    """The host pool in a ``HostPoolGroup``, which SGLang 0.5.16 to 0.5.18 registers instead."""
    anchor = attribute(pool, "anchor_entry")
    inner = None if anchor is None else attribute(anchor, "host_pool")
    return pool if inner is None else inner


def kind_of_numbers(pool: Any, *, is_draft: bool = False) -> str:
    """The kind of a pool's numbers, such as ``float8_e5m2``. ``is_draft``: the pool only has pages of a draft model,
    which may have a kind of its own. Raises ``Unreadable`` for bytes of unknown meaning."""
    stored = value_text(pool.dtype).removeprefix("torch.")
    if stored not in _KINDLESS:
        return stored
    # Before SGLang 0.5.22, host pools refer to their device pool, which knows the kind.
    device = attribute(attribute(pool, "device_pool"), "dtype")
    if device is not None:
        meant = value_text(device).removeprefix("torch.")
        if meant not in _KINDLESS:
            return meant
    setting = _kind_setting(is_draft)
    if setting == "auto":
        raise Unreadable(f"the pool stores {stored}, and --kv-cache-dtype is auto")
    if attribute(attribute(sys.modules.get("torch"), "version"), "hip") and setting.startswith("fp8"):
        raise Unreadable("on ROCm the kind of 8-bit floats depends on the device")
    return _KINDS_BY_SETTING.get(setting, setting)


def _kind_setting(is_draft: bool) -> str:
    own = framework.in_effect_if_any("speculative_draft_kv_cache_dtype") if is_draft else None
    return str(own or framework.in_effect("kv_cache_dtype"))


def named_kind(setting: str) -> str:
    """Torch's name for the value of a dtype setting."""
    return _KINDS_BY_SETTING.get(setting, setting)


def read_geometry(facts: Facts, pool: Any, parts: int = 0, *, is_draft: bool = False) -> None:
    """Adds the facts of a host pool.

    ``parts`` is the number of parts into which the heads of each page are split; 0 if they are not. ``is_draft``: the
    pages are those of a draft model only.
    """
    name = type(pool).__name__
    reader = _KINDS.get(name)
    if reader is None and not framework.IS_INSTALLED:
        reader = _stand_in
    facts.read("page", lambda: int(pool.page_size), where=f"{name}.page_size")
    facts.read("storage", lambda: str(pool.layout), where=f"{name}.layout")
    if reader is None:
        facts.read("kind", lambda: _unknown(name), where="the class of the host pool")
    elif parts:
        _split(facts, pool, parts)
    else:
        reader(facts, pool, is_draft)


def draft_layers(pool: Any) -> int:
    """Number of layers of a draft model in the pages of the target's pool. It is 0 before SGLang 0.5.18."""
    target = attribute(pool, "target_layer_num")
    packed = 0 if target is None else int(pool.layer_num) - int(target)
    return packed + len(attribute(pool, "mtp_draft_buffer_infos") or ())


def _unknown(name: str) -> str:
    raise Unreadable(f"pools of the class {name} are not known to this version of meshcache")


def _pieces(pool: Any, parts: int = 1) -> str:
    """Lengths of the pieces of a page, in order, as runs such as ``2x4096``."""
    sizes = piece_sizes(pool)
    if sizes is None:
        raise Unreadable("the pool does not say how long the pieces of a page are (get_page_buffer_meta)")
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size // parts:
            runs[-1][1] += 1
        else:
            runs.append([size // parts, 1])
    return "+".join(f"{count}x{size}" for size, count in runs)


def _read_all(facts: Facts, pool: Any, kind: str, names: dict[str, str]) -> None:
    """Adds the kind of a pool, and attributes of it. ``names`` maps names of facts to names of attributes."""
    label = type(pool).__name__
    facts.read("kind", lambda: kind, where=label)
    for fact, name in names.items():
        # The default argument binds the name now, as the loop variable changes.
        facts.read(fact, lambda name=name: getattr(pool, name), where=f"{label}.{name}")  # type: ignore[misc]


def _read_numbers(facts: Facts, pool: Any, is_draft: bool = False) -> None:
    where = "--speculative-draft-kv-cache-dtype or --kv-cache-dtype" if is_draft else "--kv-cache-dtype"
    facts.read("dtype", lambda: kind_of_numbers(pool, is_draft=is_draft), where=where)


def _read_axes(facts: Facts, pool: Any) -> None:
    facts.read("axes", lambda: _axes(pool), where=" or ".join(_AXES_SWITCHES))


def _axes(pool: Any) -> str:
    """Order of the bytes of keys and values: ``nhd`` (token, head, dimension) unless the environment changes it."""
    # Host pools refer to their buffers, or, before SGLang 0.5.22, to their device pool.
    described = [attribute(attribute(info, "buffers"), "layout") for info in attribute(pool, "_buffer_infos") or ()]
    device = attribute(attribute(pool, "device_pool"), "kv_cache_layout")
    found = {str(attribute(layout, "value") or layout) for layout in described or [device] if layout is not None}
    if found:
        # Layouts that store the tokens of a page one after the other count as equal.
        return "+".join(sorted({_SAME_AXES.get(name, name) for name in found}))
    for name, usual in _AXES_SWITCHES.items():
        value = framework.switch(name)
        if value not in (None, usual):
            raise Unreadable(f"{name} is {value}, and the pool does not say whether it follows that")
    return "nhd"


def _read_format(facts: Facts, pool: Any) -> None:
    """Adds the name of a special page format, which some pools have since SGLang 0.5.22."""
    facts.read("format", lambda: getattr(pool, "storage_format_tag", None) or "none", where="storage_format_tag")


#: Environment variables of SGLang that change the order of the bytes of keys and values, with their usual values.
_AXES_SWITCHES: Final = {"SGLANG_USE_HND_KVCACHE": False, "SGLANG_AITER_KV_CACHE_LAYOUT": "nhd"}
_SAME_AXES: Final = {"paged_nhd": "nhd", "page_major": "nhd"}
_LAYERS: Final = {"layers": "layer_num", "first_layer": "start_layer"}


def _heads(kind: str) -> _Reader:
    def read(facts: Facts, pool: Any, is_draft: bool) -> None:
        _read_all(facts, pool, kind, {**_LAYERS, "heads": "head_num", "head_dim": "head_dim"})
        facts.read("pieces", lambda: _pieces(pool), where="get_page_buffer_meta")
        # Pools that only have keys have a single order.
        if kind != "keys":
            _read_axes(facts, pool)
        _read_numbers(facts, pool, is_draft)
        _read_format(facts, pool)

    return read


def _split(facts: Facts, pool: Any, parts: int) -> None:
    """Adds the facts of parts of heads, which do not depend on how many heads a rank has."""
    _read_all(facts, pool, "heads", {**_LAYERS, "head_dim": "head_dim"})
    facts.read("heads", lambda: int(pool.head_num) // parts, where="head_num")
    facts.read("pieces", lambda: _pieces(pool, parts), where="get_page_buffer_meta")
    _read_axes(facts, pool)
    _read_numbers(facts, pool)
    _read_format(facts, pool)


def _latent(facts: Facts, pool: Any, is_draft: bool) -> None:
    names = {"rank": "kv_lora_rank", "rope_dim": "qk_rope_head_dim", "token_bytes": "size_per_token"}
    _read_all(facts, pool, "latent", {**_LAYERS, **names})
    if attribute(pool, "layout") == "page_first_kv_split":
        facts.read("pieces", lambda: _pieces(pool), where="get_page_buffer_meta")
    if attribute(pool, "_layer_shard_enabled"):
        facts.read("layer_shard", lambda: _unknown_shard(pool), where="--enable-dsa-cache-layer-split")
    _read_numbers(facts, pool, is_draft)
    _read_format(facts, pool)


def _unknown_shard(pool: Any) -> str:
    raise Unreadable(f"each rank keeps other layers of a {type(pool).__name__}")


def _states(facts: Facts, pool: Any, is_draft: bool) -> None:
    names = {"layers": "num_mamba_layers", "conv_dtype": "conv_dtype", "temporal_dtype": "temporal_dtype"}
    _read_all(facts, pool, "states", names)
    facts.read("conv", lambda: [list(shape) for shape in pool.conv_state_shapes], where="conv_state_shapes")
    facts.read("temporal", lambda: list(pool.temporal_state_shape), where="temporal_state_shape")
    facts.read("pieces", lambda: _pieces(pool), where="get_page_buffer_meta")


def _indexer(facts: Facts, pool: Any, is_draft: bool) -> None:
    names = {"stride": "indexer_page_stride_size", "dtype": "indexer_dtype"}
    _read_all(facts, pool, "indexer", {**_LAYERS, **names})


def _compressed(facts: Facts, pool: Any, is_draft: bool) -> None:
    """Adds the facts of pools of DeepSeek V4, which packs 8-bit floats of one kind with their scales."""
    names = {"layers": "layer_num", "item_bytes": "item_bytes", "slots": "slot_page_size", "pool": "pool_name"}
    _read_all(facts, pool, "compressed", names)
    facts.read("dtype", lambda: _compressed_kind(is_draft), where="--kv-cache-dtype")
    facts.read("encoding", _encoding, where="SGLANG_DSV4_KV_LAYOUT and --dsv4-attn-backend")


def _compressed_kind(is_draft: bool) -> str:
    setting = _kind_setting(is_draft)
    return named_kind("fp8_e4m3" if setting == "auto" else setting)


def _encoding() -> Any:
    """Order of numbers and scales in a page; two encodings differ only in that. Releases without a choice use v4."""
    if framework.switch("SGLANG_DSV4_KV_LAYOUT") is None:
        return "v4"
    pools = imported("sglang.srt.mem_cache.deepseek_v4_memory_pool")
    layout, option = pools.select_dsv4_kv_layout()
    return "v4" if layout.value == "v4" else [layout.value, option or "auto"]


def _compressed_keys(facts: Facts, pool: Any, is_draft: bool) -> None:
    names = {"layers": "layer_num", "item_bytes": "item_bytes", "slots": "slot_page_size"}
    _read_all(facts, pool, "compressed-keys", names)
    facts.read("dtype", lambda: pool.device_pool.qsa_compressed_k_buffer_pool[0].dtype, where="device_pool")


def _compressed_states(facts: Facts, pool: Any, is_draft: bool) -> None:
    names = {"layers": "layer_num", "page_bytes": "state_page_bytes", "ring": "ring_size", "pool": "pool_name"}
    _read_all(facts, pool, "compressed-states", names)


def _envelope(facts: Facts, pool: Any, is_draft: bool) -> None:
    """Adds the facts of pages that are a single piece, in the order of the device's own pages."""
    _read_all(facts, pool, "envelope", {"first_layer": "start_layer", "item_bytes": "item_bytes"})
    for fact, name in {"heads": "head_num", "head_dim": "head_dim", "layers": "layer_num"}.items():
        facts.read(fact, lambda name=name: getattr(pool.device_pool, name), where=f"device_pool.{name}")  # type: ignore[misc]
    _read_numbers(facts, pool, is_draft)
    _read_format(facts, pool)


def _logical(facts: Facts, pool: Any, is_draft: bool) -> None:
    """Adds the fact of a pool that has indices without bytes, as its pages are in other pools."""
    facts.read("kind", lambda: "logical", where=type(pool).__name__)


def _stand_in(facts: Facts, pool: Any, is_draft: bool) -> None:
    """Adds the facts of a pool of a program that simulates an engine."""
    facts.read("kind", lambda: "stand-in", where=type(pool).__name__)
    facts.read("pieces", lambda: _pieces(pool), where="get_page_buffer_meta")
    facts.read("dtype", lambda: value_text(pool.dtype).removeprefix("torch."), where="dtype")


#: Readers of a pool's facts, by its class. Pages of a pool of another class are not shared.
_KINDS: Final[dict[str, _Reader]] = {
    "MHATokenToKVPoolHost": _heads("heads"),
    "AsymmetricMHATokenToKVPoolHost": _heads("heads"),
    "MHATokenToKVPoolMXFP8Host": _heads("heads-mxfp8"),
    "MHATokenToKOnlyPoolHost": _heads("keys"),
    "MLATokenToKVPoolHost": _latent,
    "MambaPoolHost": _states,
    "DSAIndexerPoolHost": _indexer,
    "NSAIndexerPoolHost": _indexer,
    "QSAIndexerPoolHost": _compressed_keys,
    "DeepSeekV4PagedHostPool": _compressed,
    "DeepSeekV4StateHostPool": _compressed_states,
    "UnifiedPageEnvelopeHostPool": _envelope,
    "LogicalHostPool": _logical,
}


class _Indices(list[int]):
    """Stands in for a tensor of indices if there is no torch, with the methods that pools use."""

    def tolist(self) -> list[int]:
        return list(self)

    def numel(self) -> int:
        return len(self)


def _first_page(page_size: int) -> Any:
    """Indices of a pool's first page. Torch is used only if the engine has loaded it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return _Indices(range(page_size))
    return torch.arange(page_size, dtype=torch.int64, device="cpu")


def piece_sizes(pool: Any) -> list[int] | None:
    """Length of each piece of a page in bytes; None if the pool cannot be asked.

    Pools that may have no memory on some ranks are not asked, because all ranks must arrive at the same namespace. The
    bytes per token, which every rank knows, are used instead of the lengths.
    """
    if attribute(pool, "_is_dummy") is not None and attribute(pool, "size_per_token"):
        return None
    try:
        meta = pool.get_page_buffer_meta(_first_page(max(1, int(attribute(pool, "page_size") or 1))))
        sizes: Iterable[Any] = () if meta is None else meta[1]
        return [int(size) for size in sizes] or None
    except Exception:
        return None
