"""Keys of LMCache's pages in the cluster: LMCache's own keys, prefixed with a digest of the page's form and weights."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import uuid
from dataclasses import dataclass, replace
from typing import Final

from .._engines import model_files
from .identity import KV_CACHE_DTYPE, SERDE
from .server import LMCacheServer, PageForm, Registration
from .settings import Settings

#: Separates the digest from LMCache's key, and the parts of that key. Digests do not contain it.
_SEPARATOR: Final = "@"
_DIGEST_DIGITS: Final = 32


@dataclass(frozen=True)
class Model:
    """What is known about the pages of one model name and world size."""

    registration: Registration
    #: Identity of the model's files; "": its name; None: not known yet, or LMCache may have pages of other files.
    files: str | None
    #: Whether pages of this model are not shared with other servers.
    is_private: bool = False
    #: Folder of the files, and its state when they were read.
    state: tuple[str, object] | None = None


class PageKeys:
    """Gives pages their keys in the cluster, or None for a page that must be a miss. Threads may share it.

    After each registration, the files of the model are read in a thread; until then, its pages are misses. A restarted
    engine may find other files in the same place while LMCache still has pages of the former ones. In that case, all
    its pages are misses until LMCache's memory is cleared.
    """

    def __init__(self, settings: Settings, server: LMCacheServer | None, logger: logging.Logger) -> None:
        self._stated = settings.facts
        self._has_fingerprint = settings.fingerprint is not None
        self._logger = logger
        self._lock = threading.Lock()
        self._models: dict[tuple[str, int], Model] = {}
        self._private = uuid.uuid4().hex
        self._unknown: set[str] = set()
        self._server = server
        if server is not None:
            server.add(self)

    def cleared(self) -> None:
        """Called when LMCache has cleared its memory. From now on, it only holds pages of the present files."""
        with self._lock:
            models = [model for model in self._models.values() if model.files is None and model.state is not None]
        for model in models:
            # A new object is used, so that the result of a read that began earlier is dropped.
            self._read(replace(model), former=None)

    def registered(self, registration: Registration) -> None:
        """Called when an engine has registered. Logs the form of its pages, and whether they are shared."""
        where = _name_of(registration)
        known = self._models.get((registration.model, registration.world_size))
        if known is not None and known.registration == registration:
            self._look_again(known)
            return
        if registration.is_mixed:
            self._logger.warning(
                "engines of %s have registered different pages with this server, and LMCache gives them the same keys: none of them is stored or "
                "loaded; restart the server, and give each kind of engine a server of its own",
                where,
            )
            self._put(Model(registration, ""))
            return
        is_private = self._is_private(registration, where)
        folder = None if self._has_fingerprint else self._folder_of(registration.model)
        if folder is None:
            is_private = self._has_hidden_files(registration.model, where) or is_private
            self._put(Model(registration, "", is_private))
        else:
            self._read(Model(registration, None, is_private, (folder, None)), former=None)
        forms = "; ".join(f"group {group}: {form.text}" for group, form in sorted(registration.forms.items()))
        self._logger.info("pages of %s: %s", where, forms)

    def key_of(self, key: str, *, length: int | None, are_weights_told: bool) -> str | None:
        """The key of a page in the cluster, or None. ``length`` is the page's length in bytes if it is to be moved.
        ``are_weights_told``: the namespace has a fingerprint. Raises ``ValueError`` if the length is wrong."""
        if self._server is None:
            return key
        model, world_size, group = parts_of(key)
        known = self._models.get((model, world_size))
        if known is None:
            self._note_unknown(model)
            return f"{self._private}{_SEPARATOR}{key}"
        form = known.registration.forms.get(group)
        if known.registration.is_mixed or (known.files is None and not are_weights_told):
            return None
        if form is None or known.is_private:
            return f"{self._private}{_SEPARATOR}{key}"
        if length is not None and length != form.length and SERDE not in self._stated:
            raise ValueError(
                f"a page has {length:,} bytes, but engines have registered pages of {form.length:,} bytes; if LMCache converts pages, state how in "
                f'adapter_params: "facts": {{"{SERDE}": "..."}}'
            )
        return f"{digest_of(form, '' if are_weights_told else known.files or '')}{_SEPARATOR}{key}"

    def _put(self, model: Model) -> None:
        with self._lock:
            self._models[model.registration.model, model.registration.world_size] = model

    def _is_private(self, registration: Registration, where: str) -> bool:
        if registration.problem or not registration.forms:
            self._logger.warning(
                "pages of %s are shared with no other server: this version of meshcache cannot read LMCache's description of them (%s)",
                where,
                registration.problem or "no object groups",
            )
            return True
        if any(form.is_opaque for form in registration.forms.values()) and KV_CACHE_DTYPE not in self._stated:
            self._logger.warning(
                "pages of %s are shared with no other server: their elements have one byte, and its meaning is unknown; state the kind of fp8 and the "
                'source of its scales in adapter_params: "facts": {"%s": "fp8_e4m3, scales of the checkpoint"}, equal on all servers that may share',
                where,
                KV_CACHE_DTYPE,
            )
            return True
        return False

    @staticmethod
    def _folder_of(model: str) -> str | None:
        try:
            return model_files.local_folder(model)
        except OSError:
            return None

    def _has_hidden_files(self, model: str, where: str) -> bool:
        """Whether the model is given as a path of the engine's that is not visible to this process."""
        if self._has_fingerprint or not model_files.is_path(model):
            return False
        self._logger.warning(
            "pages of %s are shared with no other server: this process does not see that folder, so that its weights are unknown; "
            'state them in adapter_params: "fingerprint": "...", equal on all servers that may share',
            where,
        )
        return True

    def _look_again(self, known: Model) -> None:
        """Checks the files of a known model again after an engine has started or restarted."""
        if known.state is None or known.files is None:
            return
        folder = self._folder_of(known.registration.model)
        try:
            state = None if folder is None else (folder, model_files.folder_state(folder))
        except OSError:
            state = None
        if state != known.state:
            self._read(replace(known, files=None, state=state or known.state), former=known.files)

    def _read(self, model: Model, former: str | None) -> None:
        """Reads a model's files in a thread; its pages are misses meanwhile. ``former`` identifies the files of its
        pages in LMCache's memory, if any."""
        self._put(model)
        threading.Thread(target=self._read_files, args=(model, former), name="meshcache-files", daemon=True).start()

    def _read_files(self, model: Model, former: str | None) -> None:
        assert model.state is not None
        registration, state, folder = model.registration, model.state, model.state[0]
        where = _name_of(registration)
        files: str | None
        try:
            state = folder, model_files.folder_state(folder)
            files = model_files.folder_digest(folder) or ""
            if not files and os.path.isdir(registration.model):
                raise FileNotFoundError("it has no files of weights")
            if model_files.folder_state(folder) != state[1]:
                raise OSError("they are being written")
        except OSError as error:
            self._logger.warning(
                "pages of %s are shared with no other server: the weights in %s cannot be read (%s); state them in adapter_params: "
                '"fingerprint": "..."',
                where,
                folder,
                error,
            )
            # This text is unique to this server.
            files = self._private
        else:
            if former is None or former == files:
                self._logger.info("pages of %s: the weights are identified by %s", where, files or "the model's name")
            else:
                self._logger.warning(
                    "the files of %s have changed since its engines registered first, and LMCache's memory may have pages of the former ones: none of its "
                    "pages is stored or loaded until that memory is cleared; start all of its engines anew, then clear it, or restart the server",
                    where,
                )
                files = None
        with self._lock:
            # Another engine may have registered meanwhile, with another form or other files.
            if self._models.get((registration.model, registration.world_size)) is model:
                self._models[registration.model, registration.world_size] = replace(model, files=files, state=state)

    def _note_unknown(self, model: str) -> None:
        with self._lock:
            if model in self._unknown:
                return
            self._unknown.add(model)
        self._logger.warning(
            'pages of model "%s" are shared with no other server: no engine has registered it since the plug-in was loaded',
            model,
        )


def _name_of(registration: Registration) -> str:
    return f'model "{registration.model}" on {registration.world_size} ranks'


def digest_of(form: PageForm, files: str) -> str:
    """The prefix of the keys of pages with this form and these files."""
    return hashlib.sha256(f"{form.text} weights={files}".encode()).hexdigest()[:_DIGEST_DIGITS]


def parts_of(key: str) -> tuple[str, int, int]:
    """Model, world size (0 if the key is malformed) and object group in a key of LMCache, which has the form
    ``model@rank@group@hash[@salt]`` with numbers in hexadecimal."""
    parts = key.split(_SEPARATOR)
    try:
        model, rank, group = parts[0], int(parts[1], 16), int(parts[2], 16)
    except (ValueError, IndexError):
        return parts[0], 0, 0
    return model, rank >> 24, group
