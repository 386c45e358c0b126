"""Which pools a change concerns, and how soon (P19).

VMs wake their pool, and the pool that made them while our finalizer holds them. VMIs wake the pool of the VM that
started them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
from controller.kubevirt.conditions import without_failure
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
from controller.runtime.triggers import Wake, itself, wakes_of
from informers.meta import ObjectKey, ObjectMeta, annotations_of, controller_of, labels_of
from informers.store import Change, StoreView

STEERING: Final = (PARTITION, PARTITION_REVISION, MIN_READY, MAX_UNHEALTHY, PROGRESS_DEADLINE, HEALED, TAKEOVER)


def pools_of_vm(change: Change[VirtualMachine]) -> Iterable[Wake]:
    """The pools to look at because a VM changed."""
    return wakes_of(change, _pools_of, decides_by=_decides_by, counts_by=_counts_by)


def pools_of_vmi(change: Change[VirtualMachineInstance], vms: StoreView[VirtualMachine]) -> Iterable[Wake]:
    """The pool whose VM started this VMI, when its readiness or its revision changed, or it came or went."""

    def pools(vmi: VirtualMachineInstance) -> Iterable[ObjectKey]:
        vm = vms.get(vmi.metadata.key)
        return () if vm is None else _pools_of(vm)

    return wakes_of(change, pools, counts_by=_rolls_by)


def pools_of_revision(change: Change[ControllerRevision]) -> Iterable[Wake]:
    """The pool that a revision belongs to, and the one that it was taken from."""
    return wakes_of(change, lambda revision: _owner_key(revision.metadata), decides_by=_keeps)


def pools_of_pool(change: Change[Pool]) -> Iterable[Wake]:
    """The pool itself, if a plan reads what changed, or if its status changed: others may have overwritten ours."""
    return wakes_of(change, itself, decides_by=_asks_for, counts_by=lambda owner: without_failure(owner.status))


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
