"""Parses durations in the format of Go. Kubernetes objects use this format: `5m`, `1m30s`, `1.5h`, `500ms`."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_MICROSECONDS = {
    "ns": 1e-3,
    "us": 1.0,
    "\u00b5s": 1.0,
    "\u03bcs": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "m": 60e6,
    "h": 3600e6,
}
_LONGEST = timedelta(days=36525)
"""The longest duration that is accepted: 100 years."""

_MOST_CHARACTERS = 100


def parse_duration(text: str) -> timedelta | None:
    """Return the duration that the text describes.

    Return None if the text is not a duration between 0 and 100 years. Return None also for a text of more than 100
    characters.
    """
    unsigned = text.removeprefix("+")
    if unsigned == "0":
        return timedelta()
    parts = _PART.findall(unsigned) if len(unsigned) <= _MOST_CHARACTERS else []
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        return None
    microseconds = sum(float(number) * _MICROSECONDS[unit] for number, unit in parts)
    return timedelta(microseconds=microseconds) if microseconds <= _LONGEST / timedelta(microseconds=1) else None
