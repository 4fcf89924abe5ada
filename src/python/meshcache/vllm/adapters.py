"""LoRA adapters. vLLM's keys contain only their names, but their files determine what is computed."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshcache._engines.complaints import Complaints
from meshcache._engines.identity import value_text
from meshcache._engines.model_files import folder_digest, local_folder

from .framework import logger
from .model import is_of_other_hub

_DIGEST: Final = "adapter:"
#: Minimum number of adapters to remember. The least recently used ones are forgotten first, as in vLLM itself.
_KNOWN_COUNT: Final = 1024
#: Options of vLLM that determine how adapters are read and which parts of them are applied, with their defaults.
_OPTIONS: Final[Mapping[str, Any]] = {
    "enable_mixed_moe_lora_format": False,
    "enable_moe_shared_loras": False,
    "enable_tower_connector_lora": False,
}


@dataclass
class _Adapter:
    """An adapter as the engine has loaded it."""

    name: str
    path: str
    folder: str | None
    #: Sizes and times of its files when their digest was taken.
    state: tuple[Any, ...]
    #: Digest of its files; None: they cannot be read, or changed while the engine may have had the former ones.
    digest: str | None
    #: Unique stand-in for the digest if the files could not be read when the adapter was loaded.
    private: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: Whether the files have changed since they were loaded.
    is_in_doubt: bool = False
    #: Whether the engine was about to load it when it was read, so that its download is not known yet.
    is_loading: bool = False


class Adapters:
    """Tracks the files from which this engine's adapters were loaded. Threads may share it.

    An adapter is in doubt if its files change after it was loaded: the engine may have the former files in memory, or
    may load the new ones at any time. Requests with an adapter in doubt get unique keys.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, _Adapter] = {}
        self._marks: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._complaints = Complaints(logger)
        self._count = _KNOWN_COUNT
        # Chunks with adapters are not shared until the options are known.
        self._options = uuid.uuid4().hex
        #: Number of detected changes of adapters' files.
        self.changes = 0

    def configure(self, vllm_config: Any) -> None:
        """Reads vLLM's options that affect what adapters compute. ``vllm_config`` is None if it was not found."""
        with self._lock:
            self._options = uuid.uuid4().hex
            try:
                self._count = max(_KNOWN_COUNT, getattr(vllm_config.lora_config, "max_cpu_loras", None) or 0)
                self._options = _options_text(vllm_config)
            except Exception as error:
                self._complaints.log(
                    "options",
                    f"chunks with LoRA adapters are not shared: vLLM's options for adapters are unknown ({error})",
                )

    def mark(self, request: Any) -> str:
        """The text added to the keys of a request with an adapter. It is equal for equal files and options."""
        with self._lock:
            mark = self._marks.get(request)
            if mark is None:
                mark = self._marks[request] = self._mark(request.lora_request)
            return mark

    def loads(self, lora_request: Any) -> None:
        """Called before the engine loads an adapter, unless it has one with this number already."""
        with self._lock:
            if getattr(lora_request, "load_inplace", False):
                self._known.pop(lora_request.lora_int_id, None)
            self._find(lora_request, is_loading=True)

    def loaded(self, lora_request: Any) -> None:
        """Called after the engine has loaded an adapter. Checks that its files are the same as before."""
        with self._lock:
            adapter = self._find(lora_request)
            if adapter.is_loading and _folder(adapter.path) is None:
                # vLLM has just downloaded it, or has found an earlier download.
                adapter = self._known[lora_request.lora_int_id] = _read(lora_request, is_downloaded=True)
            adapter.is_loading = False
            self._check(adapter)

    def removed(self, number: int) -> None:
        """Called when the engine has dropped the adapter with this number."""
        with self._lock:
            self._known.pop(number, None)

    def look(self) -> int:
        """Checks all adapters; returns the number of changes so far. KV computed meanwhile may not match its keys."""
        with self._lock:
            for adapter in self._known.values():
                self._check(adapter)
            return self.changes

    def _mark(self, lora_request: Any) -> str:
        adapter = self._find(lora_request)
        for other in self._known.values():
            if other.path == adapter.path:
                self._check(other)
        if adapter.is_in_doubt:
            return f"{_DIGEST}{uuid.uuid4().hex}"
        if adapter.digest is None:
            self._complain(
                adapter,
                "its files cannot be read here, or vLLM downloads them by itself; make them readable, then remove it and load it with add_lora",
            )
        return f"{_DIGEST}{adapter.digest or adapter.private}{self._options}"

    def _find(self, lora_request: Any, *, is_loading: bool = False) -> _Adapter:
        number, name, path = lora_request.lora_int_id, lora_request.lora_name, lora_request.lora_path
        known = self._known.pop(number, None)
        if known is None or (known.name, known.path) != (name, path):
            known = _read(lora_request)
            known.is_loading = is_loading
        # The order of the mapping is that of the latest use.
        self._known[number] = known
        while len(self._known) > self._count:
            del self._known[next(iter(self._known))]
        return known

    def _check(self, adapter: _Adapter) -> None:
        state = _state(adapter.folder)
        if adapter.digest is None or state == adapter.state:
            return
        adapter.state = state
        if _digest(adapter.folder) != adapter.digest:
            adapter.digest = None
            adapter.is_in_doubt = True
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


def _options_text(vllm_config: Any) -> str:
    """The options that differ from their defaults, as a text."""
    own = vllm_config.lora_config
    if own is None:
        return ""
    given: dict[str, Any] = {name: getattr(own, name, default) for name, default in _OPTIONS.items()}
    given = {name: value for name, value in given.items() if value != _OPTIONS[name]}
    modules = getattr(own, "target_modules", None)
    if modules is not None:
        given["target_modules"] = sorted(set(modules))
    if own.lora_dtype not in (None, "auto", vllm_config.model_config.dtype):
        given["lora_dtype"] = own.lora_dtype
    return f":{value_text(given)}" if given else ""


def _read(lora_request: Any, *, is_downloaded: bool = False) -> _Adapter:
    name, path = lora_request.lora_name, lora_request.lora_path
    if getattr(lora_request, "tensorizer_config_dict", None):
        # The weights are read from elsewhere.
        return _Adapter(name, path, "", (), None)
    folder = _folder(path)
    if folder is None and (is_downloaded or _is_offline()):
        # If vLLM is online, it may replace an existing download when it loads the adapter.
        folder = local_folder(path, is_of_other_hub=is_of_other_hub())
    state = _state(folder)
    digest = _digest(folder)
    # Files that change while they are being read have no digest.
    return _Adapter(name, path, folder, state, digest if _state(folder) == state else None)


def _folder(path: str) -> str | None:
    """The folder at a path, as vLLM interprets it; None: it is a name on a hub, or the folder does not exist."""
    own = os.path.expanduser(path)
    return own if os.path.isdir(own) else None


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "true", "yes")


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
