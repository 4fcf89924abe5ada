"""LoRA adapters: vLLM's keys have their names, and their files decide what is computed."""

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
#: Adapters that are remembered at least. Those that were not used for longest are forgotten first, as vLLM does itself.
_KNOWN_COUNT: Final = 1024
#: Options of vLLM that decide which parts of an adapter are applied, and how they are read, with what they are by default.
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
    #: Digest of its files; None: they cannot be read, or they have changed while the engine may have had the former ones.
    digest: str | None
    #: Stands for the digest of files that could not be read when the adapter was loaded: no other engine has it.
    private: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: Whether the files have changed since.
    is_in_doubt: bool = False
    #: Whether the engine began to load it when it was read, so that its download is not known yet.
    is_loading: bool = False


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
        self._count = _KNOWN_COUNT
        # Until the options are known, adapters are shared with nobody.
        self._options = uuid.uuid4().hex
        #: How often the files of an adapter have changed, as far as is known.
        self.changes = 0

    def configure(self, vllm_config: Any) -> None:
        """The options of vLLM that decide what is computed with an adapter. ``vllm_config``: None where it cannot be found."""
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
        """What the keys of a request with an adapter have beside the adapter's name: the same text for the same files and options."""
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
            self._find(lora_request, is_loading=True)

    def loaded(self, lora_request: Any) -> None:
        """The engine has loaded it: the files must be the same as before."""
        with self._lock:
            adapter = self._find(lora_request)
            if adapter.is_loading and _folder(adapter.path) is None:
                # vLLM has downloaded it just now, or has found its download.
                adapter = self._known[lora_request.lora_int_id] = _read(lora_request, is_downloaded=True)
            adapter.is_loading = False
            self._check(adapter)

    def removed(self, number: int) -> None:
        """The engine has dropped the adapter of this number."""
        with self._lock:
            self._known.pop(number, None)

    def look(self) -> int:
        """How often the files of an adapter have changed under the engine until now: what was computed meanwhile may be of others than its keys say."""
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
        # The last one is the one that was used last.
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
    """The options that are not as they are by default, as a text."""
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
        # Otherwise vLLM may replace the download of today when it loads the adapter.
        folder = local_folder(path, is_of_other_hub=is_of_other_hub())
    state = _state(folder)
    digest = _digest(folder)
    # Files that change while they are read have no digest.
    return _Adapter(name, path, folder, state, digest if _state(folder) == state else None)


def _folder(path: str) -> str | None:
    """The folder that a path names, as vLLM reads it; None: it is a name on a hub, or there is no such folder."""
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
