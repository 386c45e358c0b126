"""The pool finalizer on the VMs that stay in the pool (P6, P10).

A VM needs the finalizer only if the pool keeps the VM's disks. The finalizer then gives the controller time to keep
the disks of a deleted VM. Without kept disks, the controller has nothing to do after a deletion. Such a VM has no
finalizer, so one DELETE removes the VM.

A new VM gets the right finalizers at its creation. If a user changes `statePreservation`, existing VMs have the wrong
finalizers. So do the VMs of a pool that vmherd takes over from KubeVirt. Each reconciliation corrects at most `burst`
VMs.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.kubevirt.resources import VMS
from controller.kubevirt.vms import has_pool_finalizer, is_deleting
from controller.pool.leaving.claims import by_name
from controller.pool.leaving.disks import add_finalizers, is_safe_to_delete, remove_needless_finalizers
from controller.pool.members.machine import Machines
from controller.pool.members.snapshot import Snapshot
from controller.runtime.actions import Create, Plan


def plan_member_finalizers(
    snapshot: Snapshot,
    members: Machines,
    *,
    preserve: bool,
    may_remove: bool = True,
    others: Iterable[Plan] = (),
) -> Plan:
    """Plan the missing finalizers, or the removal of finalizers that are not needed.

    `preserve` is True if the pool keeps the disks of deleted VMs. `others` are the other parts of the plan. VMs that
    these parts change or delete are left to a later reconciliation. Without `may_remove`, no finalizer is removed.
    """
    if preserve:
        wrong = members.where(lambda each: not is_deleting(each.vm) and not is_safe_to_delete(snapshot, each.vm))
    else:
        wrong = members.where(lambda each: may_remove and not is_deleting(each.vm) and has_pool_finalizer(each.vm))
    if not wrong:
        return Plan()
    written = {
        action.key
        for part in others
        for action in part.actions
        if action.resource is VMS and not isinstance(action, Create)
    }
    free = by_name(each.vm for each in wrong if each.metadata.key not in written)
    batch = free[: snapshot.limits.burst]
    held = f"{len(free) - len(batch)} more finalizers wait for the next pass" if len(batch) < len(free) else ""
    return Plan(stages=add_finalizers(batch) if preserve else remove_needless_finalizers(batch), held=held)
