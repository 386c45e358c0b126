"""The CPU time of one reconciliation of a set or pool, without its requests: the longest step, and a whole change."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from msgspec.structs import replace

from benchmarks import fleet
from benchmarks.case import About, Case, Measure, Round, Setting
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Stores
from controller.pool.rules import PoolRules
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES, RevisionCache
from controller.replicaset.snapshot import REVISION_INDEXES as SET_REVISION_INDEXES
from controller.runtime.execute.refusals import Refusals
from informers.resource import Resource
from informers.store import Store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
ROUNDS = 5
SAMPLED = 200
LONGEST_STALL_MS = 50.0

Made = tuple[Any, Any, Store[VirtualMachineInstance]]
"""The rules of a kind, a set or pool, and the store of the VMIs."""


def _cases(members: int) -> dict[str, Callable[[], Made]]:
    return {
        "pool, nothing to do": lambda: _pool_rules(members),
        "pool, all outdated": lambda: _pool_rules(members, image="v2", generation="2"),
        "pool, to 0": lambda: _pool_rules(members, replicas="0"),
        "pool, one more": lambda: _pool_rules(members, replicas=str(members + 1)),
        "pool, all starting": lambda: _pool_rules(members, starting=True),
        "pool, first snapshot": lambda: _pool_rules(members),
        "set, nothing to do": lambda: _set_rules(members),
        "set, to 0": lambda: _set_rules(members, replicas="0"),
        "set, all starting": lambda: _set_rules(members, starting=True),
        "set, first snapshot": lambda: _set_rules(members),
    }


def _pool_rules(members: int, *, starting: bool = False, **changes: str) -> Made:
    """Return a pool of VMs with these changes, if `starting` without statuses and VMIs yet."""
    shapes = fleet.shapes(fleet.Size(1, 1, 1, members))
    machines = _decoded(VMS, shapes["VM of a pool"])
    instances = _decoded(VMIS, shapes["VMI of a VM"])
    if starting:
        machines, instances = [_starting(each, number) for number, each in enumerate(machines)], []
    resource = POOLS.resource()
    owner = resource.decode(shapes["pool"].render(0, **changes))
    vmis = _store(instances)
    revisions = _decoded(CONTROLLER_REVISIONS, shapes["ControllerRevision of a pool"])
    stores = Stores(_store([owner]), _store(machines, VM_INDEXES), vmis, _store(revisions, REVISION_INDEXES))
    return PoolRules(stores, resource, Limits(), PoolRosters(stores.vms, vmis), Refusals()), owner, vmis


def _set_rules(members: int, *, starting: bool = False, **changes: str) -> Made:
    """Return a set with this number of VMIs. With `starting`, the VMIs are new and have no status yet."""
    shapes = fleet.shapes(fleet.Size(1, members, 1, 1))
    resource = REPLICA_SETS.resource()
    owner = resource.decode(shapes["set"].render(0, **changes))
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    instances = [_with_hash(each, intent.template.hash) for each in _decoded(VMIS, shapes["VMI of a set"])]
    if starting:
        instances = [_starting(each, number) for number, each in enumerate(instances)]
    vmis = _store(instances, VMI_INDEXES)
    sets = _store([owner], REPLICASET_INDEXES)
    stored = _decoded(CONTROLLER_REVISIONS, shapes["ControllerRevision of a set"])
    revisions = RevisionCache(_store(stored, SET_REVISION_INDEXES), 5)
    return ReplicaSetRules(sets, vmis, resource, VMIRosters(vmis), revisions, 250), owner, vmis


def _decoded(resource: Resource[Any], shape: fleet.Shape) -> list[Any]:
    return [resource.decode(shape.render(number)) for number in range(shape.count)]


def _starting(machine: Any, number: int) -> Any:
    """Return a VM or VMI without a status. It was created in one of the last 30 seconds."""
    created = NOW - timedelta(seconds=number % 30)
    return replace(machine, metadata=replace(machine.metadata, creation_timestamp=created), status=None)


def _with_hash(vmi: VirtualMachineInstance, template_hash: str) -> VirtualMachineInstance:
    labels = {**(vmi.metadata.labels or {}), TEMPLATE_HASH: template_hash}
    return replace(vmi, metadata=replace(vmi.metadata, labels=labels))


def _store(objects: list[Any], indexes: Any = None) -> Store[Any]:
    store: Store[Any] = Store(indexes=indexes)
    for each in objects:
        store.apply(each)
    return store


def measure_planning(setting: Setting) -> Round:
    return {
        name: _first_snapshot_ms(*make()) if name.endswith("first snapshot") else _longest_step_ms(*make())
        for name, make in _cases(setting.size).items()
    }


def _longest_step_ms(rules: Any, owner: Any, _: object) -> float:
    key = owner.metadata.key
    snapshot = rules.take_snapshot(key, now=NOW, settled=True)
    assert snapshot is not None
    steps: tuple[Callable[[], object], ...] = (
        lambda: rules.take_snapshot(key, now=NOW, settled=True),
        lambda: rules.plan(snapshot),
        lambda: rules.next_status(snapshot, ()),
    )
    return max(min(_seconds(step) for _ in range(ROUNDS)) for step in steps) * 1000


def _first_snapshot_ms(rules: Any, owner: Any, _: object) -> float:
    """Return the longest slice of the first snapshot after a new list, or its end if that is longer."""
    key, slices_s, ends_s = owner.metadata.key, [], []
    for _ in range(ROUNDS):
        rules.rosters.replaced()
        turns = [time.process_time()]
        for _ in rules.prepare(key, now=NOW):
            turns.append(time.process_time())
        turns.append(time.process_time())
        slices_s.append(max(after - before for before, after in pairwise(turns)))
        ends_s.append(_seconds(lambda: rules.take_snapshot(key, now=NOW, settled=True)))
    return max(min(slices_s), min(ends_s)) * 1000


def measure_changes(setting: Setting) -> Round:
    """Return the CPU time of one change in microseconds, for a set and for a pool."""
    cases = _cases(setting.size)
    return {kind: _change_us(*cases[f"{kind}, nothing to do"](), setting.size) for kind in ("set", "pool")}


def _change_us(rules: Any, owner: Any, vmis: Store[VirtualMachineInstance], size: int) -> float:
    key = owner.metadata.key

    def reconcile(vmi: VirtualMachineInstance) -> None:
        vmis.apply(vmi)
        snapshot = rules.take_snapshot(key, now=NOW, settled=True)
        rules.plan(snapshot)
        rules.next_status(snapshot, ())

    changed = vmis.values()[:: max(size // SAMPLED, 1)][:SAMPLED]
    reconcile(changed[0])
    times = []
    for number in range(ROUNDS):
        for vmi in changed:
            # One VMI at a time is not ready.
            new = _with_readiness(vmi, "False" if number % 2 == 0 else "True", version=10**7 + number)
            old = _with_readiness(vmi, "True", version=2 * 10**7 + number)
            times += [_seconds(lambda each=each: reconcile(each)) for each in (new, old)]  # type: ignore[misc]
    return median(times) * 1e6


def _with_readiness(vmi: VirtualMachineInstance, ready: str, *, version: int) -> VirtualMachineInstance:
    """Return a later state of the VMI. As a kubelet does, it gives a reason if the VMI is not ready."""
    assert vmi.status is not None
    reason = "ContainersNotReady" if ready == "False" else None
    conditions = tuple(
        replace(each, status=ready, reason=reason) if each.type == "Ready" else each
        for each in vmi.status.conditions or ()
    )
    metadata = replace(vmi.metadata, resource_version=str(version))
    return replace(vmi, metadata=metadata, status=replace(vmi.status, conditions=conditions))


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


PLANNING = Case(
    name="planning",
    title="Planning of one very large object",
    about=(
        "The longest step of one reconciliation of a set or pool with N members, in CPU time. With 1,000 members or "
        "more, vmherd plans in another thread, and the event loop continues. Before the first snapshot after each new "
        "list, it reads all members in slices, and the event loop continues after each slice."
    ),
    unit_of_size="members",
    sizes=(10_000, 100_000),
    measures=tuple(Measure(name, name, "ms", About.CPU, target=LONGEST_STALL_MS, digits=1) for name in _cases(0)),
    run=measure_planning,
)
CHANGES = Case(
    name="changes",
    title="One change in a set or pool",
    about="One VMI becomes ready or not ready: the change of the cache, the snapshot, the plan and the status.",
    unit_of_size="members",
    sizes=(10, 1_000, 10_000, 100_000),
    measures=tuple(
        Measure(kind, f"CPU for one change in a {kind}", "us", About.CPU, digits=0) for kind in ("set", "pool")
    ),
    run=measure_changes,
)
