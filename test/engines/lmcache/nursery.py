"""Starts `lmcache server` processes from one process that has loaded LMCache: loading it takes seconds of the processor each time.

Reads a line of JSON for each server, {"arguments": [...], "log": "..."}, and writes its process id. When its standard input ends, it ends all servers.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import lmcache.v1.multiprocess.http_server  # noqa: F401
from lmcache.cli.main import main


def become(arguments: list[str], log: str) -> None:
    """What the command `lmcache` does, with its output in a file."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A process that a shell has started in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.argv = ["lmcache", *arguments]
    main()


# Nobody waits for servers here.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
servers: list[int] = []
print("ready", flush=True)
while line := sys.stdin.readline():
    wanted = json.loads(line)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            become(wanted["arguments"], wanted["log"])
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            os._exit(status)
    servers.append(child)
    print(child, flush=True)
for server in servers:
    try:
        os.killpg(server, signal.SIGKILL)
    except ProcessLookupError:
        continue
