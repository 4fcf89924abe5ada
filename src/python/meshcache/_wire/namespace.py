"""The namespace of a client's pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Namespace:
    """Parts that must be equal for two clients to share pages. None leaves a part out.

    `fingerprint` identifies the model's weights, e.g. by a digest: clients with different ones share no pages. With
    `is_mla`, every tensor-parallel rank has the same pages, and `tp_rank` does not count. `computed` is not compared:
    if set, writes without `named` have keys that are computed from the content, and existing content is kept.
    """

    model: str | None = None
    dtype: str | None = None
    layout: str | None = None
    tag: str | None = None
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    is_mla: bool = False
    computed: bool = False
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        size = 0
        for name in ("model", "dtype", "layout", "tag", "fingerprint"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a string or None, got {value!r}")
            size += len((value or "").encode())
        if size > _MAX_BYTES:
            raise ValueError(f"the texts of a namespace may have {_MAX_BYTES:,} bytes together, got {size:,}")
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            allowed = "1 to 128 visible ASCII characters without spaces, such as a digest in hex"
            raise ValueError(f"fingerprint must be {allowed}, got {self.fingerprint!r}")
        for kind in ("tp", "pp"):
            rank, size = getattr(self, f"{kind}_rank"), getattr(self, f"{kind}_size")
            if not isinstance(rank, int) or not isinstance(size, int):
                raise TypeError(f"{kind}_rank and {kind}_size must be integers, got {rank!r} and {size!r}")
            if not 0 <= rank < size < 1 << 32:
                raise ValueError(f"{kind}_rank must be below {kind}_size, from 0 on; got {rank} of {size}")

    @classmethod
    def of(cls, given: Namespace | Mapping[str, Any] | None) -> Namespace | None:
        """Converts a mapping of fields; the names `model_name` and `is_mla_model` are accepted. Raises TypeError."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise TypeError(f"namespace must be a meshcache.Namespace, a mapping or None, got {given!r}")
        known = {field.name for field in fields(cls)}
        parts: dict[str, Any] = {}
        for name, value in given.items():
            field = _OTHER_NAMES.get(name, name)
            if field not in known:
                raise TypeError(f"a namespace has no part {name!r}; it has {', '.join(sorted(known))}")
            if field in parts:
                raise TypeError(f"{field} is given twice in the namespace")
            parts[field] = value
        return cls(**parts)


#: Most bytes of the texts of a namespace, so that a node takes them in the first request of a connection.
_MAX_BYTES = 60_000
#: Fingerprints that a node accepts. An empty one means none.
_FINGERPRINT = re.compile(r"[!-~]{1,128}")
_OTHER_NAMES = {"model_name": "model", "is_mla_model": "is_mla"}
