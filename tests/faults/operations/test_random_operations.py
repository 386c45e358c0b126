"""Random operations on the real API server: a fixed part for each run of the tests, and the sequences that failed once.

The large run is `python -m tests.faults.random_operations --operations 10000 --seed 1`.
"""

import asyncio
import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from controller.kubevirt.annotations import PARTITION
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.programs import simulator
from tests.faults import random_operations
from tests.faults.operations import pools
from tests.faults.operations.catalogue import catalogue, from_json, random_sequence, to_json
from tests.faults.operations.changes import Operation, Wait, scale
from tests.faults.operations.cluster import open_cluster
from tests.faults.operations.equality import differences
from tests.faults.operations.found import FOUND
from tests.faults.operations.schema import varied_fields, violations
from tests.faults.operations.sequence import AT_THE_END, Verdict, run_sequence
from tests.faults.operations.world import KindName, State, World
from tests.faults.random_operations import explain, run_many, shrink

KINDS: tuple[KindName, ...] = ("pools", "sets")
LIMIT_S = 400
"""The limit of a test. It is longer than the waits at the end of a sequence (see sequence.py)."""

SEED, LENGTH = 11, 10
"""These values are the same in each run: the seed, and the number of operations of each sequence."""


@pytest.fixture(scope="module")
def operations_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for this module, whose controllers run in this process."""
    with running_plane(control_plane_binaries, audit_level="RequestResponse") as plane, simulator(plane):
        yield plane


@pytest.mark.timeout(LIMIT_S)
async def test_after_random_operations_and_found_sequences_the_state_equals_that_of_a_fresh_start(
    operations_plane: ControlPlane, tmp_path: Path
) -> None:
    """All sequences run at the same time, because each of them mostly waits."""
    async with open_cluster(operations_plane, tmp_path) as cluster:
        random, *found = await asyncio.gather(
            run_many(cluster, SEED, range(4), KINDS, length=LENGTH, parallel=4),
            *(run_sequence(cluster, each.kind, each.operations) for each in FOUND),
        )
    for number, verdict in random.items():
        sequence = random_operations.sequence_of(SEED, number, KINDS, LENGTH)
        assert not verdict.violations, explain(random_operations.kind_of(number, KINDS), verdict, sequence)
    for each, verdict in zip(FOUND, found, strict=True):
        assert not verdict.violations, f"{each.fault}\n{explain(each.kind, verdict, each.operations)}"
    verdicts = [*random.values(), *found]
    restarts = Counter(when for verdict in verdicts for when in verdict.restarts)
    assert restarts["after the recovery"] == len(verdicts)
    assert restarts[AT_THE_END] > len(verdicts) / 2, "most sequences must come to rest without a recovery"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_operations_and_json_keeps_them(kind: KindName) -> None:
    sequence = random_sequence(kind, 200, "7/3")
    assert sequence == random_sequence(kind, 200, "7/3") != random_sequence(kind, 200, "7/4")
    assert from_json(to_json(sequence)) == sequence


@pytest.mark.parametrize("kind", KINDS)
def test_the_catalogue_has_every_violation_of_the_schema_and_json_keeps_each_operation(kind: KindName) -> None:
    operations = [operation for group in catalogue(kind) for operation in group.operations]
    assert from_json(to_json(operations)) == tuple(operations)
    rules = {each.rule for each in violations(kind)}
    assert rules >= {"it is no object", "its minimum", "it is required", "it is not nullable", "its format"}
    fields = {"scaleInStrategy", "updateStrategy", "autohealing", "maxUnavailable"} if kind == "pools" else set()
    assert set(varied_fields(kind)) >= fields | {"paused"}


async def test_shrinking_leaves_out_every_operation_that_the_failure_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = [scale(0), scale(6)]

    async def run(_cluster: object, _kind: object, sequence: tuple[Operation, ...]) -> Verdict:
        failed = ("failed",) if all(each in sequence for each in needed) else ()
        return Verdict(violations=failed, trace=(), applied=len(sequence), writes=0, seconds=0)

    monkeypatch.setattr(random_operations, "run_sequence", run)
    waits = tuple(Wait(number / 10) for number in range(9))
    sequence = (*waits[:4], scale(0), *waits[4:7], scale(6), *waits[7:])
    cluster: Any = None
    assert await shrink(cluster, "sets", sequence) == (scale(0), scale(6))


class Spoiled(Struct, frozen=True):
    """A change to a correct end state, and a text that the reported difference must contain."""

    path: tuple[str | int, ...]
    value: Any
    expected: str


SPOILED = (
    Spoiled(("owner", "spec", "replicas"), 2, "there are 1 VMs, and 2 are wanted"),
    Spoiled(("owner", "status", "replicas"), 2, "status.replicas is 2, but there are 1"),
    Spoiled(("owner", "status", "readyReplicas"), 0, "status.readyReplicas is 0, but there are 1"),
    Spoiled(("owner", "status", "observedGeneration"), 1, "status.observedGeneration is 1"),
    Spoiled(("owner", "status", "conditions"), [{"type": "ReplicaPaused", "status": "True"}], "status.conditions"),
    Spoiled(("vms", 0, "metadata", "finalizers"), [], "herd-4.finalizers"),
    Spoiled(("vms", 0, "metadata", "labels"), {"app": "other"}, "herd-4 does not match, but is a member"),
    Spoiled(("vms", 0, "metadata", "deletionTimestamp"), "x", "is still being deleted"),
    Spoiled(("vms", 0, "spec", "dataVolumeTemplates", 0, "metadata", "name"), "root-5", "the disk root-5 is missing"),
    Spoiled(("vms", 0, "status", "conditions"), [], "herd-4 is not ready"),
    Spoiled(("vms", 0, "metadata", "ownerReferences", 0, "blockOwnerDeletion"), False, "blockOwnerDeletion"),
    Spoiled(("volumes", 0, "metadata", "ownerReferences"), [], "the disk root-4 is left over"),
    Spoiled(("revisions", 0, "metadata", "ownerReferences"), [], "revision herd-1 is not the pool's"),
)


def _pool_state(ordinal: int) -> dict[str, Any]:
    """A pool with one VM at rest."""
    name = f"herd-{ordinal}"
    labels = {"app": "herd", "kubevirt.io/vm-pool-revision-name": "herd-1"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    owned = {"kind": "VirtualMachinePool", "uid": "pool", "controller": True, "blockOwnerDeletion": True}
    vm_spec = {"runStrategy": "Always", "dataVolumeTemplates": [{"metadata": {"name": f"root-{ordinal}"}}]}
    metadata = {"name": name, "uid": f"vm-{ordinal}", "labels": labels, "ownerReferences": [owned]}
    disk = {"name": f"root-{ordinal}", "uid": "disk", "ownerReferences": [{"uid": f"vm-{ordinal}", "controller": True}]}
    counts = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 3}
    return {
        "owner": {
            "metadata": {"name": "herd", "uid": "pool", "generation": 3},
            "spec": {"replicas": 1},
            "status": counts,
        },
        "vms": [{"metadata": {**metadata, "finalizers": ["f"]}, "spec": vm_spec, "status": ready}],
        "vmis": [{"metadata": {"name": name, "uid": "vmi", "labels": labels}, "spec": {}, "status": ready}],
        "volumes": [{"metadata": disk}],
        "claims": [],
        "revisions": [{"metadata": {"name": "herd-1", "uid": "revision", "ownerReferences": [owned]}}],
    }


def _state(document: dict[str, Any]) -> State:
    lists = {field: tuple(items) for field, items in document.items() if field != "owner"}
    return State(owner=document["owner"], **lists)


def test_a_state_that_differs_only_in_its_ordinal_equals_a_fresh_start() -> None:
    assert differences(_world(), _state(_pool_state(4)), _state(_pool_state(0))) == []


@pytest.mark.parametrize("spoiled", SPOILED, ids=lambda spoiled: spoiled.expected)
def test_a_state_that_no_rule_allows_differs_from_a_fresh_start(spoiled: Spoiled) -> None:
    document = copy.deepcopy(_pool_state(4))
    target: Any = document
    for part in spoiled.path[:-1]:
        target = target[part]
    target[spoiled.path[-1]] = spoiled.value
    found = differences(_world(), _state(document), _state(_pool_state(0)))
    assert any(spoiled.expected in each for each in found), found


@pytest.mark.parametrize(
    ("partition", "may_be_older"), [(None, False), ("0", False), ("5", True), ("many", True), ("", True)]
)
def test_vms_may_be_outdated_only_if_the_partition_keeps_their_revision(
    partition: str | None, may_be_older: bool
) -> None:
    now, fresh = _pool_state(4), _pool_state(0)
    for document in (now, fresh):
        document["owner"]["metadata"]["annotations"] = {PARTITION: partition} if partition is not None else {}
    fresh["vms"][0]["spec"]["template"] = {"metadata": {"annotations": {"a": "two"}}}
    assert bool(differences(_world(), _state(now), _state(fresh))) != may_be_older


def test_a_changed_object_of_another_user_is_a_difference() -> None:
    document = _pool_state(4)
    other = {"metadata": {"name": "other", "uid": "other", "labels": {"a": "b"}}, "spec": {"x": 1}}
    world = _world()
    world.strangers["other"] = other
    assert differences(world, _state(document), _state(_pool_state(0))) == [
        "other is gone, although it does not belong to the owner"
    ]
    document["vms"].append({**other, "spec": {"x": 2}})
    [found] = differences(world, _state(document), _state(_pool_state(0)))
    assert found.startswith("other: its spec changed")


def _world() -> World:
    cluster: Any = None
    return World(cluster, "pools", "test", pools.manifest())
