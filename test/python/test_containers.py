"""A client in a PID namespace of its own, as in a container: it does not see the node's process."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import sglang_node
from sglang_support import ROOT

PROGRAM = """
import mmap, os, sys
from meshcache import Client
fd = os.memfd_create("pool")
os.ftruncate(fd, 8192)
pool = mmap.mmap(fd, 8192)
pool[:4096] = b"x" * 4096
client = Client(sys.argv[1], required=True, timeout=60.0, connect_timeout=60.0)
region = client.register(pool)
done = client.set_from(["key"], [[(region, 0, 4096)]]) + client.get_into(["key"], [[(region, 4096, 4096)]])
print(region.mode, done, pool[4096:] == pool[:4096])
client.close()
"""

OWN_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


def _cannot() -> str | None:
    try:
        made = subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        made = False
    return sglang_node.missing() or (None if made else "PID namespaces cannot be made here: it needs root")


@unittest.skipIf(_cannot() is not None, f"skipped: {_cannot()}")
class ContainersTest(unittest.TestCase):
    def test_pages_go_by_a_copy_where_the_node_is_out_of_sight(self) -> None:
        node = sglang_node.Node()
        self.addCleanup(node.remove)
        for under, mode in [([], "direct"), (OWN_NAMESPACE, sglang_node.copied_way())]:
            with self.subTest(mode=mode):
                said = subprocess.run(
                    [*under, sys.executable, "-c", PROGRAM, node.client_socket],
                    env={
                        **os.environ,
                        "PYTHONPATH": os.path.join(ROOT, "src", "python"),
                        "PYTHONDONTWRITEBYTECODE": "1",
                    },
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(said.stdout, f"{mode} [True, True] True\n", said.stderr)


if __name__ == "__main__":
    unittest.main()
