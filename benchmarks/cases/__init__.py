"""The benchmark cases by name."""

from benchmarks.case import Case
from benchmarks.cases.bursts import POOL_BURST, SET_BURST
from benchmarks.cases.fleets import FLEET
from benchmarks.cases.planning import CHANGES, PLANNING

CASES: dict[str, Case] = {case.name: case for case in (SET_BURST, POOL_BURST, FLEET, PLANNING, CHANGES)}
