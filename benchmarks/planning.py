"""Measures the CPU time of one reconciliation of a very large pool or set, without its requests.

    python -m benchmarks.planning [--members 10000] [--profile CASE]

During this time no other task runs. So the time should be at most 50 ms.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from benchmarks import fleet
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import POOL_FINALIZER, TEMPLATE_HASH
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Stores
from controller.pool.rules import PoolRules
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES, VMIRosters
from controller.runtime.execute.refusals import Refusals
from informers.resource import Resource
from informers.store import Store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
ROUNDS = 5

Steps = dict[str, Callable[[], Any]]


def measure_planning(members: int) -> dict[str, dict[str, float]]:
    """Return the CPU time in milliseconds of each step of each case."""
    planned = {name: {step: _best_ms(call) for step, call in steps.items()} for name, steps in _cases(members).items()}
    return planned | {
        "pool, first snapshot": _first_snapshot(*pool_rules(members)[:2]),
        "set, first snapshot": _first_snapshot(*set_rules(members)[:2]),
    }


def _cases(members: int) -> dict[str, Steps]:
    pools = {
        "pool, nothing to do": fleet.pool(members),
        "pool, all outdated": fleet.pool(members, image="v2", generation=2),
        "pool, to 0": fleet.pool(0),
        "pool, one more": fleet.pool(members + 1),
    }
    sets = {
        "set, nothing to do": fleet.replica_set(members),
        "set, to 0": fleet.replica_set(0),
    }
    return {
        **{name: _steps(*pool_rules(members, body)[:2]) for name, body in pools.items()},
        "pool, all starting": _steps(*pool_rules(members, starting=True)[:2]),
        **{name: _steps(*set_rules(members, body)[:2]) for name, body in sets.items()},
        "set, all starting": _steps(*set_rules(members, starting=True)[:2]),
    }


def pool_rules(members: int, body: bytes | None = None, *, starting: bool = False) -> tuple[PoolRules, Any, Store[Any]]:
    """Return the rules of pools, a pool with this number of VMs, and the store of the VMIs.

    With `starting`, the VMs are new. They have no status and no VMIs yet.
    """
    machines = [_vm_of_pool(number, members) for number in range(members)]
    instances = [VMIS.decode(fleet.vmi_of_vm(number, size=members)) for number in range(members)]
    if starting:
        machines, instances = [_starting(each, number) for number, each in enumerate(machines)], []
    resource = POOLS.resource()
    owner = resource.decode(fleet.pool(members) if body is None else body)
    first = json.loads(fleet.pool(members))
    vmis = _store(VMIS, instances)
    stores = Stores(
        _store(resource, [owner]),
        _store(VMS, machines, VM_INDEXES),
        vmis,
        _store(
            CONTROLLER_REVISIONS,
            [CONTROLLER_REVISIONS.decode(fleet.pool_revision(first["spec"]))],
            REVISION_INDEXES,
        ),
    )
    return PoolRules(stores, resource, Limits(), PoolRosters(stores.vms, vmis), Refusals()), owner, vmis


def set_rules(
    members: int, body: bytes | None = None, *, starting: bool = False
) -> tuple[ReplicaSetRules, Any, Store[Any]]:
    """Return the rules of sets, a set with this number of VMIs, and the store of the VMIs.

    With `starting`, the VMIs are new. They have no status yet.
    """
    resource = REPLICA_SETS.resource()
    owner = resource.decode(fleet.replica_set(members) if body is None else body)
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    instances = [_vmi_of_set(number, members, intent.template.hash) for number in range(members)]
    if starting:
        instances = [_starting(each, number) for number, each in enumerate(instances)]
    vmis = _store(VMIS, instances, VMI_INDEXES)
    sets = _store(resource, [owner], REPLICASET_INDEXES)
    return ReplicaSetRules(sets, vmis, resource, VMIS, 250, rosters=VMIRosters(vmis)), owner, vmis


def _starting(machine: Any, number: int) -> Any:
    """Return a VM or VMI without a status. It was created in one of the last 30 seconds."""
    created = NOW - timedelta(seconds=number % 30)
    return replace(machine, metadata=replace(machine.metadata, creation_timestamp=created), status=None)


def _vm_of_pool(number: int, size: int) -> Any:
    """Return a VM without the pool finalizer, because the pool keeps no disks."""
    vm = VMS.decode(fleet.vm_of_pool(number, size=size))
    finalizers = tuple(each for each in vm.metadata.finalizers or () if each != POOL_FINALIZER)
    return replace(vm, metadata=replace(vm.metadata, finalizers=finalizers))


def _vmi_of_set(number: int, size: int, template_hash: str) -> Any:
    vmi = VMIS.decode(fleet.vmi_of_set(number, size=size))
    labels = {**(vmi.metadata.labels or {}), TEMPLATE_HASH: template_hash}
    return replace(vmi, metadata=replace(vmi.metadata, labels=labels))


def _steps(rules: Any, owner: Any) -> Steps:
    key = owner.metadata.key
    snapshot = rules.take_snapshot(key, now=NOW, settled=True)
    assert snapshot is not None
    return {
        "snapshot": lambda: rules.take_snapshot(key, now=NOW, settled=True),
        "plan": lambda: rules.plan(snapshot),
        "status": lambda: rules.next_status(snapshot, ()),
    }


def _first_snapshot(rules: Any, owner: Any) -> dict[str, float]:
    """Return the CPU time in milliseconds of the longest slice of the first snapshot after a new list, and of its end.

    Other tasks run between two slices.
    """
    key, best = owner.metadata.key, {"slice": float("inf"), "snapshot": float("inf")}
    for _ in range(ROUNDS):
        rules.rosters.replaced()
        slices, turns = rules.prepare(key, now=NOW), [time.process_time()]
        for _ in slices:
            turns.append(time.process_time())
        prepared = time.process_time()
        rules.take_snapshot(key, now=NOW, settled=True)
        longest = max(after - before for before, after in pairwise([*turns, prepared]))
        for step, seconds in (("slice", longest), ("snapshot", time.process_time() - prepared)):
            best[step] = min(best[step], seconds * 1000)
    return best


def _store(resource: Resource[Any], objects: list[Any], indexes: Any = None) -> Store[Any]:
    store: Store[Any] = Store(indexes=indexes)
    for each in objects:
        store.apply(each)
    return store


def _best_ms(call: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planning", description="Measure the CPU time of the plan of a very large object."
    )
    parser.add_argument("--members", type=int, default=10_000, help="VMs of the pool, VMIs of the set (default 10000)")
    parser.add_argument("--profile", metavar="CASE", help="print the profile of one case instead")
    arguments = parser.parse_args()
    if arguments.profile:
        for step, call in _cases(arguments.members)[arguments.profile].items():
            profile = cProfile.Profile()
            profile.runcall(call)
            print(step)
            pstats.Stats(profile).sort_stats("tottime").print_stats(12)
        return
    for name, steps in measure_planning(arguments.members).items():
        print(f"{name:22}" + "".join(f"  {step} {ms:7.1f} ms" for step, ms in steps.items()))


if __name__ == "__main__":
    main()
