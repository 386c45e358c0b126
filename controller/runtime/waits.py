"""Waits: what a plan leaves out, and why. Status, Events, metrics and the plugin read them, and parse no text (P31)."""

from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, TypeVar

from msgspec import Struct

Duration = TypeVar("Duration", float, timedelta)

FIRST_DELAY: Final = timedelta(seconds=10)
LONGEST_DELAY: Final = timedelta(minutes=5)


def growing_delay(number: int, first: Duration, longest: Duration) -> Duration:
    """Return the delay after so many failures in a row, at least one: `first`, and then each time twice as long."""
    return min(first * 2.0 ** min(number - 1, 16), longest)


class Why(Enum):
    """What a wait needs to end.

    - TIME: nothing. It ends by itself, for example at a deadline or with the next reconciliation.
    - OTHERS: other members must become available first, because of a limit.
    - FEWER: fewer members must fail, because too many fail at the same time.
    - PROTECTION: a user must remove the protection of members.
    - USER: a user must change something else.
    - START: a user must start members that are stopped.
    - BY_HAND: a setting leaves it to a user to replace outdated members.
    - CHOICE: another setting asks for the wait, such as a pause.
    """

    TIME = auto()
    OTHERS = auto()
    FEWER = auto()
    PROTECTION = auto()
    USER = auto()
    START = auto()
    BY_HAND = auto()
    CHOICE = auto()


class Wait(Struct, frozen=True, kw_only=True):
    """Writes that a plan leaves out for one reason, told by the sentence `text`.

    `names` are the first members that wait, or that others wait for, at least `until` this time, if known. `stall` is
    the reason of the condition `Stalled`, or "". `remedy` is a command that ends the wait, with `{this}` for the set or
    pool, or "".
    """

    text: str
    why: Why = Why.TIME
    names: tuple[str, ...] = ()
    until: datetime | None = None
    stall: str = ""
    remedy: str = ""

    @property
    def needs_user(self) -> bool:
        return self.why in (Why.FEWER, Why.PROTECTION, Why.USER, Why.START)
