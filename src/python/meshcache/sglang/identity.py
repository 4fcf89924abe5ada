"""What the pages of an engine are kept under, so that different configurations share none, and what cannot work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshcache import Namespace

from .memory import attribute
from .pool import dtype_text, geometry
from .settings import Settings
from .sizes import piece_sizes


def head_parts(config: Any, pool: Any) -> list[str]:
    """What follows the key of a page in the keys of its parts, when heads are split; else nothing.

    Engines of several tensor-parallel sizes share pages that are split as for the least common multiple of their sizes.
    An engine of just that size keeps whole pages under the name of the one part that it has.
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
    """Raises ``ValueError`` for pools with which every request would fail later."""
    if attribute(pool, "_is_dummy") and not settings.interface_v1:
        raise ValueError('ranks without host memory of their own need "interface_v1": 1 in the extra config')
    buffer = attribute(pool, "kv_buffer")
    if buffer is None:
        return
    if attribute(pool, "layout") == "layer_first" and not attribute(pool, "stores_page_envelope"):
        raise ValueError(
            'the host pool has the layout "layer_first", in which a page is scattered over all layers: start the server '
            "with --hicache-mem-layout page_first --hicache-io-backend kernel, or page_first_direct with direct"
        )
    if not settings.interface_v1 and (parts or isinstance(buffer, (list, tuple))):
        raise ValueError('heads that are split or of different sizes need "interface_v1": 1 in the extra config')
    if settings.interface_v1 and not callable(attribute(pool, "get_page_buffer_meta")):
        raise ValueError(f"the pool {type(pool).__name__} cannot tell where its pages are (get_page_buffer_meta)")
    heads = attribute(pool, "head_num")
    if len(parts) > 1 and heads is not None and int(heads) % len(parts) != 0:
        raise ValueError(f"{heads} heads of a rank cannot be split into {len(parts)}: choose a smaller tp_lcm_size")


def namespace(config: Any, pool: Any, parts: Sequence[str], tag: str | None) -> Namespace:
    """The namespace of an engine's pages. Data-parallel ranks share it: they compute the same pages from the same tokens.

    Ranks of context parallelism do not: each holds its own slice of every page. The layout's text ends with a digest of
    the pool's geometry.
    """
    cp = f"cp={_whole(config, 'attn_cp_rank', 0)}/{_whole(config, 'attn_cp_size', 1)}"
    facts = [str(attribute(pool, "layout")), f"page={attribute(pool, 'page_size')}", cp]
    tp_rank, tp_size = _whole(config, "tp_rank", 0), _whole(config, "tp_size", 1)
    if parts:
        # The number of the part is in its key, and how many heads a rank has must not matter.
        tp_rank, tp_size = 0, int(config.tp_lcm_size)
        facts.append(f"heads={int(attribute(pool, 'head_num') or 0) // len(parts)}x{attribute(pool, 'head_dim')}")
        first, last, count = (attribute(pool, name) for name in ("start_layer", "end_layer", "layer_num"))
        facts.append(f"layers={first}-{last}/{count} format={attribute(pool, 'storage_format_tag')}")
        facts.append(f"bytes={sum(piece_sizes(pool) or ()) // len(parts)}")
    else:
        facts.append(geometry(pool))
    return Namespace(
        model=getattr(config, "model_name", None) or None,
        dtype=dtype_text(pool) or None,
        layout="sglang " + " ".join(facts),
        tag=tag,
        tp_rank=tp_rank,
        tp_size=tp_size,
        pp_rank=_whole(config, "pp_rank", 0),
        pp_size=_whole(config, "pp_size", 1),
        is_mla=bool(getattr(config, "is_mla_model", False)),
    )


def _whole(config: Any, name: str, default: int) -> int:
    value = getattr(config, name, default)
    return default if value is None else int(value)
