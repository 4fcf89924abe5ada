"""An engine that uses a slot again as soon as a call has returned, and looks whether anything is written into it later.

`python3 late_writes.py OPTIONS_AS_JSON` speaks JSON, one object a line, about ten times a second on standard output, the last one with
"done". It ends when it has played its rounds and its standard input has ended.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import random
import sys
import threading
import time
import traceback
from typing import Any, Final

import support  # noqa: F401  (finds the package)

from meshcache import Client, Region
from meshcache.attachment import Attachment
from meshcache._wire.connection import Call
from meshcache.link import Link

PAGE_BYTES: Final = 48 << 10
PAGES_A_ROUND: Final = 4
#: Rounds of a thread between two uses of a slot: for so long late bytes are looked for.
GROUPS: Final = 6
GROUP_BYTES: Final = PAGES_A_ROUND * PAGE_BYTES
KEYS: Final = 64
#: Pieces of a page: received into their place one by one, and several at once by way of a copy.
PIECES: Final = (1, 2, 12)
SAY_SECONDS: Final = 0.1


def key_of(number: int) -> str:
    return f"page-{number}"


def page_of(number: int) -> bytes:
    """What a page has: never what an engine writes over it, whose every eighth byte is 0xff."""
    return random.Random(number).randbytes(PAGE_BYTES).replace(b"\xff", b"\xfe")


def pattern(thread: int, round_: int) -> bytes:
    """What the engine writes over the slots of a round: nobody else writes this."""
    word = round_.to_bytes(6, "little") + bytes((thread, 0xFF))
    return word * (GROUP_BYTES // len(word))


PAGES: Final = [page_of(number) for number in range(KEYS)]


class EarlyLink(Link):
    """Returns at the deadline, whatever is under way: what a client must not do."""

    def fence(self, attachment: Attachment, calls: list[Call], deadline: float) -> None:
        for call in calls:
            attachment.connection.abandon(call)


class Counts:
    """What all threads have seen, added up."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rounds = 0
        #: Rounds in which all pages, some, or none came.
        self.whole = 0
        self.part = 0
        self.none = 0
        self.hits = 0
        #: Rounds that lasted until their deadline or longer.
        self.expired = 0
        #: Pages that were said to be there and were others.
        self.wrong_pages = 0
        #: Calls that ended at once as there was no node, or a silent one: no rounds.
        self.absent = 0
        self.changed_bytes = 0
        self.changed_slots = 0
        self.longest_overrun = 0.0
        self.errors: list[str] = []


class Worker(threading.Thread):
    """One thread of the engine, with slots of its own."""

    def __init__(self, engine: Engine, number: int) -> None:
        super().__init__(daemon=True)
        self.engine = engine
        self.number = number
        self.random = random.Random(engine.seed * 1000 + number)
        self.first = number * GROUPS * GROUP_BYTES
        #: Round whose pattern a group of slots has.
        self.written = [0] * GROUPS
        self.round = 0
        #: When the call under way should have ended; None: there is none.
        self.due: float | None = None
        for group in range(GROUPS):
            self.write(group)

    def write(self, group: int) -> None:
        at = self.first + group * GROUP_BYTES
        self.written[group] = self.round
        self.engine.memory[at : at + GROUP_BYTES] = pattern(self.number, self.round)

    def check(self, group: int) -> None:
        """Whether a group of slots has what was written last, and nothing else."""
        at = self.first + group * GROUP_BYTES
        expected = pattern(self.number, self.written[group])
        found = self.engine.memory[at : at + GROUP_BYTES]
        if found == expected:
            return
        changed = sum(a != b for a, b in zip(found, expected))
        with self.engine.counts.lock:
            self.engine.counts.changed_bytes += changed
            self.engine.counts.changed_slots += 1

    def run(self) -> None:
        try:
            while not self.engine.is_over():
                self.play()
        except BaseException:
            with self.engine.counts.lock:
                self.engine.counts.errors.append(traceback.format_exc())

    def play(self) -> None:
        engine = self.engine
        group = (self.round + 1) % GROUPS
        self.check(group)
        numbers = self.random.sample(range(KEYS), PAGES_A_ROUND)
        pieces = self.random.choice(PIECES)
        timeout = self.random.uniform(0.001, engine.max_timeout)
        at = self.first + group * GROUP_BYTES
        step = PAGE_BYTES // pieces
        places = [
            [(engine.region, at + PAGE_BYTES * page + step * piece, step) for piece in range(pieces)]
            for page in range(PAGES_A_ROUND)
        ]
        keys = [key_of(number) for number in numbers]
        began = time.monotonic()
        self.due = began + timeout
        results = engine.client.get_into(keys, places, timeout=timeout)
        # What is here is gone in a moment: first of all the slots are used again.
        found = engine.memory[at : at + GROUP_BYTES] if any(results) else b""
        self.round += 1
        self.write(group)
        lasted = time.monotonic() - began
        self.due = None
        wrong = sum(
            found[PAGE_BYTES * page : PAGE_BYTES * (page + 1)] != PAGES[number]
            for page, number in enumerate(numbers)
            if results[page]
        )
        hits = results.count(True)
        # The node itself ends a request when nine tenths of its time are over.
        is_late = lasted >= 0.9 * timeout
        is_absent = hits == 0 and not is_late
        with engine.counts.lock:
            counts = engine.counts
            counts.longest_overrun = max(counts.longest_overrun, lasted - timeout)
            if is_absent:
                counts.absent += 1
            else:
                counts.rounds += 1
                counts.hits += hits
                counts.wrong_pages += wrong
                counts.whole += hits == PAGES_A_ROUND
                counts.part += 0 < hits < PAGES_A_ROUND
                counts.none += hits == 0
                counts.expired += hits < PAGES_A_ROUND and is_late
        if is_absent:
            # Threads that nobody keeps waiting are not to spin.
            time.sleep(0.001)


class Engine:
    """Threads that share one client and one pool."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.seed: int = options["seed"]
        self.rounds: int = options["rounds"]
        self.max_timeout: float = options["maxTimeoutMs"] / 1000
        self.counts = Counts()
        self.may_end = threading.Event()
        length = options["threads"] * GROUPS * GROUP_BYTES
        descriptor = os.memfd_create("pool")
        os.ftruncate(descriptor, length)
        self.memory = mmap.mmap(descriptor, length)
        logging.getLogger("meshcache").setLevel(logging.CRITICAL)
        self.client = Client(
            options["socket"],
            name="late-writes",
            mode="direct",
            connect_timeout=5.0,
            required=True,
            end_frozen_node=options["endFrozenNode"],
            fence_timeout=options["fenceTimeoutMs"] / 1000,
        )
        if options["withoutFence"]:
            self.client._link.__class__ = EarlyLink
        self.region: Region = self.client.register_fd(descriptor, length, memory=self.memory, name="pool")
        os.close(descriptor)
        if self.region.mode != "direct":
            raise RuntimeError(f"the pool goes {self.region.mode}, and not direct")
        self.workers = [Worker(self, number) for number in range(options["threads"])]

    def is_over(self) -> bool:
        return self.may_end.is_set() and self.counts.rounds >= self.rounds

    def report(self) -> dict[str, Any]:
        now = time.monotonic()
        overdue = [worker.due for worker in self.workers]
        with self.counts.lock:
            figures = {name: value for name, value in vars(self.counts).items() if name != "lock"}
            return {**figures, "overdue": sum(due is not None and now > due + 0.5 for due in overdue)}

    def play(self) -> None:
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            while worker.is_alive():
                worker.join(SAY_SECONDS)
                print(json.dumps(self.report()), flush=True)
        for worker in self.workers:
            for group in range(GROUPS):
                worker.check(group)
        stats = self.client.stats()
        self.client.close()
        # The node may have written until its side of the connection was closed.
        for worker in self.workers:
            for group in range(GROUPS):
                worker.check(group)
        counted = {name: stats[name] for name in ("fences", "nodes_ended", "connections_lost", "reconnects")}
        print(json.dumps({**self.report(), **counted, "done": True}), flush=True)


def fill(path: str) -> None:
    """Gives a node all pages."""
    with Client(path, mode="bytes", timeout=60.0, connect_timeout=60.0, required=True) as client:
        results = client.set_many([key_of(number) for number in range(KEYS)], PAGES, named=False)
        if not all(results):
            raise RuntimeError(f"the node has taken {results.count(True)} pages of {KEYS}")


def main() -> None:
    options = json.loads(sys.argv[1])
    if "fill" in options:
        fill(options["fill"])
        return
    engine = Engine(options)

    def wait_for_end() -> None:
        sys.stdin.read()
        engine.may_end.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    engine.play()


if __name__ == "__main__":
    main()
