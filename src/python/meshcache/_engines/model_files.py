"""The identity of a model or an adapter that lies in a folder: a digest of its configuration and of its weights."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

#: Weights of at most so many bytes in all are read whole; of larger ones only samples of each tensor are.
WHOLE_MAX_BYTES: Final = 1 << 30
_SAMPLE_BYTES: Final = 4096
#: Samples of a file whose tensors cannot be told apart.
_FILE_SAMPLES: Final = 1024
_CHUNK_BYTES: Final = 1 << 20
_HEADER_MAX_BYTES: Final = 256 << 20

_WEIGHT_ENDINGS: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".tensors", ".ckpt")
#: Beside the weights, all that changes what a model computes from the same tokens and media.
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
#: Endings of what else lies beside weights: settings, vocabularies, texts and pictures.
_NO_WEIGHTS: Final = frozenset(
    ("", ".jinja", ".jpeg", ".jpg", ".json", ".jsonl", ".md", ".model", ".pdf", ".png", ".py", ".pyc")
    + (".sha256", ".svg", ".tiktoken", ".txt", ".webp", ".yaml", ".yml")
)
#: Code that comes with a model computes it where the engine is told to trust it.
_CODE_ENDING: Final = ".py"


def file_digest(path: str | os.PathLike[str]) -> str:
    """A fingerprint of what a file says, wherever it lies. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def weights_digest(path: str | os.PathLike[str]) -> str:
    """A fingerprint of one file of weights, wherever it lies and whatever its name: of all of it, or of samples of a large one. Raises OSError."""
    size = os.stat(path).st_size
    digest = hashlib.blake2b(f"{size}\n".encode(), digest_size=16)
    with open(path, "rb") as file:
        for part in _whole(file) if size <= WHOLE_MAX_BYTES else _samples(file, size, os.fspath(path)):
            digest.update(part)
    return "file:" + digest.hexdigest()


def folder_digest(folder: str | os.PathLike[str]) -> str | None:
    """A fingerprint of the model in this folder: equal for equal files, wherever the folder lies. None: it has no weights.

    Counted are the configuration, the model's own code, and name, size and content of each file of weights: all of the content up to ``WHOLE_MAX_BYTES``, else samples of each
    tensor at its start, in its middle and at its end. Where no file has an ending that is known for weights, all files count that are not known for something else, those of
    folders in it too. Raises OSError.
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
    """Names, sizes and times of the files in a folder: quick to read, and another one whenever files were written or replaced. Raises OSError."""
    found = []
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            # A link to nothing, or a file that is gone by now.
            continue
        found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _unknown_files(folder: str | os.PathLike[str]) -> list[str]:
    """The files of a tree that are not known for being something other than weights, as paths from its root."""
    found = []
    for base, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.relpath(os.path.join(base, name), folder) for name in names if not name.startswith(".")]
        # What has no ending is a licence or the like.
        found += [path for path in paths if os.path.splitext(path)[1].lower() not in _NO_WEIGHTS]
    return found


def _unreadable(error: OSError) -> None:
    raise error


def configuration(folder: str | os.PathLike[str], names: Sequence[str] = ("config.json",)) -> Any:
    """The first of these files that is in the folder, as JSON, without what tools write that save a model. None: none of them is there.

    Raises OSError, and ValueError for a file that is no JSON.
    """
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                return _without_notes(json.loads(file.read()))
    return None


def _without_notes(value: Any) -> Any:
    """A configuration without the path from which it was loaded once, and the version that has saved it: they change nothing."""
    if not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if name not in _NOTES}


def _config(file: BinaryIO) -> bytes:
    """A file of JSON without what its form leaves open; any other as it is."""
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
    """Where the header and the tensors of a safetensors file lie, by its header (format: 8 bytes of length, JSON, data); None: it cannot be read."""
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
    # The header is taken whole in steps of a sample: it names every tensor, its type and its shape.
    heads = [(at, min(base, at + _SAMPLE_BYTES)) for at in range(0, base, _SAMPLE_BYTES)]
    return heads + sorted(span for span in spans if span[0] < span[1])


def is_path(model: str) -> bool:
    """Whether a model is given as a place in a file system, and cannot be the name of one on a hub."""
    return os.path.isabs(model) or model.startswith((".", "~"))


def local_folder(
    model: str, revision: str | None = None, cache: str | None = None, *, is_of_other_hub: bool = False
) -> str | None:
    """The folder of a model on this machine: the folder that is named, or the downloaded snapshot of a repository of the Hugging Face hub; None: neither.

    ``cache``: where the engine keeps its downloads; None: where the package huggingface_hub keeps them, whose layout it is:
    ``models--ORG--NAME/{refs,snapshots}``. ``is_of_other_hub``: the engine takes names from another hub, which may have another model of this
    name, so that a download says nothing.
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
