"""The time of a call."""

from __future__ import annotations

from time import monotonic


class Deadline(float):
    """When the time of a call is over, by the monotonic clock; it knows when the call was made."""

    asked: float

    def __new__(cls, seconds: float) -> Deadline:
        """The deadline of a call that is made now and may take so long."""
        asked = monotonic()
        deadline = super().__new__(cls, asked + seconds)
        deadline.asked = asked
        return deadline
