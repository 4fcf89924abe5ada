"""A router's view of several nodes: which of them has how many pages of a prompt.

It keeps a list of the pages of each node from page events, and saves the lists, so that it goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from meshcache import Client, PageList


_OUTPUT = threading.Lock()


def say(message: object) -> None:
    """Prints one line, whole: `print` writes its end by itself, and another thread may come between."""
    with _OUTPUT:
        print(json.dumps(message), flush=True)


class FollowedNode:
    """The pages of one node, kept by a thread and saved in a file."""

    def __init__(self, socket: str, file: Path, tag: str | None) -> None:
        self.socket = socket
        self._file = file
        self._lock = threading.Lock()
        self._pages = PageList()
        self._load()
        self._client = Client(socket, namespace={"tag": tag}, name="router")
        self._stream = self._client.page_events(self._pages.position)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def prefix(self, keys: list[str]) -> int:
        """How many of the keys the node has, from the first on; 0 while that is not known."""
        with self._lock:
            if not self._pages.is_complete or not self._stream.is_connected:
                return 0
            there = (("kv", key) in self._pages.pages for key in keys)
            return next((count for count, is_there in enumerate(there) if not is_there), len(keys))

    def shown(self) -> dict[str, object]:
        """What is known of the node."""
        with self._lock:
            pages = sorted(f"{key!r} {tier}" for (_, key), tier in self._pages.pages.items())
            return {
                "node": self._client.node_id,
                "connected": self._stream.is_connected,
                "complete": self._pages.is_complete,
                "pages": pages,
            }

    def save(self) -> None:
        """Writes the list and its position; a list that is not whole is of no use later."""
        with self._lock:
            if not self._pages.is_complete or self._pages.position is None:
                return
            pages = [
                [pool, isinstance(key, bytes), key.hex() if isinstance(key, bytes) else key, tier]
                for (pool, key), tier in self._pages.pages.items()
            ]
            state = json.dumps({"position": self._pages.position, "pages": pages})
        # Whoever is killed while it writes leaves the former file as it was.
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(state, encoding="utf8")
        os.replace(unfinished, self._file)

    def _load(self) -> None:
        if not self._file.exists():
            return
        state = json.loads(self._file.read_text(encoding="utf8"))
        for pool, is_bytes, text, tier in state["pages"]:
            self._pages.pages[pool, bytes.fromhex(text) if is_bytes else text] = tier
        self._pages.position = state["position"]
        self._pages.is_complete = True

    def _follow(self) -> None:
        for event in self._stream:
            with self._lock:
                self._pages.take(event)
                resets = event.kind == "reset"
            if resets:
                say({"reset": self.socket})


def save_often(nodes: list[FollowedNode], seconds: float) -> None:
    """Saves all lists again and again."""
    while True:
        threading.Event().wait(seconds)
        for node in nodes:
            node.save()


def main() -> None:
    """Follows the nodes, and answers each line of keys with the node that has most of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sockets", nargs="+", metavar="SOCKET", help="client socket of a node")
    parser.add_argument("--state", type=Path, required=True, help="folder for the lists")
    parser.add_argument("--tag", help="tag of the namespace of the pages")
    parser.add_argument("--save-seconds", type=float, default=1.0, help="how often the lists are saved (default: 1)")
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    nodes = [
        FollowedNode(socket, options.state / f"node-{index}.json", options.tag)
        for index, socket in enumerate(options.sockets)
    ]
    threading.Thread(target=save_often, args=(nodes, options.save_seconds), daemon=True).start()
    for line in sys.stdin:
        keys = line.split()
        if not keys:
            say([node.shown() for node in nodes])
            continue
        counts = [node.prefix(keys) for node in nodes]
        best = max(counts)
        say({"node": nodes[counts.index(best)].socket, "pages": best})


if __name__ == "__main__":
    main()
