"""What a benchmark case is, what the case measures, and its results."""

import statistics
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field


class About(StrEnum):
    """What a measure depends on. Other programs on the machine make a wall time useless, and change nothing else."""

    WALL = "wall time"
    CPU = "CPU time"
    MEMORY = "memory"
    COUNT = "count"


class Measure(Struct, frozen=True):
    """One figure of a case. `target` is the largest value that we want, or None. `digits` are those after the point."""

    key: str
    title: str
    unit: str
    about: About
    target: float | None = None
    digits: int = 2


class Setting(Struct, frozen=True):
    """One round: its size, an empty directory, the controller (a shell command or ""), and whether waits are short."""

    size: int
    directory: Path
    against: str = ""
    quick: bool = False


class Conditions(Struct, frozen=True):
    """The machine during a round. `others` is the share of its CPU that other programs used, from 0 to 1."""

    date: str
    cores: int
    python: str
    revision: str
    others: float


Round = dict[str, float]
"""The values of one round, by the keys of the measures."""


class Case(Struct, frozen=True):
    """A named benchmark with its usual sizes. `black_box` is True if it can measure any controller of these kinds."""

    name: str
    title: str
    about: str
    unit_of_size: str
    sizes: tuple[int, ...]
    measures: tuple[Measure, ...]
    run: Callable[[Setting], Round]
    black_box: bool = False


class Result(Struct):
    """All rounds of one case with one size. `command` repeats the measurement."""

    case: str
    size: int
    command: str
    subject: str = "vmherd"
    rounds: list[Round] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)

    @property
    def others(self) -> float:
        return max((each.others for each in self.conditions), default=0.0)

    def spread(self, key: str) -> tuple[float, float, float] | None:
        values = [each[key] for each in self.rounds if key in each]
        return (min(values), statistics.median(values), max(values)) if values else None


QUIET = 0.05
"""The largest share of the CPU that other programs may use during a round. Above it, wall times are not shown."""


def is_usable(measure: Measure, result: Result) -> bool:
    return measure.about is not About.WALL or result.others <= QUIET
