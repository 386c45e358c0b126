"""The benchmark cases by name."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.cases import bursts, fleets, in_process, many_sets

CASES: dict[str, Case] = {
    case.name: case
    for case in (bursts.SET_BURST, bursts.POOL_BURST, many_sets.MANY_SETS, fleets.FLEET, *in_process.CASES)
}
