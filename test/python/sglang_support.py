"""What the tests of the SGLang backend share: the paths, small stand-ins for tensors and host pools, and settings."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _path in (os.path.join(ROOT, "src", "python"), os.path.join(ROOT, "test", "python", "doubles")):
    if _path not in sys.path:
        sys.path.insert(0, _path)

from sglang.srt import server_args  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig  # noqa: E402

# Misses and failures are what many of the tests are about.
logging.getLogger("meshcache.sglang").setLevel(logging.CRITICAL)


class Indices:
    """Token indices, in place of a tensor of integers."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: slice) -> Indices:
        return Indices(self._values[at])

    def numel(self) -> int:
        return len(self._values)

    def tolist(self) -> list[int]:
        return list(self._values)


class Tensor:
    """Some memory, in place of a tensor of bytes. ``shared`` puts it into a memfd, as SGLang's allocator "shm" does."""

    def __init__(self, length: int, *, shared: bool = True) -> None:
        self.length = length
        if shared:
            self.descriptor = os.memfd_create("pool", os.MFD_CLOEXEC)
            os.ftruncate(self.descriptor, length)
            self.memory = mmap.mmap(self.descriptor, length)
        else:
            self.descriptor = -1
            self.memory = mmap.mmap(-1, length)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            os.close(self.descriptor)

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self.length

    def element_size(self) -> int:
        return 1

    def is_contiguous(self) -> bool:
        return True

    def contiguous(self) -> Tensor:
        return self


class View:
    """A part of a tensor."""

    def __init__(self, tensor: Tensor, offset: int, length: int) -> None:
        self._tensor, self._offset, self._length = tensor, offset, length

    def data_ptr(self) -> int:
        return self._tensor.data_ptr() + self._offset

    def numel(self) -> int:
        return self._length

    def element_size(self) -> int:
        return 1


class _HostPool:
    """Page ``n`` of a component lies at ``n * component bytes`` of its buffer. ``page_size`` indices are one page."""

    def __init__(
        self,
        pages: int,
        components: Sequence[int],
        *,
        page_size: int = 4,
        layout: str = "page_first",
        dtype: str = "torch.bfloat16",
        meant: str | None = None,
        shared: bool = True,
    ) -> None:
        self.page_num, self.page_size, self.layout, self.dtype = pages, page_size, layout, dtype
        self.device_pool = SimpleNamespace(dtype=meant or dtype)
        self.components = tuple(components)
        self.size_per_token = sum(components) // page_size
        self.layer_num, self.start_layer, self.end_layer = 2, 0, 2
        self.buffers = [Tensor(max(1, pages * size), shared=shared) for size in components]

    def get_page_buffer_meta(self, indices: Indices) -> tuple[list[int], list[int]]:
        addresses, lengths = [], []
        for first in indices.tolist()[:: self.page_size]:
            for buffer, size in zip(self.buffers, self.components):
                addresses.append(buffer.data_ptr() + first // self.page_size * size)
                lengths.append(size)
        return addresses, lengths

    def indices(self, pages: Sequence[int]) -> Indices:
        return Indices([page * self.page_size + token for page in pages for token in range(self.page_size)])

    def _parts(self, page: int) -> Iterator[tuple[Tensor, int, int]]:
        for buffer, size in zip(self.buffers, self.components):
            yield buffer, page * size, size

    def write(self, page: int, content: bytes) -> None:
        at = 0
        for buffer, offset, size in self._parts(page):
            buffer.memory[offset : offset + size] = content[at : at + size]
            at += size

    def read(self, page: int) -> bytes:
        return b"".join(buffer.memory[offset : offset + size] for buffer, offset, size in self._parts(page))

    @property
    def page_bytes(self) -> int:
        return sum(self.components)


class MHATokenToKVPoolHost(_HostPool):
    """Keys and values in the two halves of one buffer."""

    def __init__(self, pages: int, half: int, *, heads: int = 4, **options: Any) -> None:
        super().__init__(pages, (), **options)
        self.head_num, self.head_dim, self.components = heads, 8, (half, half)
        self.size_per_token = 2 * half // self.page_size
        self.kv_buffer = Tensor(2 * pages * half, shared=options.get("shared", True))
        self.half_bytes = pages * half

    @property
    def k_buffer(self) -> View:
        return View(self.kv_buffer, 0, self.half_bytes)

    @property
    def v_buffer(self) -> View:
        return View(self.kv_buffer, self.half_bytes, self.half_bytes)

    def get_hybrid_pool_buffer(self) -> list[View]:
        return [self.k_buffer, self.v_buffer]

    def get_page_buffer_meta(self, indices: Indices) -> tuple[list[int], list[int]]:
        return self.get_split_heads_page_buffer_meta(indices, 1)

    def get_split_heads_page_buffer_meta(self, indices: Indices, split: int) -> tuple[list[int], list[int]]:
        half, base, addresses = self.components[0], self.kv_buffer.data_ptr(), []
        for first in indices.tolist()[:: self.page_size]:
            for part in range(split):
                key = base + first // self.page_size * half + part * half // split
                addresses += [key, key + self.half_bytes]
        return addresses, [half // split] * len(addresses)

    def _parts(self, page: int) -> Iterator[tuple[Tensor, int, int]]:
        half = self.components[0]
        yield self.kv_buffer, page * half, half
        yield self.kv_buffer, self.half_bytes + page * half, half


class AsymmetricMHATokenToKVPoolHost(_HostPool):
    """Keys and values in buffers of their own, of different sizes."""

    head_num, head_dim = 4, 8

    @property
    def kv_buffer(self) -> tuple[Tensor, ...]:
        return tuple(self.buffers)


class MLATokenToKVPoolHost(_HostPool):
    """One component in one buffer."""

    kv_lora_rank, qk_rope_head_dim = 12, 4

    @property
    def kv_buffer(self) -> Tensor:
        return self.buffers[0]


class MambaPoolHost(_HostPool):
    """States: one index is one page, of several components."""

    def __init__(self, pages: int, components: Sequence[int], **options: Any) -> None:
        super().__init__(pages, components, page_size=1, **options)
        self.num_mamba_layers = 2
        self.conv_dtype = self.temporal_dtype = self.dtype
        self.conv_state_shapes, self.temporal_state_shape = [(4, 3)], (4, 16)

    def get_hybrid_pool_buffer(self) -> list[Tensor]:
        return list(self.buffers)


class DSAIndexerPoolHost(_HostPool):
    """Keeps its buffers where nobody looks first."""

    def __init__(self, pages: int, components: Sequence[int], **options: Any) -> None:
        super().__init__(pages, components, **options)
        self.indexer_page_stride_size, self.indexer_dtype = sum(components) // 2, "torch.uint8"


HiddenPoolHost = DSAIndexerPoolHost


class LogicalHostPool:
    """Indices without bytes."""

    page_size, layout, dtype, kv_buffer, size_per_token = 4, "layer_first", "torch.uint8", None, 0

    def get_page_buffer_meta(self, indices: Indices) -> None:
        return None

    def indices(self, pages: Sequence[int]) -> Indices:
        return Indices([page * self.page_size + token for page in pages for token in range(self.page_size)])


@contextmanager
def arguments(**given: Any) -> Iterator[server_args.ServerArgs]:
    """SGLang's server arguments for the time of a context."""
    before = server_args.get_global_server_args()
    made = server_args.ServerArgs(**given)
    server_args.set_global_server_args_for_scheduler(made)
    try:
        yield made
    finally:
        server_args.set_global_server_args_for_scheduler(before)


@contextmanager
def environment(**switches: Any) -> Iterator[None]:
    """A release of SGLang that has these variables of the environment, with the values that it makes of them."""
    made = {name: SimpleNamespace(get=lambda value=value: value) for name, value in switches.items()}
    module: Any = SimpleNamespace(envs=SimpleNamespace(**made))
    with mock.patch.dict(sys.modules, {"sglang.srt.environ": module}):
        yield


def storage_config(extra: dict[str, Any] | None = None, **changes: Any) -> HiCacheStorageConfig:
    """A configuration as SGLang makes it; ``extra`` is added to the extra configuration."""
    facts: dict[str, Any] = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": True,
        "model_name": "model",
    }
    own = {"backend_name": "meshcache", "module_path": "meshcache.sglang", "class_name": "MeshCacheStorage"}
    facts["extra_config"] = {**own, "interface_v1": 1, **(extra or {})}
    return HiCacheStorageConfig(**{**facts, **changes})


def page_keys(name: str, count: int) -> list[str]:
    """Keys as SGLang makes them: 64 hexadecimal characters, chained."""
    keys, last = [], name
    for _ in range(count):
        last = hashlib.sha256(last.encode()).hexdigest()
        keys.append(last)
    return keys


def content(key: str, length: int, salt: str = "") -> bytes:
    """The bytes of a page, which follow from its key."""
    return hashlib.shake_128(f"{key}{salt}".encode()).digest(length)
