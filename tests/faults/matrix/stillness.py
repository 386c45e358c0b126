"""Tells when nothing has happened for a while, also if the event loop is late."""

LOOK_S = 0.05
"""The time between two looks."""


class Stillness:
    """Counts the looks at which nothing has happened.

    All runs share one event loop. If the loop stands still for a second, no controller can send a request in this
    second. So the number of looks counts, and not only the time: between two looks, each task of the loop gets a turn.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._looks: list[float] = []

    def look(self, now: float, *, busy: bool) -> bool:
        """Note whether something has happened since the last look. Return True if nothing has happened for a while."""
        if busy:
            self._looks.clear()
        self._looks.append(now)
        enough = len(self._looks) > self._quiet_s / LOOK_S
        return enough and now - self._looks[0] >= self._quiet_s

    @property
    def middle(self) -> float:
        """The time of the look in the middle of the quiet time."""
        return self._looks[len(self._looks) // 2]
