"""Lookups of keys. They are answered from memory immediately, while a thread asks the node."""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

#: How long an answer of the node is valid: much longer than a lookup lasts, so that all keys of a request have answers.
KNOWN_SECONDS: Final = 4.0
#: A key that could not be loaded is a miss for at least this time.
FAILED_SECONDS: Final = 5.0
#: Most keys that are known or being asked for; further ones are misses.
MAX_KEYS: Final = 1 << 19
#: Most expired entries dropped in one call, so that no call lasts long.
_DROP_KEYS: Final = 256
#: Most keys of one request to the node. Preparing it takes about 0.1 ms, in which the scheduler may have to wait.
_STEP_KEYS: Final = 256
_REST_SECONDS: Final = 0.0001
#: Number of bytes at the end of a key that identify vLLM's cache group.
_GROUP_BYTES: Final = 4
#: Chunks that a request asked for, and the number of leading ones that were found.
Count = tuple[int, int]


class Entry:
    """What is known about a key. Other threads only replace ``known`` as a whole; the rest belongs to the scheduler."""

    __slots__ = ("key", "known")

    def __init__(self, key: bytes, known: tuple[bool | None, float]) -> None:
        self.key = key
        #: Whether the key exists (None: not known yet), and until when that is valid.
        self.known = known


class Lookups:
    """Recent answers of the node. It has no lock: only the scheduler may call methods that do not say "any thread"."""

    def __init__(self, wait_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_seconds = wait_seconds
        self._clock = clock
        # Entries are in the order of their questions.
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._asked: list[Entry] = []
        # Until when a key is a miss. Entries of the older table are at least FAILED_SECONDS old when it is dropped.
        self._failed: dict[bytes, float] = {}
        self._failed_before: dict[bytes, float] = {}
        self._failed_since = clock()
        self._is_outdated = False
        # Whether the node has not answered a question, and until when it is not asked again.
        self._is_silent = False
        self._silent_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes) -> bool | None:
        """Whether a key exists; None: the node is being asked, for at most ``wait_seconds``."""
        if self._is_outdated:
            self._clear()
        now = self._clock()
        if (self._failed or self._failed_before) and self._has_failed(key, now):
            return False
        entry = self._entries.get(key)
        if entry is not None:
            is_there, until = entry.known
            if now < until:
                return False if is_there is None and self._is_silent else is_there
            if is_there is None:
                self._time_out(entry, now)
                return False
            del self._entries[key]
        if self._is_silent and now < self._silent_until:
            return False
        # Up to two expired entries are dropped for each new one.
        self._drop_old(now, 2)
        if len(self._entries) >= MAX_KEYS:
            return False
        entry = self._entries[key] = Entry(key, (None, now + self._wait_seconds))
        self._asked.append(entry)
        if not self._is_silent:
            return None
        # A silent node is asked one question at a time, and nobody waits for its answer.
        self._silent_until = now + self._wait_seconds
        return False

    def questions(self) -> list[Entry]:
        """Takes the questions since the last call."""
        if self._is_outdated:
            self._clear()
        asked, self._asked = self._asked, []
        now = self._clock()
        self._drop_old(now, _DROP_KEYS)
        self._drop_failed(now)
        return asked

    def waiting(self, entries: Sequence[Entry]) -> tuple[list[Entry], float]:
        """The entries that are still waiting, and the seconds until the first wait ends. Any thread may call it."""
        now = self._clock()
        known = [(entry, entry.known) for entry in entries]
        ends = [(entry, until) for entry, (is_there, until) in known if is_there is None and now < until]
        return [entry for entry, _ in ends], min((until for _, until in ends), default=now) - now

    def forget(self) -> None:
        """Discards all answers and questions, which were about chunks of former weights. Any thread may call it."""
        self._is_outdated = True

    def answer(self, entries: Sequence[Entry], flags: Sequence[bool], *, in_time: bool = True) -> None:
        """Records the node's answer, even if a lookup was a miss meanwhile. If not ``in_time``, the wait for an answer
        has ended without one. Any thread may call it."""
        self._is_silent = not in_time
        until = self._clock() + KNOWN_SECONDS
        for entry, flag in zip(entries, flags):
            entry.known = (flag, until)

    def stored(self, keys: Iterable[bytes]) -> None:
        """Records that these keys exist now. Any thread may call it."""
        known = (True, self._clock() + KNOWN_SECONDS)
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                entry.known = known
            self._failed.pop(key, None)
            self._failed_before.pop(key, None)

    def failed(self, keys: Collection[bytes]) -> None:
        """Records keys that could not be loaded. They are misses for a while, whatever the node answers."""
        now = self._clock()
        self._drop_failed(now)
        self._failed.update(dict.fromkeys(keys, now + FAILED_SECONDS))

    def _clear(self) -> None:
        self._is_outdated = False
        self._entries = OrderedDict()
        self._asked = []
        self._failed, self._failed_before = {}, {}

    def _time_out(self, entry: Entry, now: float) -> None:
        """Handles a question without an answer in time. The node now counts as silent, and no other request waits."""
        entry.known = (False, now + KNOWN_SECONDS)
        self._is_silent = True
        self._silent_until = now + self._wait_seconds

    def _has_failed(self, key: bytes, now: float) -> bool:
        until = self._failed.get(key) or self._failed_before.get(key)
        return until is not None and now < until

    def _drop_failed(self, now: float) -> None:
        if now - self._failed_since >= FAILED_SECONDS:
            self._failed_before, self._failed = self._failed, {}
            self._failed_since = now

    def _drop_old(self, now: float, count: int) -> None:
        """Drops up to ``count`` expired entries from the front."""
        for _ in range(min(len(self._entries), count)):
            key, entry = next(iter(self._entries.items()))
            is_there, until = entry.known
            if now < until:
                return
            del self._entries[key]
            if is_there is None:
                # This timeout was not reported yet, and a repeated lookup must not wait again.
                self._time_out(entry, now)
                self._entries[key] = entry


class RequestLookup:
    """The lookups of one request. In each step, vLLM looks up its chunks until all have an answer or one is missing."""

    __slots__ = ("is_counted", "_answers", "_group", "_positions")

    def __init__(self) -> None:
        self.is_counted = False
        # First answer for each key; None if there is none yet.
        self._answers: dict[bytes, bool | None] = {}
        self._group = b""
        # End of each chunk in the request, in tokens. Versions of vLLM without it look chunks up in order.
        self._positions: dict[bytes, int] = {}

    def note(self, context: Any, key: bytes, answer: bool | None) -> None:
        """Records the answer of a lookup; None: ask again."""
        if not self._answers:
            self._group = key[-_GROUP_BYTES:]
            positions = getattr(context, "_offload_key_positions", None)
            self._positions = positions if isinstance(positions, dict) else {}
        elif not key.endswith(self._group):
            # Other groups have the same tokens, which do not count again. vLLM begins with one that needs all chunks.
            return
        if self._answers.get(key) is None:
            self._answers[key] = answer

    def count(self) -> Count:
        """The result of the lookups."""
        positions, answers = self._positions, self._answers
        # vLLM looks up chunks of a window from the last one on, and chunks that leave its own pool meanwhile late.
        keys = sorted(answers, key=lambda key: positions.get(key, 0))
        found = next((index for index, key in enumerate(keys) if not answers[key]), len(keys))
        return len(keys) + (self._behind(keys[-1]) if keys and answers[keys[-1]] is False else 0), found

    def _behind(self, key: bytes) -> int:
        """Number of chunks after a missing one. vLLM does not look them up if it learns of the miss at once."""
        if key not in self._positions:
            return 0
        first, last = next(iter(self._positions)), next(reversed(self._positions))
        # The end of the request's first chunk is the length of a chunk. The last key may be of another group.
        tokens = self._positions[first] if first.endswith(self._group) else 0
        return max(0, self._positions[last] - self._positions[key]) // tokens if tokens > 0 else 0


class RequestLookups:
    """The lookups of all active requests, each of which counts once. Only the scheduler may use it."""

    def __init__(self) -> None:
        self._requests: dict[str, RequestLookup] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def begin(self, request_id: str) -> None:
        """Called when a request begins."""
        self._requests[request_id] = RequestLookup()

    def note(self, context: Any, key: bytes, answer: bool | None) -> None:
        """Records the answer of a request's lookup; None: ask again."""
        request = self._requests.get(getattr(context, "req_id", ""))
        if request is not None and not request.is_counted:
            request.note(context, key, answer)

    def scheduled(self, request_ids: Iterable[str]) -> list[Count]:
        """Called when requests are scheduled; returns their counts. Later lookups, as in preemption, do not count."""
        counts = []
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None and not request.is_counted:
                counts.append(request.count())
                # A new object replaces the keys.
                self._requests[request_id] = request = RequestLookup()
                request.is_counted = True
        return [count for count in counts if count[0] > 0]

    def end(self, request_id: str) -> list[Count]:
        """Called when a request has ended. Returns its count if it has not been counted when it was scheduled."""
        counts = self.scheduled((request_id,))
        self._requests.pop(request_id, None)
        return counts


class Asker:
    """A thread that asks the node, and reports the counts of requests' lookups."""

    def __init__(
        self,
        lookups: Lookups,
        exists: Callable[[Sequence[bytes], float], Sequence[bool]],
        tell: Callable[[int, int], None],
    ) -> None:
        """``exists`` takes keys and a timeout in seconds; ``tell`` takes the numbers of a ``Count``. Both may raise."""
        self._lookups = lookups
        self._exists = exists
        self._tell = tell
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="meshcache-lookup", daemon=True)
        self._thread.start()

    def ask(self, entries: list[Entry]) -> None:
        """Queues questions."""
        if entries:
            self._work.put(lambda: self._ask_all(entries))

    def count(self, counts: list[Count]) -> None:
        """Queues counts."""
        for count in counts:
            self._work.put(functools.partial(self._tell, *count))

    def end(self) -> None:
        """Lets the thread end after all queued work."""
        self._work.put(None)

    def join(self, seconds: float) -> None:
        """Waits for the thread to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            try:
                work()
            except Exception:
                # The client may have been closed meanwhile.
                pass

    def _ask_all(self, entries: Sequence[Entry]) -> None:
        for low in range(0, len(entries), _STEP_KEYS):
            self._ask(entries[low : low + _STEP_KEYS])
            # The pause lets the scheduler have the interpreter lock.
            time.sleep(_REST_SECONDS)

    def _ask(self, entries: Sequence[Entry]) -> None:
        waiting, seconds = self._lookups.waiting(entries)
        if not waiting:
            return
        flags: Sequence[bool] = ()
        began = time.monotonic()
        try:
            flags = self._exists([entry.key for entry in waiting], seconds)
        except Exception:
            # The client may have been closed meanwhile.
            pass
        in_time = time.monotonic() - began < seconds
        self._lookups.answer(waiting, flags if len(flags) == len(waiting) else [False] * len(waiting), in_time=in_time)
