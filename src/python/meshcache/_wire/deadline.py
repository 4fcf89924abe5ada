"""The deadline of a call."""

from __future__ import annotations

from time import monotonic


class Deadline(float):
    """The end of a call's time by the monotonic clock, in seconds. `asked` is the time at which the call was made."""

    asked: float

    def __new__(cls, seconds: float) -> Deadline:
        """The deadline of a call that is made now and may take this many seconds."""
        asked = monotonic()
        deadline = float.__new__(cls, asked + seconds)
        deadline.asked = asked
        return deadline
