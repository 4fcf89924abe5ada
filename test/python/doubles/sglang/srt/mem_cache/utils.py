"""A double of the framework's module."""

from __future__ import annotations


def storage_namespace_seed(extra_key: str | None, cache_salt: str | None) -> str | None:
    raise NotImplementedError()
