"""The catalogue of all operations. Each operation occurs with all its values and with a weight.

The random sequences choose their operations from this catalogue.
"""

import random
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from tests.faults.operations import changes as common
from tests.faults.operations import pools, sets
from tests.faults.operations.changes import Operation
from tests.faults.operations.schema import varied_fields, violations
from tests.faults.operations.world import KindName
from tests.faults.resources import REVISIONS, VMIS

WHICH = range(5)
FAILURES = ("fail", "finish", "unknown", "never-ready", "paused", None)


class Group(Struct, frozen=True):
    """Operations of one sort. A group with twice the weight is drawn twice as often."""

    weight: int
    operations: tuple[Operation, ...]


def _all(*operations: Operation) -> tuple[Operation, ...]:
    return operations


def _common(kind: KindName) -> tuple[Group, ...]:
    waits = _all(*map(common.Wait, (0.02, 0.1, 0.3, 0.7, 1.5)))
    owners = [common.ChangeOwners(n, how) for n in WHICH for how in ("remove", "foreign", "missing", "second")]
    propagations = ("Background", "Foreground", "Orphan")
    return (
        Group(20, waits),
        Group(
            14,
            _all(
                *(common.scale(n, through_scale=through) for n in (0, 1, 2, 3, 4, 6, None) for through in (False, True))
            ),
        ),
        Group(5, _fields("paused", (True, False, None, True))),
        Group(5, _all(*map(common.Reject, range(len(violations(kind)))))),
        Group(2, _all(*map(common.label_owner, ("red", "blue", None)))),
        Group(3, _all(*(common.DeleteOwner(how, again) for how in propagations for again in (True, True, False)))),
        Group(2, _all(*map(common.HoldOwner, (True, False)))),
        Group(10, _all(*(common.DeleteChild(n, how) for n in WHICH for how in ("Background", *propagations)))),
        Group(4, _all(*(common.relabel_child(n, value) for n in WHICH for value in (None, "other", "herd", "herd")))),
        Group(4, tuple(owners)),
        Group(4, _all(*(common.HoldChild(n, held) for n in WHICH for held in (True, False)))),
        Group(5, _all(*(common.FailChild(n, how) for n in WHICH for how in FAILURES))),
        Group(4, _all(*(common.CreateOther(matching) for matching in (True, False)))),
        Group(2, _all(*map(common.Quota, (0, 2, 4, None, None)))),
        Group(3, _all(*map(common.Crash, (0.0, 0.5)))),
        Group(2, _all(common.Cut())),
        Group(2, _all(*map(common.Stall, (0.2, 1.0)))),
    )


def _of_sets() -> tuple[Group, ...]:
    parts = [sets.change_template(part, value) for part, values in sets.PARTS.items() for value in values]
    return (
        Group(12, tuple(parts)),
        Group(7, _texts(sets.OWNER_ANNOTATIONS)),
        Group(7, _marks(sets.CHILD_ANNOTATIONS)),
        Group(2, _all(*(common.edit_child(n, value) for n in WHICH for value in ("x", None)))),
    )


def _of_pools() -> tuple[Group, ...]:
    parts = [pools.change_template(part, value) for part, values in pools.PARTS.items() for value in values]
    edits = (("strategy", "Halted"), ("strategy", "Always"), ("firmware", "a-b"), ("label", "x"), ("vmi-label", "x"))
    varied = tuple(common.Vary(field, seed) for field in varied_fields("pools") for seed in range(20))
    return (
        Group(14, tuple(parts)),
        Group(5, _texts(pools.OWNER_ANNOTATIONS)),
        Group(2, _texts(pools.NOTES)),
        Group(5, _marks(pools.CHILD_ANNOTATIONS)),
        Group(5, _fields("scaleInStrategy", pools.SCALE_IN)),
        Group(5, _fields("updateStrategy", pools.UPDATE)),
        Group(3, _fields("autohealing", pools.HEALING)),
        Group(3, _fields("maxUnavailable", pools.MAX_UNAVAILABLE)),
        Group(2, _fields("nameGeneration", pools.NAME_GENERATION)),
        Group(3, varied),
        Group(4, _all(*(pools.edit_vm(n, part, value) for n in WHICH for part, value in edits))),
        Group(3, _all(*(pools.DeleteAny(VMIS, n) for n in WHICH))),
        Group(2, _all(*(pools.DeleteAny(REVISIONS, n) for n in WHICH))),
        Group(2, _all(*map(pools.RefuseCreates, (True, False, False)))),
        Group(2, _all(*(pools.lose_revision(n, value) for n in WHICH for value in (None, "herd-1", "nothing")))),
        Group(2, _all(pools.ForcePool())),
        Group(2, _all(*map(pools.Attach, WHICH))),
        Group(
            3,
            _all(
                *(
                    common.CreateOther(match, n, ours)
                    for match in (True, False)
                    for n in (0, 3, 7)
                    for ours in (True, False)
                )
            ),
        ),
        Group(2, _all(*(common.HoldChild(n, held, True) for n in WHICH for held in (True, False)))),
    )


def _texts(texts: Mapping[str, tuple[str | None, ...]]) -> tuple[Operation, ...]:
    return tuple(common.annotate_owner(key, value) for key, values in texts.items() for value in values)


def _marks(texts: Mapping[str, tuple[str | None, ...]]) -> tuple[Operation, ...]:
    return tuple(
        common.annotate_child(n, key, value) for n in WHICH for key, values in texts.items() for value in values
    )


def _fields(field: str, values: Iterable[Any]) -> tuple[Operation, ...]:
    return tuple(common.set_spec(field, value) for value in values)


@cache
def catalogue(kind: KindName) -> tuple[Group, ...]:
    return (*_common(kind), *(_of_sets() if kind == "sets" else _of_pools()))


def random_sequence(kind: KindName, length: int, seed: str) -> tuple[Operation, ...]:
    """The same seed gives the same operations."""
    chance = random.Random(seed)
    groups = catalogue(kind)
    drawn = chance.choices(groups, [group.weight for group in groups], k=length)
    return tuple(chance.choice(group.operations) for group in drawn)


ANY_OPERATION = (
    common.Wait
    | common.ChangeOwner
    | common.ChangeChild
    | common.Reject
    | common.Vary
    | common.DeleteOwner
    | common.HoldOwner
    | common.DeleteChild
    | common.FailChild
    | common.ChangeOwners
    | common.HoldChild
    | common.CreateOther
    | common.Quota
    | common.Crash
    | common.Cut
    | common.Stall
    | pools.DeleteAny
    | pools.ForcePool
    | pools.RefuseCreates
    | pools.Attach
)


def to_json(sequence: Iterable[Operation]) -> str:
    return msgspec.json.encode(list(sequence)).decode()


def from_json(text: str | bytes) -> tuple[Operation, ...]:
    return msgspec.json.decode(text, type=tuple[ANY_OPERATION, ...])
