"""Copies KV rows between device pools (one tensor per layer) and host pools, both in host memory.

A row of `item_size` bytes is one token in one layer. A device pool has one table of rows per layer. A `layer_first`
host pool has the same layout; a `page_first` one has all layers of a token in one row of `layout_dim` bytes.
"""

from __future__ import annotations

import builtins
import ctypes
from typing import Any

import torch


def transfer_kv_per_layer_mla(
    src: Any, dst: Any, src_indices: Any, dst_indices: Any, item_size: int, **_: object
) -> None:
    _copy(_Rows(src.data_ptr(), item_size), _Rows(dst.data_ptr(), item_size), src_indices, dst_indices, item_size)


def transfer_kv_per_layer(
    src_k: Any, dst_k: Any, src_v: Any, dst_v: Any, src_indices: Any, dst_indices: Any, item_size: int, **_: object
) -> None:
    for src, dst in ((src_k, dst_k), (src_v, dst_v)):
        transfer_kv_per_layer_mla(src, dst, src_indices, dst_indices, item_size)


def transfer_kv_per_layer_mla_pf_lf(
    src: Any,
    dst: Any,
    src_indices: Any,
    dst_indices: Any,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
    **_: object,
) -> None:
    host = _Rows(src.data_ptr() + layer_id * item_size, src_layout_dim)
    _copy(host, _Rows(dst.data_ptr(), item_size), src_indices, dst_indices, item_size)


def transfer_kv_per_layer_pf_lf(src_k: Any, dst_k: Any, src_v: Any, dst_v: Any, **rest: Any) -> None:
    for src, dst in ((src_k, dst_k), (src_v, dst_v)):
        transfer_kv_per_layer_mla_pf_lf(src, dst, **rest)


def transfer_kv_all_layer_mla(
    src_layers: Any, dst_layers: Any, src_indices: Any, dst_indices: Any, item_size: int, num_layers: int, **_: object
) -> None:
    for src, dst in zip(src_layers.tolist()[:num_layers], dst_layers.tolist()):
        _copy(_Rows(src, item_size), _Rows(dst, item_size), src_indices, dst_indices, item_size)


def transfer_kv_all_layer(
    src_k_layers: Any, dst_k_layers: Any, src_v_layers: Any, dst_v_layers: Any, **rest: Any
) -> None:
    for src, dst in ((src_k_layers, dst_k_layers), (src_v_layers, dst_v_layers)):
        transfer_kv_all_layer_mla(src, dst, **rest)


def transfer_kv_all_layer_mla_lf_pf(
    src_layers: Any,
    dst: Any,
    src_indices: Any,
    dst_indices: Any,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
    **_: object,
) -> None:
    for layer, src in enumerate(src_layers.tolist()[:num_layers]):
        host = _Rows(dst.data_ptr() + layer * item_size, dst_layout_dim)
        _copy(_Rows(src, item_size), host, src_indices, dst_indices, item_size)


def transfer_kv_all_layer_lf_pf(src_k_layers: Any, dst_k: Any, src_v_layers: Any, dst_v: Any, **rest: Any) -> None:
    for src, dst in ((src_k_layers, dst_k), (src_v_layers, dst_v)):
        transfer_kv_all_layer_mla_lf_pf(src, dst, **rest)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_: object, **__: object) -> None:
        raise NotImplementedError(f"sgl_kernel.kvcacheio.{name} has no stand-in: use page_first or layer_first")

    return kernel


def install() -> None:
    """Adds the copies to the builtins, where modules of SGLang, which import them only on GPUs, find them by name."""
    for name, value in list(globals().items()):
        if name.startswith("transfer_kv_"):
            setattr(builtins, name, value)


class _Rows:
    """Rows that start `stride` bytes apart, from an address on."""

    def __init__(self, address: int, stride: int) -> None:
        self.address = address
        self.stride = stride

    def first(self, count: int, size: int) -> torch.Tensor:
        """The first `size` bytes of `count` rows."""
        length = (count - 1) * self.stride + size
        memory = (ctypes.c_char * length).from_address(self.address)
        return torch.frombuffer(memory, dtype=torch.uint8).as_strided((count, size), (self.stride, 1))


def _copy(source: _Rows, target: _Rows, source_indices: Any, target_indices: Any, size: int) -> None:
    if source_indices.numel() == 0:
        return
    rows = source.first(int(source_indices.max()) + 1, size)
    target.first(int(target_indices.max()) + 1, size)[target_indices.long()] = rows[source_indices.long()]
