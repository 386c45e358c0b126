"""Triggers: the pools that must be reconciled after a change in a cache, and the delay before the reconciliation (P19).

A VM triggers the pool that controls the VM. A VM with the pool finalizer or notes of vmherd also triggers the pool that
created the VM. A VMI triggers the pools of the VM with the same name.
"""

from collections.abc import Iterable

from controller.apimachinery.conditions import find_true
from controller.kubevirt import vmis
from controller.kubevirt.annotations import IN_SERVICE, REVISION_NAME, VM_GENERATION
from controller.kubevirt.busy import BEFORE_ALL, busy_mark
from controller.kubevirt.delicate import delicate_reason, delicate_reason_of_vmi
from controller.kubevirt.live_updates import is_seen, migrations_of, restart_required
from controller.kubevirt.pool_types import POOL_KIND
from controller.kubevirt.problems import problem_state_of_vmi
from controller.kubevirt.vm_types import FAILURE, MANUAL_RECOVERY_REQUIRED, ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import Migration, VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, printable_status_of, ready_condition, start_failures_of
from controller.pool.members.snapshot import former_pool_of
from controller.replicas.catalogue import Place, own_annotations
from controller.replicas.draining import is_draining
from controller.replicas.revisions import former_pool_of_revision
from controller.replicas.triggers import controller_key
from controller.replicas.wrong_annotations import wrong_on
from controller.runtime.triggers import Wake, wakes_of
from informers.meta import ObjectKey, annotations_of, labels_of
from informers.store import Change, StoreView


def pools_of_vm(change: Change[VirtualMachine]) -> Iterable[Wake]:
    return wakes_of(change, _pools_of, decides_by=_decision_fields, counts_by=_count_fields)


def pools_of_vmi(change: Change[VirtualMachineInstance], vms: StoreView[VirtualMachine]) -> Iterable[Wake]:
    """Return the pools of the VM with the VMI's name."""

    def pools(vmi: VirtualMachineInstance) -> Iterable[ObjectKey]:
        vm = vms.get(vmi.metadata.key)
        return () if vm is None else _pools_of(vm)

    return wakes_of(change, pools, counts_by=_rollout_fields)


def pools_of_revision(change: Change[ControllerRevision]) -> Iterable[Wake]:
    """Return the pool that controls the revision, or that of `former_pool_of_revision`, before and after the change."""
    return wakes_of(change, _pools_of_revision, decides_by=_revision_fields)


def pools_of_migration(change: Change[Migration]) -> Iterable[Wake]:
    """Return the pool that has started the migration."""
    return wakes_of(
        change, lambda each: controller_key(each.metadata, POOL_KIND), decides_by=lambda each: each.status.phase
    )


def _pools_of(vm: VirtualMachine) -> Iterable[ObjectKey]:
    """Return the pool that controls the VM, and the pool that created it (see `former_pool_of`)."""
    return dict.fromkeys((*controller_key(vm.metadata, POOL_KIND), *former_pool_of(vm)))


def _pools_of_revision(revision: ControllerRevision) -> Iterable[ObjectKey]:
    return former_pool_of_revision(revision) or controller_key(revision.metadata, POOL_KIND)


def _decision_fields(vm: VirtualMachine) -> tuple[object, ...]:
    """Return the fields of a VM that can affect a plan. A change of these fields starts a reconciliation at once."""
    meta = vm.metadata
    return (
        is_deleting(vm),
        meta.uid,
        meta.owner_references,
        meta.finalizers,
        labels_of(meta),
        own_annotations(meta),
        vm.spec,
        start_failures_of(vm),
        printable_status_of(vm),
        delicate_reason(vm, None, BEFORE_ALL),
        is_seen(vm),
        restart_required(vm) is not None,
        vm.status and vm.status.state_change_requests,
    )


def _count_fields(vm: VirtualMachine) -> tuple[object, ...]:
    """Return the fields of a VM that affect only the status and healing. If only they change, the reconciliation starts
    with a delay. The transition time of Ready matters only while Ready is False: healing measures how long a VM is not
    ready (P15).
    """
    conditions = vm.status.conditions if vm.status is not None else None
    failures = [find_true(conditions, type_) for type_ in (FAILURE, MANUAL_RECOVERY_REQUIRED)]
    told = [(each.reason, each.message) for each in failures if each is not None]
    condition = ready_condition(vm)
    if condition is None:
        return (told,)
    return (told, condition.status, condition.last_transition_time if condition.status == "False" else None)


def _rollout_fields(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """Return the fields of a VMI that a rollout or the status depends on. Only the UID shows that a VMI was deleted and
    created again while the watch was interrupted.
    """
    ready = vmis.ready_condition(vmi)
    return (
        vmi.metadata.uid,
        vmi.metadata.owner_references,
        vmis.is_ready(vmi),
        ready and ready.last_transition_time,
        vmis.is_deleting(vmi),
        vmis.is_spent(vmi),
        vmis.is_running(vmi),
        labels_of(vmi.metadata).get(REVISION_NAME),
        annotations_of(vmi.metadata).get(VM_GENERATION),
        labels_of(vmi.metadata).get(IN_SERVICE),
        is_draining(vmi.metadata),
        delicate_reason_of_vmi(vmi),
        migrations_of(vmi),
        busy_mark(vmi.metadata),
        vmis.must_leave_node(vmi),
        problem_state_of_vmi(vmi),
        wrong_on(vmi.metadata, Place.VMI_OF_VM),
    )


def _revision_fields(revision: ControllerRevision) -> tuple[object, ...]:
    meta = revision.metadata
    return (meta.uid, meta.owner_references, meta.deletion_timestamp is None, revision.revision, bytes(revision.data))
