"""Numbers as Grafana shows them, with the unit of a panel."""

from __future__ import annotations

from typing import Final

from benchmarks.soak.plots import nice_ceiling, short

BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
SUFFIXES: Final = {"reqps": " req/s", "ops": " ops/s"}


def text_of(value: float, unit: str) -> str:
    """Return the number with its unit, such as 12, 45%, 350 ms, 1.5 min or 64 MiB."""
    match unit:
        case "percentunit":
            return f"{value * 100:.3g}%"
        case "s":
            return _duration(value)
        case "bytes":
            return _bytes(value)
        case _:
            return short(value) + SUFFIXES.get(unit, "")


def top_of(most: float, unit: str) -> float:
    """Return a round number for the top of an axis, in this unit."""
    if unit == "percentunit" and 0.5 < most <= 1:
        return 1.0
    factor = {"bytes": 2.0**20, "s": 60.0 if most > 50 else 1.0}.get(unit, 1.0)
    return nice_ceiling(most / factor) * factor


def _duration(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    for limit, factor, name in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (90, 1, "s"), (5400, 1 / 60, "min")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.3g} {name}"
    return f"{seconds / 3600:.3g} h"


def _bytes(value: float) -> str:
    power = 0
    while abs(value) >= 1024 and power < len(BYTES) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.3g} {BYTES[power]}"
