"""Durations as Kubernetes writes them in an object: `5m`, `1m30s`, `500ms`."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> timedelta | None:
    """The duration, 0 or more; None where it is none, or longer than anybody can wait."""
    parts = _PART.findall(text)
    if text == "0":
        return timedelta()
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return timedelta(seconds=seconds) if seconds <= 1e9 else None
