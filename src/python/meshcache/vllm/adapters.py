"""LoRA adapters: vLLM's keys have their names, and their files decide what is computed."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from dataclasses import dataclass
from typing import Any, Final

from meshcache._engines.complaints import Complaints
from meshcache._engines.model_files import folder_digest, local_folder

from .framework import logger

_DIGEST: Final = "adapter:"


@dataclass
class _Adapter:
    """An adapter as the engine has loaded it."""

    name: str
    path: str
    folder: str | None
    #: Sizes and times of its files when their digest was taken.
    state: tuple[Any, ...]
    #: Digest of its files; None: they cannot be read, or they have changed while the engine may have had the former ones.
    digest: str | None


class Adapters:
    """Which files the adapters of this engine were loaded from. Threads may share it.

    An adapter whose files change after it was loaded is in doubt: the engine may have the former files in memory, or may load the new ones at any
    time. Requests with an adapter in doubt have keys of their own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, _Adapter] = {}
        self._marks: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._complaints = Complaints(logger)
        #: How often the files of an adapter have changed, as far as is known.
        self.changes = 0

    def mark(self, request: Any) -> str:
        """What the keys of a request with an adapter have beside the adapter's name: the same text for the same files."""
        with self._lock:
            mark = self._marks.get(request)
            if mark is None:
                mark = self._marks[request] = self._mark(request.lora_request)
            return mark

    def loads(self, lora_request: Any) -> None:
        """The engine is about to load an adapter, unless it has one of this number already."""
        with self._lock:
            if getattr(lora_request, "load_inplace", False):
                self._known.pop(lora_request.lora_int_id, None)
            self._find(lora_request)

    def loaded(self, lora_request: Any) -> None:
        """The engine has loaded it: the files must be the same as before."""
        with self._lock:
            self._check(self._find(lora_request))

    def removed(self, number: int) -> None:
        """The engine has dropped the adapter of this number."""
        with self._lock:
            self._known.pop(number, None)

    def look(self) -> int:
        """How often the files of an adapter have changed under the engine until now: what was computed meanwhile may be of others than its keys say."""
        with self._lock:
            self._check_all()
            return self.changes

    def _check_all(self) -> None:
        for adapter in self._known.values():
            self._check(adapter)

    def _mark(self, lora_request: Any) -> str:
        adapter = self._find(lora_request)
        self._check_all()
        return f"{_DIGEST}{uuid.uuid4().hex if adapter.digest is None else adapter.digest}"

    def _find(self, lora_request: Any) -> _Adapter:
        number, name, path = lora_request.lora_int_id, lora_request.lora_name, lora_request.lora_path
        known = self._known.get(number)
        if known is None or (known.name, known.path) != (name, path):
            known = self._known[number] = _read(name, path)
            if known.digest is None:
                self._complain(
                    known, "its files cannot be read here; make them readable, then remove it and load it again"
                )
        return known

    def _check(self, adapter: _Adapter) -> None:
        state = _state(adapter.folder)
        if adapter.digest is None or state == adapter.state:
            return
        adapter.state = state
        if _digest(adapter.folder) != adapter.digest:
            adapter.digest = None
            self.changes += 1
            self._complain(
                adapter,
                "its files have changed since the engine loaded it; remove it and load it again, or load it in place",
            )

    def _complain(self, adapter: _Adapter, why: str) -> None:
        self._complaints.log(
            f"adapter {adapter.path}",
            f"chunks with the LoRA adapter {adapter.name} ({adapter.path}) are not shared: {why}",
        )


def _read(name: str, path: str) -> _Adapter:
    folder = local_folder(path)
    state = _state(folder)
    digest = _digest(folder)
    # Files that change while they are read have no digest.
    return _Adapter(name, path, folder, state, digest if _state(folder) == state else None)


def _digest(folder: str | None) -> str | None:
    if folder is None:
        return None
    try:
        return folder_digest(folder)
    except OSError:
        return None


def _state(folder: str | None) -> tuple[Any, ...]:
    if folder is None:
        return ()
    try:
        found = [(entry.name, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found))
