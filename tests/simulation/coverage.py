"""Counts what the lives of a run covered: pairs of opt-in features, changed fields, acts, faults and sentences."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field

from controller.kubevirt import annotations as names
from controller.kubevirt.pool_types import PoolSpec
from controller.kubevirt.replicaset_types import ReplicaSetSpec
from tests.simulation.features import pairs_of
from tests.simulation.life import Life
from tests.simulation.story import BUSY_UNTIL_S, catalogue, title
from tests.simulation.world import POOLS, SETS

Pair: TypeAlias = tuple[str, str, str]
"""The kind and two features."""

PAIRS: Final[tuple[Pair, ...]] = tuple((kind, *pair) for kind in ("set", "pool") for pair in pairs_of(kind))
FIELDS: Final = tuple(
    f"{kind}.{each.encode_name}"
    for kind, spec in (("set", ReplicaSetSpec), ("pool", PoolSpec))
    for each in msgspec.structs.fields(spec)
    if each.name != "selector"  # the API server refuses to change it
)
LONG, ENOUGH = 1000, 50
"""In so many lives, each pair meets so often."""


class Coverage(Struct):
    """`pairs` counts the lives in which two features were in force for a living set or pool with members, `sentences`
    the lives in which something happened about which a sentence speaks.
    """

    lives: int = 0
    simulated_s: float = 0.0
    pairs: Counter[Pair] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    sentences: Counter[str] = field(default_factory=Counter)

    def add(self, life: Life, spoken: Iterable[str]) -> None:
        self.lives += 1
        self.simulated_s += life.ended_at
        self.acts.update(title(act) for act in life.story.acts)
        self.pairs.update(_pairs(life))
        self.fields.update(_fields(life))
        self.sentences.update(spoken)

    def merge(self, other: "Coverage") -> None:
        self.lives += other.lives
        self.simulated_s += other.simulated_s
        for name in ("pairs", "fields", "acts", "sentences"):
            getattr(self, name).update(getattr(other, name))

    def lines(self) -> list[str]:
        counts = sorted(self.pairs[each] for each in PAIRS)
        rare = sorted(PAIRS, key=lambda pair: self.pairs[pair])[:10]
        return [
            f"{self.lives} lives, {self.simulated_s / 3600:.0f} simulated hours",
            f"pairs of features: {len(counts)}, met {sum(map(bool, counts))},"
            f" fewest {counts[0]}, median {counts[len(counts) // 2]}",
            "rarest: " + ", ".join(f"{_words(each)} {self.pairs[each]}" for each in rare),
            f"changed fields: {_listed(self.fields)}",
            f"acts: {_listed(self.acts)}",
            f"sentences with something to judge, in lives: {_listed(self.sentences)}",
        ]

    def gaps(self) -> list[str]:
        """What a long run has not covered. A short run has no gaps."""
        if self.lives < LONG:
            return []
        rare = [f"{_words(each)} met {self.pairs[each]} times" for each in PAIRS if self.pairs[each] < ENOUGH]
        fields = [f"{each} was not changed" for each in FIELDS if not self.fields[each]]
        return rare + fields + [f"{each} did not occur" for each in catalogue() if not self.acts[each]]


def _words(pair: Pair) -> str:
    kind, *both = pair
    return f"{kind} {'+'.join(each.removeprefix(names.PREFIX) for each in both)}"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _pairs(life: Life) -> set[Pair]:
    met = (moment for moment in life.moments if moment.at < BUSY_UNTIL_S)
    return {(moment.kind, *pair) for moment in met for pair in combinations(moment.features, 2)}


def _fields(life: Life) -> set[str]:
    found = set()
    for change in (each for each in life.changes if each.resource in (POOLS, SETS) and each.at < BUSY_UNTIL_S):
        if change.actor == "user" and change.before and change.after:
            before, after = change.before["spec"], change.after["spec"]
            kind = "pool" if change.resource is POOLS else "set"
            found |= {f"{kind}.{each}" for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
    return found
