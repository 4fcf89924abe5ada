"""Computes the platform tag of a wheel: the oldest Linux on which the native addon inside it loads."""

from __future__ import annotations

import re
import struct

#: Machines by `e_machine` of the ELF header, with their names in wheels.
MACHINES = {62: "x86_64", 183: "aarch64"}
#: Oldest glibc that Node.js itself supports; wheels with a node need at least this one.
NODE_GLIBC = (2, 28)
#: Libraries that every Linux with a glibc has, or that Node.js needs too.
LIBRARIES = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s)|ld-linux[\w-]*)\.so\.\d")

_SECTION_DYNAMIC, _SECTION_NEEDED_VERSIONS = 6, 0x6FFFFFFE
_SECTION_HEADER_BYTES = 64
_TAG_NEEDED = 1


def platform_tag(addon: bytes) -> str:
    """The tag (PEP 600), such as `manylinux_2_28_x86_64`. Raises ValueError if no such tag describes the file."""
    try:
        library = _Library(addon)
    except (struct.error, IndexError) as error:
        raise ValueError("the addon is damaged: its ELF headers lead out of the file") from error
    foreign = [name for name in library.needed if LIBRARIES.fullmatch(name) is None]
    if foreign:
        names = ", ".join(foreign)
        raise ValueError(
            f"the addon needs {names}, which not every Linux has: link it statically, or load it when it runs"
        )
    floors = [_glibc_version(name) for name in library.versions if name.startswith("GLIBC_")]
    major, minor = max([NODE_GLIBC, *floors])
    return f"manylinux_{major}_{minor}_{library.machine}"


def _glibc_version(name: str) -> tuple[int, int]:
    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name)
    if found is None:
        raise ValueError(f"the addon needs {name}, which is no version of glibc")
    return int(found[1]), int(found[2])


class _Library:
    """The dependencies of a 64-bit little-endian ELF library: names of libraries, and versions of their symbols."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("the addon is not a 64-bit ELF library in little-endian order")
        machine: int = struct.unpack_from("<H", data, 18)[0]
        if machine not in MACHINES:
            raise ValueError(f"the addon is for ELF machine {machine}; allowed are {', '.join(MACHINES.values())}")
        self.machine = MACHINES[machine]
        self._data = data
        self._sections = self._all_sections()
        self.needed = self._needed()
        self.versions = self._versions()

    def _all_sections(self) -> list[tuple[int, int, int, int, int]]:
        """For each section: type, offset, length, index of its string table, and number of records."""
        (at,) = struct.unpack_from("<Q", self._data, 40)
        (count,) = struct.unpack_from("<H", self._data, 60)
        sections = []
        for place in range(at, at + count * _SECTION_HEADER_BYTES, _SECTION_HEADER_BYTES):
            _, kind, _, _, offset, length, link, info, _, _ = struct.unpack_from("<IIQQQQIIQQ", self._data, place)
            sections.append((kind, offset, length, link, info))
        return sections

    def _needed(self) -> list[str]:
        names = []
        for kind, offset, length, link, _ in self._sections:
            if kind == _SECTION_DYNAMIC:
                for tag, value in struct.iter_unpack("<qQ", self._data[offset : offset + length]):
                    if tag == _TAG_NEEDED:
                        names.append(self._text(link, value))
        return names

    def _versions(self) -> list[str]:
        """Names of versions such as GLIBC_2.17. The section is a list of libraries, each with a list of versions."""
        names = []
        for kind, at, _, link, count in self._sections:
            if kind != _SECTION_NEEDED_VERSIONS:
                continue
            for _ in range(count):
                _, versions, _, first, following = struct.unpack_from("<HHIII", self._data, at)
                place = at + first
                for _ in range(versions):
                    _, _, _, name, step = struct.unpack_from("<IHHII", self._data, place)
                    names.append(self._text(link, name))
                    place += step
                at += following
        return names

    def _text(self, section: int, at: int) -> str:
        start = self._sections[section][1] + at
        return self._data[start : self._data.index(b"\0", start)].decode()
