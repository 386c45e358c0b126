"""Durations in the short form of kubectl's column AGE."""

from __future__ import annotations

from datetime import datetime

from controller.apimachinery.conditions import with_timezone

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def age(then: datetime | None, now: datetime) -> str:
    """Return the time since `then`, or `<unknown>` if `then` is None."""
    then = with_timezone(then)
    return "<unknown>" if then is None else short((now - then).total_seconds())


def short(seconds: float) -> str:
    """Return a duration with one or two units, as kubectl does."""
    whole = max(int(seconds), 0)
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    return _two(whole, DAY, "d", HOUR, "h") if whole < 8 * DAY else f"{whole // DAY}d"


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    first, rest = divmod(seconds, large)
    second = rest // small
    return f"{first}{large_unit}" + (f"{second}{small_unit}" if second else "")
