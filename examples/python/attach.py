"""Shares two pages with all processes of the cluster, straight from and into this process's own memory."""

import mmap
import os

from meshcache import Client

PAGE = 1 << 20
fd = os.memfd_create("pool")
os.ftruncate(fd, 4 * PAGE)
pool = mmap.mmap(fd, 4 * PAGE)
pool[: 2 * PAGE] = b"K" * PAGE + b"V" * PAGE

with Client(required=True) as client:
    region = client.register(pool)
    slots = [[(region, slot * PAGE, PAGE)] for slot in range(4)]
    print("set:", client.set_from(["page-0", "page-1"], slots[:2]))
    print("exist:", client.exists_prefix(["page-0", "page-1", "page-2"]))
    print("get:", client.get_into(["page-0", "page-2"], slots[2:]))
    print("the same:", pool[2 * PAGE : 3 * PAGE] == pool[:PAGE])
