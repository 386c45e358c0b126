"""Which pools a change concerns, and how soon (P19). Pure: a change in, keys and delays out.

Three answers, as for replica sets: at once, where the change can call for a write; within `COUNT_DELAY_S`, where it
moves only what the status counts; never, where it alters no decision. VMs wake their pool, and the pool that made them
where our finalizer still holds them. VMIs wake the pool of the VM that started them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from controller.kubevirt import vmis
from controller.kubevirt.annotations import (
    DELETION_COST,
    HEALED,
    MAX_UNHEALTHY,
    MIN_READY,
    PARTITION,
    PARTITION_REVISION,
    PROGRESS_DEADLINE,
    PROTECT,
    REMOVE,
    REVISION_NAME,
    TAKEOVER,
)
from controller.kubevirt.conditions import REPLICA_FAILURE
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    is_deleting,
    is_held,
    printable_status_of,
    ready_condition,
    start_failures_of,
)
from controller.pool.naming import parse_name
from informers.meta import ObjectKey, ObjectMeta, annotations_of, controller_of, labels_of
from informers.store import Added, Change, Removed, StoreView, Updated

Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2
STEERING: Final = (PARTITION, PARTITION_REVISION, MIN_READY, MAX_UNHEALTHY, PROGRESS_DEADLINE, HEALED, TAKEOVER)


def pools_of_vm(change: Change[VirtualMachine]) -> Iterable[Wake]:
    """The pools to look at because a VM changed."""
    match change:
        case Added(new=vm) | Removed(last_known=vm):
            return [(key, 0.0) for key in _pools_of(vm)]
        case Updated(old=old, new=new):
            if _decides_by(old) != _decides_by(new):
                return [(key, 0.0) for key in dict.fromkeys((*_pools_of(old), *_pools_of(new)))]
            if _counts_by(old) != _counts_by(new):
                return [(key, COUNT_DELAY_S) for key in _pools_of(new)]
            return []


def pools_of_vmi(change: Change[VirtualMachineInstance], vms: StoreView[VirtualMachine]) -> Iterable[Wake]:
    """The pool whose VM started this VMI, when its readiness or its revision changed, or it came or went."""
    match change:
        case Added(new=vmi) | Removed(last_known=vmi):
            delay = 0.0
        case Updated(old=old, new=vmi):
            if _rolls_by(old) == _rolls_by(vmi):
                return []
            delay = COUNT_DELAY_S
    vm = vms.get(vmi.metadata.key)
    return [] if vm is None else [(key, delay) for key in _pools_of(vm)]


def pools_of_revision(change: Change[ControllerRevision]) -> Iterable[Wake]:
    """The pool that a revision belongs to, and the one that it was taken from."""
    match change:
        case Added(new=revision) | Removed(last_known=revision):
            return [(key, 0.0) for key in _owner_key(revision.metadata)]
        case Updated(old=old, new=new):
            if _keeps(old) == _keeps(new):
                return []
            return [(key, 0.0) for key in dict.fromkeys((*_owner_key(old.metadata), *_owner_key(new.metadata)))]


def pools_of_pool(change: Change[Pool]) -> Iterable[Wake]:
    """The pool itself, unless nothing that it decides by has changed.

    A changed status wakes it too, a little later: somebody may have overwritten ours. Only a change of nothing but
    `ReplicaFailure` wakes nobody: its message may differ after each failure, and must not cut the backoff short.
    """
    match change:
        case Added(new=owner) | Removed(last_known=owner):
            return [(owner.metadata.key, 0.0)]
        case Updated(old=old, new=new):
            if _asks_for(old) != _asks_for(new):
                return [(new.metadata.key, 0.0)]
            return [(new.metadata.key, COUNT_DELAY_S)] if _reports(old) != _reports(new) else []


def _pools_of(vm: VirtualMachine) -> Iterable[ObjectKey]:
    """The pool that controls it, and the one that its name tells of while our finalizer holds it."""
    keys = list(_owner_key(vm.metadata))
    parsed = parse_name(vm.metadata.name) if is_held(vm) else None
    if parsed is not None:
        keys.append(ObjectKey(vm.metadata.namespace, parsed[0]))
    return dict.fromkeys(keys)


def _owner_key(meta: ObjectMeta) -> Iterable[ObjectKey]:
    owner = controller_of(meta)
    return (ObjectKey(meta.namespace, owner.name),) if owner is not None and owner.kind == POOL_KIND else ()


def _decides_by(vm: VirtualMachine) -> tuple[object, ...]:
    """What can call for a write: whose it is, what holds it, its user's marks, its spec, and whether it fails."""
    meta, annotations = vm.metadata, annotations_of(vm.metadata)
    return (
        is_deleting(vm),
        meta.uid,
        meta.owner_references,
        meta.finalizers,
        labels_of(meta),
        [annotations.get(mark) for mark in (REMOVE, PROTECT, DELETION_COST)],
        vm.spec,
        start_failures_of(vm),
        printable_status_of(vm),
    )


def _counts_by(vm: VirtualMachine) -> tuple[object, ...]:
    """Whether it is ready, and since when it is not: only what is known to be false can last too long (P15)."""
    condition = ready_condition(vm)
    if condition is None:
        return ()
    return (condition.status, condition.last_transition_time if condition.status == "False" else None)


def _rolls_by(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """What a rollout waits for, and which one it is: nothing tells of a VMI that came and went between two lists."""
    ready = vmis.ready_condition(vmi)
    return (
        vmi.metadata.uid,
        vmi.metadata.owner_references,
        vmis.is_ready(vmi),
        ready and ready.last_transition_time,
        vmis.is_deleting(vmi),
        vmis.is_spent(vmi),
        labels_of(vmi.metadata).get(REVISION_NAME),
    )


def _keeps(revision: ControllerRevision) -> tuple[object, ...]:
    """What a plan reads of a revision."""
    meta = revision.metadata
    return (meta.uid, meta.owner_references, meta.deletion_timestamp is None, revision.revision, bytes(revision.data))


def _asks_for(owner: Pool) -> tuple[object, ...]:
    """What a plan reads of a pool. The spec as well as its generation, which not every CRD counts up."""
    meta = owner.metadata
    annotations = annotations_of(meta)
    return (
        meta.uid,
        meta.generation,
        meta.deletion_timestamp is None,
        meta.finalizers,
        [annotations.get(name) for name in STEERING],
        owner.spec,
    )


def _reports(owner: Pool) -> tuple[object, ...]:
    """The status without `ReplicaFailure`."""
    status = owner.status
    if status is None:
        return ()
    others = [condition for condition in status.conditions or () if condition.type != REPLICA_FAILURE]
    return (
        status.replicas,
        status.ready_replicas,
        status.updated_replicas,
        status.observed_generation,
        status.label_selector,
        status.current_revision,
        status.update_revision,
        status.printable_status,
        others,
    )
