"""Builds the wheel (PEP 517) with the standard library alone."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = "meshcache"
SUMMARY = "Client of a meshcache node: KV pages straight into and out of the memory of a process in Python"
TAG = "py3-none-any"
#: Archives of the same files are the same, byte by byte.
DATE = (2020, 1, 1, 0, 0, 0)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Writes the wheel, and returns its name."""
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _sources()}
    folder = f"{PACKAGE}-{_version()}.dist-info"
    files[f"{folder}/METADATA"] = _metadata().encode()
    files[f"{folder}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: {PACKAGE}\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    name = f"{PACKAGE}-{_version()}-{TAG}.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Writes the source archive, and returns its name."""
    folder = f"{PACKAGE}-{_version()}"
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _sources()}
    for name in ("pyproject.toml", "backend.py", "README.md"):
        files[name] = (ROOT / name).read_bytes()
    files["PKG-INFO"] = _metadata().encode()
    with tarfile.open(Path(sdist_directory, f"{folder}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return f"{folder}.tar.gz"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing."""
    return []


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing."""
    return []


def _sources() -> list[Path]:
    return sorted(path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in (".py", ".typed"))


def _version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / PACKAGE / "_version.py").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{PACKAGE}/_version.py has no version")
    return found[1]


def _metadata() -> str:
    fields = {
        "Metadata-Version": "2.1",
        "Name": PACKAGE,
        "Version": _version(),
        "Summary": SUMMARY,
        "License": "Apache-2.0",
        "Requires-Python": ">=3.10",
        "Description-Content-Type": "text/markdown",
    }
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"{head}\n{(ROOT / 'README.md').read_text()}"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
