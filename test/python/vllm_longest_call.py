"""How long the calls of vLLM's scheduler last: `python3 test/python/vllm_longest_call.py [ROUNDS]`.

Plays prompts on an engine while its node serves, is frozen, and is gone, and prints for each method the number of calls, the
99.9th percentile, the longest call, and the most processor time that a call took. A call that lasts longer than it works has
waited: for the interpreter, which other threads had, or for a processor, which other programs had. The node is a real one; the engine's pool is a file in /dev/shm, as vLLM's is.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import vllm_support as support
from sglang_node import Node
from vllm_manager import Engine, Manager

PROMPTS = 8
CHUNKS = 512
SLOT_BYTES = 16 << 10
LIMIT_SECONDS = 0.002
CONTROL_SECONDS = 5.0


class Timed(Manager):
    """Notes how long each call of the tier lasts, and how much of that this thread has worked itself."""

    calls: defaultdict[str, list[tuple[float, float]]]

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        worked, started = time.thread_time(), time.perf_counter()
        try:
            return call(*arguments)
        finally:
            seconds = time.perf_counter() - started
            self.calls[call.__name__].append((seconds, time.thread_time() - worked))


def report(state: str, manager: Timed) -> list[float]:
    """Prints the figures since the last report. Returns the longest call, and the most work of one."""
    longest = [0.0, 0.0]
    for name, calls in sorted(manager.calls.items()):
        seconds = sorted(seconds for seconds, _ in calls)
        high = seconds[min(len(seconds) - 1, len(seconds) * 999 // 1000)]
        work = max(worked for _, worked in calls)
        longest = [max(longest[0], seconds[-1]), max(longest[1], work)]
        late = sum(second >= LIMIT_SECONDS for second in seconds)
        print(
            f"{state:8} {name:20} {len(calls):8} calls  p99.9 {high * 1000:7.3f} ms  longest {seconds[-1] * 1000:7.3f} ms"
            f"  most work {work * 1000:6.3f} ms  {late} of 2 ms or more"
        )
    manager.calls.clear()
    return longest


def longest_of_nothing() -> float:
    """The longest of empty calls, without other threads: what the machine itself adds."""
    longest, until = 0.0, time.monotonic() + CONTROL_SECONDS
    while time.monotonic() < until:
        started = time.perf_counter()
        str()
        longest = max(longest, time.perf_counter() - started)
    return longest


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    # How long the collector of garbage takes depends on the engine's objects, and it may begin in any call.
    gc.disable()
    first = Node(pool="256mb")
    node = Node(first.discovery, pool="256mb")
    engine: Engine | None = None
    try:
        Timed.calls = defaultdict(list)
        engine = Engine(
            {"client_socket": node.client_socket, "timeout": 2.0},
            slots=2 * PROMPTS * CHUNKS,
            slot_bytes=SLOT_BYTES,
            manager=Timed,
        )
        manager = engine.manager
        assert isinstance(manager, Timed)
        print(f"{PROMPTS} prompts of {CHUNKS} chunks of {SLOT_BYTES} bytes, pages go {manager.tier._sharing.mode}")
        longest = []
        for round_ in range(rounds):
            prompts = [support.chunk_keys(f"{round_} {number}", CHUNKS) for number in range(PROMPTS)]
            engine.run(*prompts)
            manager.evict()
            engine.run(*prompts)
            longest.append(report("serving", manager))
            manager.evict()
            for keys in prompts:
                engine.begin(keys)
            while not manager.has_jobs:
                engine.step()
            node.freeze()
            engine.settle(120.0)
            engine.run(*(support.chunk_keys(f"{round_} frozen {number}", CHUNKS) for number in range(PROMPTS)))
            longest.append(report("frozen", manager))
            node.kill()
            manager.evict()
            engine.run(*prompts)
            longest.append(report("gone", manager))
            node.start()
            manager.evict()
        print(f"loaded {manager.loaded} chunks, failed {manager.load_failures}; errors: {manager.errors or 'none'}")
        whole, work = (max(column) * 1000 for column in zip(*longest))
        print(f"longest call: {whole:.3f} ms; most work in one call: {work:.3f} ms")
        engine.close()
        empty = longest_of_nothing() * 1000
        print(f"longest of empty calls: {empty:.3f} ms; load of the machine: {os.getloadavg()[0]:.1f}")
    finally:
        if engine is not None:
            engine.close()
        node.remove()
        first.remove()


if __name__ == "__main__":
    main()
