"""The deadline of a call."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Deadline(float):
    """The end of a call's time by the monotonic clock, in seconds. `asked` is the time at which the call was made."""

    __slots__ = ("asked",)

    asked: float

    def __new__(cls, seconds: float) -> Deadline:
        """The deadline of a call that is made now and may take this many seconds."""
        asked = monotonic()
        deadline = float.__new__(cls, asked + seconds)
        deadline.asked = asked
        return deadline


def is_reached(deadline: float) -> bool:
    """Whether the time of a call is over; False for a call that was ended before."""
    return monotonic() >= float(deadline)


class Ending:
    """Ends a call from another thread, as if its time were over."""

    def __init__(self) -> None:
        self.asked = monotonic()
        self.is_ended = False
        #: Has a thread that waits look at its deadline again. It is replaced by each wait of the call.
        self.wake: Callable[[], None] = lambda: None

    def end(self) -> None:
        """Ends the call. The thread that makes it still does what it does at a deadline: the call ends soon, not now."""
        self.is_ended = True
        self.wake()


class EndableDeadline(Deadline):
    """A deadline that an `Ending` may bring forward: no time is left from then on. `float(deadline)` stays as it was."""

    __slots__ = ("ending",)

    ending: Ending

    def __new__(cls, seconds: float, ending: Ending) -> EndableDeadline:
        """The deadline of a call that `ending` may end, and that may take this many seconds since it was made."""
        deadline = float.__new__(cls, ending.asked + seconds)
        deadline.asked = ending.asked
        deadline.ending = ending
        return deadline

    def __sub__(self, now: float) -> float:
        return 0.0 if self.ending.is_ended else super().__sub__(now)

    def __le__(self, now: float) -> bool:
        return self.ending.is_ended or super().__le__(now)

    def __gt__(self, now: float) -> bool:
        return not self.ending.is_ended and super().__gt__(now)
