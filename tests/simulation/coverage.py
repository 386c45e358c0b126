"""Counts what the lives of a run covered: pairs of opt-in features, changed fields, acts and faults."""

from collections import Counter
from itertools import combinations

from msgspec import Struct, field

from controller.kubevirt import annotations as names
from tests.simulation.features import FEATURES, features_of
from tests.simulation.judge.replay import annotations
from tests.simulation.life import Life
from tests.simulation.world import POOLS, SETS


class Coverage(Struct):
    """`pairs` counts the lives in which a set or pool had two features at the same time."""

    lives: int = 0
    simulated_s: float = 0.0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def add(self, life: Life) -> None:
        self.lives += 1
        self.simulated_s += life.ended_at
        self.acts.update(act.what if act.what != "fault" else f"fault {act.args[0]}" for act in life.story.acts)
        self.pairs.update(_pairs(life))
        self.fields.update(_fields(life))
        self.changes.update(each.resource.plural for each in life.changes if each.is_ours)

    def merge(self, other: "Coverage") -> None:
        self.lives += other.lives
        self.simulated_s += other.simulated_s
        for mine, theirs in ((self.pairs, other.pairs), (self.fields, other.fields), (self.acts, other.acts)):
            mine.update(theirs)  # type: ignore[arg-type]
        self.changes.update(other.changes)

    def lines(self) -> list[str]:
        """The tables for people."""
        every = [pair for kind in ("set", "pool") for pair in combinations(sorted(features_of(kind)), 2)]
        counts = [self.pairs[pair] for pair in dict.fromkeys(every)]
        rare = sorted((pair for pair in dict.fromkeys(every)), key=lambda pair: self.pairs[pair])[:10]
        fields = ", ".join(f"{name} {count}" for name, count in sorted(self.fields.items()))
        acts = ", ".join(f"{name} {count}" for name, count in sorted(self.acts.items()))
        return [
            f"{self.lives} lives, {self.simulated_s / 3600:.0f} simulated hours",
            f"pairs of features: {len(counts)}, met at least once: {sum(1 for each in counts if each)},"
            f" fewest {min(counts)}, median {sorted(counts)[len(counts) // 2]}",
            "rarest: " + ", ".join(f"{_short(a)}+{_short(b)} {self.pairs[a, b]}" for a, b in rare),
            f"changed fields: {fields}",
            f"acts: {acts}",
        ]


def _short(name: str) -> str:
    return name.removeprefix(names.PREFIX)


def _pairs(life: Life) -> set[tuple[str, str]]:
    met: set[tuple[str, str]] = set()
    for change in life.changes:
        if change.resource in (POOLS, SETS) and change.actor == "user":
            met.update(combinations(sorted(each for each in annotations(change.after) if each in FEATURES), 2))
    return met


def _fields(life: Life) -> set[str]:
    found: set[str] = set()
    for change in life.changes:
        if change.resource not in (POOLS, SETS) or change.actor != "user" or not change.before or not change.after:
            continue
        before, after, kind = change.before["spec"], change.after["spec"], change.resource.kind
        prefix = "pool" if change.resource is POOLS else "set"
        found |= {f"{prefix}.{each}" for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
        assert kind
    return found
