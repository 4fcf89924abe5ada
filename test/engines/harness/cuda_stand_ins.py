"""Stand-ins for NVIDIA's libraries, so that a torch built for CUDA loads on a machine without them and computes on the CPU.

    python cuda_stand_ins.py SITE_PACKAGES

PyPI has no torch for the CPU alone, and the libraries that its torch names as needed are 3.5 GB. Each missing one becomes a
library of a few kilobytes with the same name, which defines the functions that torch and its neighbours ask of it. Every
function returns 100, CUDA's "no device", so torch finds no GPU. Nothing of torch is changed. Needs gcc and readelf.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

#: Names of libraries that come from NVIDIA's packages.
LIBRARY = re.compile(r"lib(cu|nv|nccl)\w*\.so(\.\d+)*$")
#: Names of functions that come from them, for symbols without a version.
FUNCTION = re.compile(r"_*(cu|nv|nccl|Cu)[A-Za-z0-9_]+$")
#: These return a text or success; all others return "no device".
TEXT = re.compile(r"Get(Error|Status)(String|Name)|GetErrorString|GetLastErrorString")
SUCCESS = re.compile(r"(Get|PeekAt)LastError$|RegisterFatBinary(End)?$|UnregisterFatBinary$")

PROLOGUE = """
static int no_device(void) { return 100; }
static int success(void) { return 0; }
static const char *text(void) { return "no CUDA on this machine"; }
"""


@dataclass
class SharedObject:
    """What the dynamic section of an ELF file says."""

    path: Path
    needed: list[str] = field(default_factory=list)
    #: Undefined functions that must be found, with their version ("" if they have none).
    wanted: set[tuple[str, str]] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    #: The library that each wanted version belongs to.
    library_of_version: dict[str, str] = field(default_factory=dict)


def read_shared_object(path: Path) -> SharedObject:
    shared = SharedObject(path)
    shared.needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", _readelf("--dynamic", path))
    for line in _readelf("--dyn-syms", path).splitlines():
        columns = line.split()
        if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
            continue
        binding, section = columns[4], columns[6]
        name, _, version = columns[7].partition("@")
        if section != "UND":
            shared.defined.add(name)
        elif binding != "WEAK":
            shared.wanted.add((name, version.strip("@")))
    library = ""
    for line in _readelf("--version-info", path).splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
        elif library and (found := re.search(r"Name: (\S+)", line)):
            shared.library_of_version[found[1]] = library
    return shared


def functions_by_library(folder: Path) -> dict[str, dict[str, set[str]]]:
    """The functions that are missing in `folder`, by library and version."""
    objects = [read_shared_object(path) for path in sorted(folder.iterdir()) if ".so" in path.name]
    present = {shared.path.name for shared in objects}
    defined = {name for shared in objects for name in shared.defined}
    missing: dict[str, dict[str, set[str]]] = {}
    for shared in objects:
        of_object = [library for library in shared.needed if library not in present and LIBRARY.match(library)]
        for library in of_object:
            missing.setdefault(library, {})
        for name, version in shared.wanted:
            library = shared.library_of_version.get(version, "")
            if LIBRARY.match(library) and library not in present:
                missing.setdefault(library, {}).setdefault(version, set()).add(name)
            elif not library and of_object and name not in defined and _is_of_cuda(name):
                # The loader looks for a symbol without a version in all libraries that the object needs.
                missing[of_object[0]].setdefault("", set()).add(name)
    return missing


def build_library(path: Path, functions: dict[str, set[str]]) -> None:
    source, versions = [PROLOGUE], []
    for version, names in functions.items():
        for name in sorted(names):
            target = "text" if TEXT.search(name) else "success" if SUCCESS.search(name) else "no_device"
            result = "const char *" if target == "text" else "int "
            source.append(f'{result}{name}(void) __attribute__((alias("{target}")));')
        if version:
            versions.append(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};")
    with tempfile.TemporaryDirectory(prefix="meshcache-stand-in-") as work:
        code, script = Path(work, "library.c"), Path(work, "versions.map")
        code.write_text("\n".join(source) + "\n")
        command = ["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", "-s", f"-Wl,-soname,{path.name}"]
        if versions:
            script.write_text("\n".join(versions) + "\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, "-o", str(path), str(code)], check=True)


def make_stand_ins(site_packages: Path) -> list[Path]:
    """Makes the libraries that torch lacks, beside its own. Returns their paths."""
    folder = site_packages / "torch" / "lib"
    made = []
    for library, functions in functions_by_library(folder).items():
        build_library(folder / library, functions)
        made.append(folder / library)
    return made


def _is_of_cuda(name: str) -> bool:
    return FUNCTION.match(name) is not None or "cufile" in name.lower()


def _readelf(option: str, path: Path) -> str:
    command = ["readelf", "--wide", option, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    for made in make_stand_ins(Path(sys.argv[1])):
        print(made)
