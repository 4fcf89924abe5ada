"""What a node's HTTP server says: its counters, and where its pages are."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from harness.nodes import METRICS_TOKEN, Node

ANSWER_SECONDS = 30.0


def counters(node: Node) -> dict[str, float]:
    """All figures of a node by their names with all labels but that of the node:
    ``meshcache_reads_total{result="hit",source="disk"}``."""
    with _get(node, "/metrics") as answer:
        lines = answer.read().decode().replace(f',node_id="{node.name}"', "").splitlines()
    rows = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def page_media(node: Node) -> dict[str, str]:
    """The pages of a node by the keys that engines have set: CPU (in its pool) or DISK. The newest one is the last."""
    found: dict[str, str] = {}
    with _get(node, "/api/events") as stream:
        kind = ""
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            if name == "data" and kind == "complete":
                break
            if name == "data" and kind == "kv":
                for event in json.loads(value)["events"]:
                    found.update((key, event["medium"]) for key in event["block_hashes"])
    return found


def _get(node: Node, path: str) -> Any:
    address = f"http://{node.facts['metrics_endpoint']}{path}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    return urllib.request.urlopen(request, timeout=ANSWER_SECONDS)
