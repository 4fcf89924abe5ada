"""The identity of a model or adapter in a folder: a digest of its configuration and weights."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

#: Weights of up to this many bytes in all are read completely; of larger ones, only samples of each tensor are read.
WHOLE_MAX_BYTES: Final = 1 << 30
_SAMPLE_BYTES: Final = 4096
#: Number of samples of a file whose tensors cannot be located.
_FILE_SAMPLES: Final = 1024
_CHUNK_BYTES: Final = 1 << 20
_HEADER_MAX_BYTES: Final = 256 << 20

_WEIGHT_ENDINGS: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".tensors", ".ckpt")
#: Files in addition to the weights that change what a model computes from the same tokens and media.
_CONFIG_NAMES: Final = frozenset(
    {
        "config.json",
        "adapter_config.json",
        "params.json",
        "hf_quant_config.json",
        "quantize_config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
    }
)
_NOTES: Final = ("_name_or_path", "transformers_version")
#: Endings of other files in a model's folder: settings, vocabularies, texts and images.
_NO_WEIGHTS: Final = frozenset(
    ("", ".jinja", ".jpeg", ".jpg", ".json", ".jsonl", ".md", ".model", ".pdf", ".png", ".py", ".pyc")
    + (".sha256", ".svg", ".tiktoken", ".txt", ".webp", ".yaml", ".yml")
)
#: Engines that are told to trust a model's own code compute with it.
_CODE_ENDING: Final = ".py"


def file_digest(path: str | os.PathLike[str]) -> str:
    """A fingerprint of a file's content, regardless of its path. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def weights_digest(path: str | os.PathLike[str]) -> str:
    """A fingerprint of one file of weights, regardless of its path. Large files are sampled. Raises OSError."""
    size = os.stat(path).st_size
    digest = hashlib.blake2b(f"{size}\n".encode(), digest_size=16)
    with open(path, "rb") as file:
        for part in _whole(file) if size <= WHOLE_MAX_BYTES else _samples(file, size, os.fspath(path)):
            digest.update(part)
    return "file:" + digest.hexdigest()


def folder_digest(folder: str | os.PathLike[str]) -> str | None:
    """A fingerprint of the model in a folder, which is equal for equal files, regardless of path. None: no weights.

    It covers the configuration, the model's own code, and the name, size and content of each file of weights: all of
    the content up to ``WHOLE_MAX_BYTES`` in total, else samples at the start, middle and end of each tensor. If no file
    has an ending known for weights, all files count whose endings are not known for something else, including those in
    subfolders. Raises OSError.
    """
    names = os.listdir(folder)
    described = [name for name in names if name.endswith((".index.json", _CODE_ENDING)) or name in _CONFIG_NAMES]
    weights = [name for name in names if name.endswith(_WEIGHT_ENDINGS)] or _unknown_files(folder)
    if not weights:
        return None
    sizes = {name: os.stat(os.path.join(folder, name)).st_size for name in weights}
    is_small = sum(sizes.values()) <= WHOLE_MAX_BYTES
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted({*described, *weights}):
        digest.update(f"{name} {sizes.get(name, 0)}\n".encode())
        with open(os.path.join(folder, name), "rb") as file:
            if name not in sizes:
                digest.update(_config(file))
            else:
                for part in _whole(file) if is_small else _samples(file, sizes[name], name):
                    digest.update(part)
    return "files:" + digest.hexdigest()


def folder_state(folder: str | os.PathLike[str]) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files in a folder, to detect quickly whether any has changed. Raises OSError."""
    found = []
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            # The file is a dangling link, or is gone by now.
            continue
        found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _unknown_files(folder: str | os.PathLike[str]) -> list[str]:
    """Files of a folder tree that may be weights according to their endings, as paths relative to its root."""
    found = []
    for base, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.relpath(os.path.join(base, name), folder) for name in names if not name.startswith(".")]
        # Files without an ending are licences and the like.
        found += [path for path in paths if os.path.splitext(path)[1].lower() not in _NO_WEIGHTS]
    return found


def _unreadable(error: OSError) -> None:
    raise error


def configuration(folder: str | os.PathLike[str], names: Sequence[str] = ("config.json",)) -> Any:
    """The content of the first of these JSON files that exists in the folder, without the notes of tools that save
    models. None if none of them exists. Raises OSError, and ValueError if the file is not JSON."""
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                return _without_notes(json.loads(file.read()))
    return None


def _without_notes(value: Any) -> Any:
    """A configuration without the path it was loaded from and the version that saved it, which change nothing."""
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if name not in _NOTES}


def _config(file: BinaryIO) -> bytes:
    """A JSON file in canonical form; any other file as it is."""
    text = file.read()
    try:
        return json.dumps(_without_notes(json.loads(text)), sort_keys=True).encode()
    except ValueError:
        return text


def _whole(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(_CHUNK_BYTES):
        yield part


def _samples(file: BinaryIO, size: int, name: str) -> Iterator[bytes]:
    spans = _tensors(file, size) if name.endswith(".safetensors") else None
    if spans is None:
        step = max(_SAMPLE_BYTES, size // _FILE_SAMPLES)
        spans = [(at, min(size, at + _SAMPLE_BYTES)) for at in range(0, size, step)]
        spans.append((max(0, size - _SAMPLE_BYTES), size))
    for start, end in spans:
        middle = (start + end - _SAMPLE_BYTES) // 2
        for at in sorted({start, max(start, middle), max(start, end - _SAMPLE_BYTES)}):
            file.seek(at)
            yield file.read(min(_SAMPLE_BYTES, end - at))


def _tensors(file: BinaryIO, size: int) -> list[tuple[int, int]] | None:
    """Spans of header and tensors of a safetensors file (8 bytes of length, JSON header, data); None if unreadable."""
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _HEADER_MAX_BYTES:
            return None
        base = 8 + length
        header = json.loads(file.read(length))
        spans = [
            (base + tensor["data_offsets"][0], base + tensor["data_offsets"][1])
            for name, tensor in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error):
        return None
    if any(not base <= start <= end <= size for start, end in spans):
        return None
    # The whole header is sampled, because it has the name, type and shape of every tensor.
    heads = [(at, min(base, at + _SAMPLE_BYTES)) for at in range(0, base, _SAMPLE_BYTES)]
    return heads + sorted(span for span in spans if span[0] < span[1])


def is_path(model: str) -> bool:
    """Whether a model is given as a path, which cannot be a name on a hub."""
    return os.path.isabs(model) or model.startswith((".", "~"))


def local_folder(
    model: str, revision: str | None = None, cache: str | None = None, *, is_of_other_hub: bool = False
) -> str | None:
    """The folder of a model on this machine: the named folder, or the downloaded snapshot of a repository of the
    Hugging Face hub; None if there is neither.

    ``cache`` is the engine's download folder; None: that of the package huggingface_hub, whose layout it has:
    ``models--ORG--NAME/{refs,snapshots}``. If ``is_of_other_hub``, downloads are ignored, because the engine takes
    names from another hub, which may have another model with this name.
    """
    if os.path.isdir(model):
        return model
    if is_of_other_hub:
        return None
    if model.count("/") > 1 or os.path.isabs(model):
        return None
    repository = os.path.join(cache or _hub_cache(), "models--" + model.replace("/", "--"))
    snapshots = os.path.join(repository, "snapshots")
    wanted = revision or "main"
    try:
        with open(os.path.join(repository, "refs", wanted)) as file:
            commit = file.read().strip()
    except OSError:
        commit = wanted
    folder = os.path.join(snapshots, commit)
    return folder if os.path.isdir(folder) else None


def _hub_cache() -> str:
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if cache:
        return cache
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "huggingface"
    )
    return os.path.join(home, "hub")
