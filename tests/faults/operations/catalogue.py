"""The catalogue of all operations. Each operation occurs with all its values and with a weight.

The random sequences choose their operations from this catalogue.
"""

import random
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from operator import or_
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
BOTH = (True, False)
FAILURES = ("fail", "finish", "unknown", "never-ready", "paused", None)


class Group(Struct, frozen=True):
    """Operations of one sort. A group with twice the weight is drawn twice as often."""

    weight: int
    operations: tuple[Operation, ...]


def _group(weight: int, operations: Iterable[Operation]) -> Group:
    return Group(weight, tuple(operations))


def _common(kind: KindName) -> tuple[Group, ...]:
    waits = map(common.Wait, (0.02, 0.1, 0.3, 0.7, 1.5))
    owners = [common.ChangeOwners(n, how) for n in WHICH for how in ("remove", "foreign", "missing", "second")]
    propagations = ("Background", "Foreground", "Orphan")
    return (
        _group(20, waits),
        _group(14, (common.scale(n, through_scale=how) for n in (0, 1, 2, 3, 4, 6, None) for how in (False, True))),
        _group(5, _fields("paused", (True, False, None, True))),
        _group(5, map(common.Reject, range(len(violations(kind))))),
        _group(2, map(common.label_owner, ("red", "blue", None))),
        _group(3, (common.DeleteOwner(how, again) for how in propagations for again in (True, True, False))),
        _group(2, map(common.HoldOwner, (True, False))),
        _group(10, (common.DeleteChild(n, how) for n in WHICH for how in ("Background", *propagations))),
        _group(4, (common.relabel_child(n, value) for n in WHICH for value in (None, "other", "herd", "herd"))),
        _group(4, owners),
        _group(4, (common.HoldChild(n, held) for n in WHICH for held in (True, False))),
        _group(5, (common.FailChild(n, how) for n in WHICH for how in FAILURES)),
        _group(4, (common.CreateOther(matching) for matching in (True, False))),
        _group(2, map(common.Quota, (0, 2, 4, None, None))),
        _group(3, map(common.Crash, (0.0, 0.5))),
        _group(2, [common.Cut()]),
        _group(2, map(common.Stall, (0.2, 1.0))),
    )


def _of_sets() -> tuple[Group, ...]:
    parts = [sets.change_template(part, value) for part, values in sets.PARTS.items() for value in values]
    return (
        _group(12, parts),
        _group(7, _texts(sets.OWNER_ANNOTATIONS)),
        _group(7, _marks(sets.CHILD_ANNOTATIONS)),
        _group(2, (common.edit_child(n, value) for n in WHICH for value in ("x", None))),
    )


def _of_pools() -> tuple[Group, ...]:
    parts = [pools.change_template(part, value) for part, values in pools.PARTS.items() for value in values]
    edits = (("strategy", "Halted"), ("strategy", "Always"), ("firmware", "a-b"), ("label", "x"), ("vmi-label", "x"))
    varied = tuple(common.Vary(field, seed) for field in varied_fields("pools") for seed in range(20))
    return (
        _group(14, parts),
        _group(5, _texts(pools.OWNER_ANNOTATIONS)),
        _group(2, _texts(pools.NOTES)),
        _group(5, _marks(pools.CHILD_ANNOTATIONS)),
        _group(5, _fields("scaleInStrategy", pools.SCALE_IN)),
        _group(5, _fields("updateStrategy", pools.UPDATE)),
        _group(3, _fields("autohealing", pools.HEALING)),
        _group(3, _fields("maxUnavailable", pools.MAX_UNAVAILABLE)),
        _group(2, _fields("nameGeneration", pools.NAME_GENERATION)),
        _group(3, varied),
        _group(4, (pools.edit_vm(n, part, value) for n in WHICH for part, value in edits)),
        _group(3, (pools.DeleteAny(VMIS, n) for n in WHICH)),
        _group(2, (pools.DeleteAny(REVISIONS, n) for n in WHICH)),
        _group(2, map(pools.RefuseCreates, (True, False, False))),
        _group(2, (pools.lose_revision(n, value) for n in WHICH for value in (None, "herd-1", "nothing"))),
        _group(2, [pools.ForcePool()]),
        _group(2, map(pools.Attach, WHICH)),
        _group(3, (common.CreateOther(match, n, ours) for match in BOTH for n in (0, 3, 7) for ours in BOTH)),
        _group(2, (common.HoldChild(n, held, True) for n in WHICH for held in (True, False))),
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


ANY_OPERATION: Any = reduce(or_, Operation.__subclasses__())


def to_json(sequence: Iterable[Operation]) -> str:
    return msgspec.json.encode(list(sequence)).decode()


def from_json(text: str | bytes) -> tuple[Operation, ...]:
    return msgspec.json.decode(text, type=tuple[ANY_OPERATION, ...])
