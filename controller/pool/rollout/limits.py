"""The limits of an update: the number of unavailable VMs, and the partition (P14).

A VM of the pool is unavailable if it should run and is not ready. It is also unavailable until it has been ready for
the minimum time (`Intent.min_ready_s`). Terminating VMs are unavailable too. A VM that a user stopped is not
unavailable.

No reconciliation writes until the cache shows all earlier writes (R9). So the number of unavailable VMs includes the
VMs that the last reconciliation restarted.

The partition is an ordinal. VMs with a lower ordinal keep their revision.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.kubevirt import vmis
from controller.kubevirt.annotations import PARTITION_REVISION
from controller.kubevirt.vms import is_deleting, is_meant_to_run, is_stop_requested, revision_of
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.pool.members.unready_periods import STEADY, down_of, has_ended
from controller.pool.spec.partition import ALL_ORDINALS
from controller.pool.spec.template import Template
from controller.replicas.notes import plan_note
from controller.runtime.actions import Plan
from informers.meta import annotations_of

LONG_AGO: Final = timedelta(seconds=2**31)


class Availability(Struct, frozen=True):
    """The number of unavailable VMs.

    `next_at` is the first time at which a VM with a ready VMI becomes available, or None.
    """

    unavailable: int
    next_at: datetime | None = None


def template_below(situation: Situation) -> tuple[str, Template]:
    """Return the revision and the template for new VMs with an ordinal below the partition.

    They get the revision of the other VMs below the partition, or the current revision if that one is not known or the
    VMs return from it.
    """
    owner, revisions = situation.snapshot.owner, situation.revisions
    noted = annotations_of(owner.metadata).get(PARTITION_REVISION)
    reported = owner.status.current_revision if owner.status is not None else None
    name = _revision_below(situation) or noted or reported or ""
    past = revisions.templates.get(name)
    if past is not None and not (revisions.is_current(name) or situation.is_rejected(name)):
        return name, past
    return revisions.current, revisions.template


def plan_partition_note(situation: Situation) -> Plan:
    """Plan a patch that stores the revision of the VMs below the partition in an annotation of the pool.

    The stored revision is used for new VMs after all VMs below the partition were deleted.
    """
    meta = situation.pool
    name = _revision_below(situation) if situation.target.partition < ALL_ORDINALS else ""
    if name in ("", annotations_of(meta).get(PARTITION_REVISION)):
        return Plan()
    why = "notes the revision of the VMs below the partition"
    return plan_note(situation.snapshot.pools, meta, {PARTITION_REVISION: name}, why)


def _revision_below(situation: Situation) -> str:
    """Return the oldest revision of the VMs below the partition.

    Revisions without a known template are ignored. If no revision is left, the result is "".
    """
    snapshot, partition = situation.snapshot, situation.target.partition
    if not partition:
        return ""
    numbers = {revision.metadata.name: revision.revision for revision in snapshot.revisions}
    known = sorted(situation.revisions.templates.keys() & numbers.keys(), key=lambda name: (numbers[name], name))

    def has_vm_below(name: str) -> bool:
        machines = snapshot.members.where(lambda each: revision_of(each.vm) == name)
        return any((ordinal := snapshot.ordinal_of(each)) is not None and ordinal < partition for each in machines)

    return next((name for name in known if has_vm_below(name) and not situation.is_rejected(name)), "")


def count_unavailable(snapshot: Snapshot, members: Iterable[Machine], min_ready_s: int) -> Availability:
    """Count the pool's VMs that should run and are not available.

    A VM with an unreadable field is not available. It may run, because its run strategy is unknown.

    A VM is available after it has been ready for `min_ready_s` seconds. If the guest crashed soon after the VM became
    ready, the VM must be ready for at least `STEADY`.
    """
    unavailable, next_times = 0, []
    for each in members:
        if not should_run(each) and not each.vm.undecodable:
            continue
        since = _ready_since(each, snapshot.now)
        if since is not None:
            since = min(since, snapshot.now)  # the clock of the node may be ahead
        needed = timedelta(seconds=min_ready_s)
        if _crashes(each, snapshot.now):
            needed = max(needed, STEADY)
        if since is not None and since + needed <= snapshot.now:
            continue
        unavailable += 1
        if since is not None:
            next_times.append(since + needed)
    return Availability(unavailable, min(next_times, default=None))


def _crashes(machine: Machine, now: datetime) -> bool:
    """Return True if the VM's guest crashed soon after the VM became ready.

    The result is False again after the VM has been ready for `STEADY`.
    """
    period = machine.downtime
    return period is not None and down_of(period).crashes and not has_ended(period, now)


def should_run(machine: Machine) -> bool:
    """Return True if the VM should have a running VMI now.

    The result is also True for a VM with the run strategy Once whose VMI was deleted. Its `printableStatus` is
    "Stopped", but KubeVirt starts the VM again.
    """
    vm, vmi = machine.vm, machine.vmi
    if is_meant_to_run(vm):
        return True
    is_once = vm.spec is not None and vm.spec.run_strategy == "Once"
    return is_once and (vmi is None or vmis.is_deleting(vmi))


def _ready_since(machine: Machine, now: datetime) -> datetime | None:
    """Return the time at which the VM's VMI became ready.

    The result is None if the VMI is missing, not ready or terminating. The result is also None if the VM is terminating
    or a restart was requested.
    """
    vm, vmi = machine.vm, machine.vmi
    if vmi is None or is_deleting(vm) or not vmis.is_active(vmi) or is_stop_requested(vm, vmi.metadata.uid):
        return None
    # If the Ready condition has no transition time, the VMI counts as ready for a very long time.
    return vmis.ready_since(vmi) or (now - LONG_AGO if vmis.is_ready(vmi) else None)
