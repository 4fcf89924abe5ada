"""Which keys are there: lookups answer from memory at once, and a thread asks the node."""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

#: An answer of the node is believed for so long. Longer than a lookup may last, by far: all keys of one request have
#: answers at the same time.
KNOWN_SECONDS: Final = 4.0
#: A key that could not be loaded is a miss for so long at least.
FAILED_SECONDS: Final = 5.0
#: Not more keys than this are known or asked for: further ones are misses.
MAX_KEYS: Final = 1 << 19
#: Entries whose time is over that one call drops, so that no call lasts long.
_DROP_KEYS: Final = 256
#: Keys of one request to the node. While a request is put together, for some 0.1 ms, the scheduler waits for the interpreter.
_STEP_KEYS: Final = 256
_REST_SECONDS: Final = 0.0001
#: Bytes at the end of a key that say of which of vLLM's cache groups it is.
_GROUP_BYTES: Final = 4
#: Of a request: chunks asked for, and those found from the first on without a gap.
Count = tuple[int, int]


class Entry:
    """What is known of one key. Other threads replace ``known`` as a whole; all else is the scheduler's."""

    __slots__ = ("key", "known")

    def __init__(self, key: bytes, known: tuple[bool | None, float]) -> None:
        self.key = key
        #: Whether it is there (None: not known yet), and until when that holds.
        self.known = known


class Lookups:
    """Answers of the node, each for a while. Without a lock: the scheduler alone changes the tables, except where a method says so."""

    def __init__(self, wait_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_seconds = wait_seconds
        self._clock = clock
        # In the order of their questions.
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._asked: list[Entry] = []
        # Until when a key is a miss. What is in the older table has been there for FAILED_SECONDS when that is dropped.
        self._failed: dict[bytes, float] = {}
        self._failed_before: dict[bytes, float] = {}
        self._failed_since = clock()
        self._is_outdated = False
        # Whether the node has left a question without an answer, and until when it need not be asked again.
        self._is_silent = False
        self._silent_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes) -> bool | None:
        """Whether a key is there; None: the node is being asked, for ``wait_seconds`` at most."""
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
        # Each new entry makes room for two.
        self._drop_old(now, 2)
        if len(self._entries) >= MAX_KEYS:
            return False
        entry = self._entries[key] = Entry(key, (None, now + self._wait_seconds))
        self._asked.append(entry)
        if not self._is_silent:
            return None
        # Whether the node answers again is found out by one question at a time, and nobody waits for it.
        self._silent_until = now + self._wait_seconds
        return False

    def questions(self) -> list[Entry]:
        """What was asked since the last call."""
        if self._is_outdated:
            self._clear()
        asked, self._asked = self._asked, []
        now = self._clock()
        self._drop_old(now, _DROP_KEYS)
        self._drop_failed(now)
        return asked

    def waiting(self, entries: Sequence[Entry]) -> tuple[list[Entry], float]:
        """Those that are still waited for, from any thread, and the seconds until the first wait is over."""
        now = self._clock()
        known = [(entry, entry.known) for entry in entries]
        ends = [(entry, until) for entry, (is_there, until) in known if is_there is None and now < until]
        return [entry for entry, _ in ends], min((until for _, until in ends), default=now) - now

    def forget(self) -> None:
        """Nothing that is known or asked counts any more, from any thread: it was about the chunks of other weights."""
        self._is_outdated = True

    def answer(self, entries: Sequence[Entry], flags: Sequence[bool], *, in_time: bool = True) -> None:
        """The node's answer, from any thread. It counts also when a lookup was told meanwhile that there was none. ``in_time``: it is one, and not
        the end of the wait for it."""
        self._is_silent = not in_time
        until = self._clock() + KNOWN_SECONDS
        for entry, flag in zip(entries, flags):
            entry.known = (flag, until)

    def stored(self, keys: Iterable[bytes]) -> None:
        """These are there now, from any thread."""
        known = (True, self._clock() + KNOWN_SECONDS)
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                entry.known = known
            self._failed.pop(key, None)
            self._failed_before.pop(key, None)

    def failed(self, keys: Collection[bytes]) -> None:
        """These could not be loaded: they are misses next, whatever the node says."""
        now = self._clock()
        self._drop_failed(now)
        self._failed.update(dict.fromkeys(keys, now + FAILED_SECONDS))

    def _clear(self) -> None:
        self._is_outdated = False
        self._entries = OrderedDict()
        self._asked = []
        self._failed, self._failed_before = {}, {}

    def _time_out(self, entry: Entry, now: float) -> None:
        """A question has had no answer in time: a node that is silent keeps no other request waiting."""
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
        """Drops entries whose time is over, from the front on."""
        for _ in range(min(len(self._entries), count)):
            key, entry = next(iter(self._entries.items()))
            is_there, until = entry.known
            if now < until:
                return
            del self._entries[key]
            if is_there is None:
                # Nobody has been told so yet: whoever asks again must not wait again.
                self._time_out(entry, now)
                self._entries[key] = entry


class RequestLookup:
    """What one request has looked up. vLLM goes through its chunks in each step, until each has an answer or the first is missing."""

    __slots__ = ("is_counted", "_answers", "_group", "_positions")

    def __init__(self) -> None:
        self.is_counted = False
        # The first answer for each key; None: there is none yet.
        self._answers: dict[bytes, bool | None] = {}
        self._group = b""
        # Where in the request the chunks end, in tokens; versions of vLLM that do not say it look up from the first one on.
        self._positions: dict[bytes, int] = {}

    def note(self, context: Any, key: bytes, answer: bool | None) -> None:
        """A lookup has this answer; None: ask again."""
        if not self._answers:
            self._group = key[-_GROUP_BYTES:]
            positions = getattr(context, "_offload_key_positions", None)
            self._positions = positions if isinstance(positions, dict) else {}
        elif not key.endswith(self._group):
            # Other groups hold the same tokens: they do not count again. vLLM begins with one that needs all of its chunks.
            return
        if self._answers.get(key) is None:
            self._answers[key] = answer

    def count(self) -> Count:
        """What it has come to."""
        positions, answers = self._positions, self._answers
        # Chunks of a window are looked up from the last one on, and chunks that leave vLLM's own pool meanwhile late.
        keys = sorted(answers, key=lambda key: positions.get(key, 0))
        found = next((index for index, key in enumerate(keys) if not answers[key]), len(keys))
        return len(keys) + (self._behind(keys[-1]) if keys and answers[keys[-1]] is False else 0), found

    def _behind(self, key: bytes) -> int:
        """Chunks of the request behind a missing one: when it is known at once that this one is missing, vLLM asks for none of them."""
        if key not in self._positions:
            return 0
        first, last = next(iter(self._positions)), next(reversed(self._positions))
        # The first chunk of a request ends after the tokens of one chunk; the last key may be of another group.
        tokens = self._positions[first] if first.endswith(self._group) else 0
        return max(0, self._positions[last] - self._positions[key]) // tokens if tokens > 0 else 0


class RequestLookups:
    """The lookups of the requests that have begun, each of which counts once. The scheduler's alone."""

    def __init__(self) -> None:
        self._requests: dict[str, RequestLookup] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def begin(self, request_id: str) -> None:
        """A request begins."""
        self._requests[request_id] = RequestLookup()

    def note(self, context: Any, key: bytes, answer: bool | None) -> None:
        """A lookup of a request has this answer; None: ask again."""
        request = self._requests.get(getattr(context, "req_id", ""))
        if request is not None and not request.is_counted:
            request.note(context, key, answer)

    def scheduled(self, request_ids: Iterable[str]) -> list[Count]:
        """These go on with what they have found. What they look up after this, as when they were preempted, does not count."""
        counts = []
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None and not request.is_counted:
                counts.append(request.count())
                # Nothing is kept of its keys.
                self._requests[request_id] = request = RequestLookup()
                request.is_counted = True
        return [count for count in counts if count[0] > 0]

    def end(self, request_id: str) -> list[Count]:
        """A request has ended. Versions of vLLM that do not say when it is scheduled have it counted here."""
        counts = self.scheduled((request_id,))
        self._requests.pop(request_id, None)
        return counts


class Asker:
    """The thread that asks, and that tells what the lookups of requests have come to."""

    def __init__(
        self,
        lookups: Lookups,
        exists: Callable[[Sequence[bytes], float], Sequence[bool]],
        tell: Callable[[int, int], None],
    ) -> None:
        """``exists`` says which keys are there, and takes the seconds it may last; ``tell`` takes a ``Count``. Both may raise."""
        self._lookups = lookups
        self._exists = exists
        self._tell = tell
        self._questions: queue.SimpleQueue[tuple[list[Entry], list[Count]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="meshcache-lookup", daemon=True)
        self._thread.start()

    def ask(self, entries: list[Entry]) -> None:
        """Takes questions; returns at once."""
        if entries:
            self._questions.put((entries, []))

    def count(self, counts: list[Count]) -> None:
        """Takes counts; returns at once."""
        if counts:
            self._questions.put(([], counts))

    def end(self) -> None:
        """Lets the thread end after what it has begun."""
        self._questions.put(None)

    def join(self, seconds: float) -> None:
        """Waits for its end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            work = self._questions.get()
            if work is None:
                return
            entries, counts = work
            for asked, found in counts:
                try:
                    self._tell(asked, found)
                except Exception:
                    # As when the client was closed meanwhile.
                    pass
            for low in range(0, len(entries), _STEP_KEYS):
                self._ask(entries[low : low + _STEP_KEYS])
                # As jobs do: the scheduler gets the interpreter.
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
            # As when the client was closed meanwhile.
            pass
        in_time = time.monotonic() - began < seconds
        self._lookups.answer(waiting, flags if len(flags) == len(waiting) else [False] * len(waiting), in_time=in_time)
