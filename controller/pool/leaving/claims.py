"""Plans for the release of members, and for the removal of the pool finalizer from VMs (P2, P6, P9, P10).

A *member* is a VM that the pool controls. There are three cases:

1. A member is released if its labels no longer match the selector. One patch removes the pool's owner reference, the
   pool finalizer and what vmherd has noted on the VM.
2. A stray is a former member without the pool's owner reference. A stray loses the pool finalizer and the notes.
3. A terminating member loses the pool finalizer. If the pool keeps the VM's disks, the disks first lose their owner
   reference to the VM. The finalizer keeps the VM until then, so that the garbage collector does not delete the disks.

If the write for one VM fails, the plan continues with the other VMs.

A member that stays needs the finalizer only if the pool keeps the VM's disks. The finalizer then gives the controller
time to keep the disks of a deleted VM. Otherwise the VM has no finalizer, so one DELETE removes the VM. A new VM gets
the right finalizers at its creation. If a user changes `statePreservation`, existing VMs have the wrong finalizers. So
do the VMs of a pool that vmherd takes over from KubeVirt. Each reconciliation corrects at most `burst` VMs.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.finalizers import Path, owner_and_finalizer_removal_patch
from controller.kubevirt.annotations import IN_SERVICE, POOL_FINALIZER, own_notes
from controller.kubevirt.busy import is_claimed
from controller.kubevirt.resources import VMS
from controller.kubevirt.standby import has_standby_mark, is_beside
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting as is_ending
from controller.kubevirt.vms import has_pool_finalizer, is_deleting, template_labels_of
from controller.pool.leaving.disks import (
    add_finalizers,
    hides_disks,
    is_safe_to_delete,
    owner_removals,
    remove_finalizer,
    remove_needless_finalizers,
)
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.intent import Intent
from controller.replicas.draining import is_draining, unmark_vmi
from controller.replicas.releases import Releases, choose_releases
from controller.runtime.actions import Create, Patch, Plan, Stage, stage_of, waiting
from controller.runtime.members.groups import by_name, one_by_one
from informers.meta import controller_of, labels_of
from informers.objects import PatchType


class Claims(Struct, frozen=True):
    """The VMs of a pool in five groups.

    `kept` VMs stay in the pool. `released` VMs leave the pool now. The release of `young` VMs waits (see
    `replicas.releases`). Users have taken the `claimed` VMs (P33). The `standby` VMs wait beside the wanted ones
    (P32). No rule counts the last two groups.
    """

    kept: Machines
    releases: Releases[Machine] = Releases()
    young: Machines = Machines()
    claimed: Machines = Machines()
    standby: Machines = Machines()

    @property
    def released(self) -> tuple[Machine, ...]:
        return self.releases.now

    @property
    def placed(self) -> Machines:
        """The young VMs that take the places of wanted VMs: all but the standbys."""
        return self.young.where(lambda each: not has_standby_mark(each.metadata))


def choose_claims(snapshot: Snapshot, intent: Intent) -> Claims:
    """A VM stays if the selector matches its labels. A terminating VM is never released: it leaves the pool anyway."""

    def stays(machine: Machine) -> bool:
        return is_deleting(machine.vm) or intent.selector.matches(labels_of(machine.metadata))

    everyone = snapshot.members.where(stays)
    beside = everyone.where(lambda each: is_beside(each.vm, each.vmi, snapshot.now))
    kept = everyone.where(lambda each: not is_beside(each.vm, each.vmi, snapshot.now)) if beside else everyone
    claimed = beside.where(lambda each: is_claimed(each.metadata))
    standby = beside.where(lambda each: not is_claimed(each.metadata))
    if len(everyone) == len(snapshot.members):
        return Claims(kept, claimed=claimed, standby=standby)
    strange = snapshot.members.where(lambda each: not stays(each))
    releases = choose_releases(snapshot.owner.metadata, strange, kept, intent.replicas, snapshot.now, beside=beside)
    return Claims(kept, releases, one_by_one(releases.held), claimed, standby)


def plan_releases(
    snapshot: Snapshot, released: Iterable[Machine], *, why: str = "its labels do not match the selector any more"
) -> Plan:
    """Plan patches that remove the pool's owner reference and finalizer from at most `burst` of these VMs, with the
    notes of vmherd (P2).
    """
    return Plan(stages=_departures(released, snapshot.limits.burst, why, owner_uid=snapshot.owner.metadata.uid))


def _departures(
    machines: Iterable[Machine], burst: int, why: str, *, owner_uid: str = "", finalizer: str = POOL_FINALIZER
) -> tuple[Stage, ...]:
    """Return stages that let these VMs go. If a VMI has the mark of a drain, or is out of service as a standby, this
    ends first. Its VM keeps its notes until then, so it is a stray that the next reconciliation finds. The template of
    a standby gets the label before its VMI, because KubeVirt may copy it.
    """
    leaving = tuple(machines)[:burst]
    marked = {
        each.metadata.uid: vmi
        for each in leaving
        if (vmi := each.vmi) is not None
        and not is_ending(vmi)
        and (is_draining(vmi.metadata) or _is_hidden(each.vm, vmi))
    }
    patches = []
    for vm in (each.vm for each in leaving):
        meta, changes = vm.metadata, _without_notes(vm)
        if meta.uid in marked:
            changes = {path: each for path, each in changes.items() if has_standby_mark(meta) and "labels" in path}
            if changes:
                del marked[meta.uid]
        if owner_uid or changes or finalizer in (meta.finalizers or ()):
            body = owner_and_finalizer_removal_patch(meta, finalizer, owner_uid, changes)
            patches.append(Patch(resource=VMS, key=meta.key, uid=meta.uid, body=body, type=PatchType.JSON, why=why))
    return (*stage_of(map(unmark_vmi, marked.values())), *stage_of(patches))


def _is_hidden(vm: VirtualMachine, vmi: VirtualMachineInstance) -> bool:
    return has_standby_mark(vm.metadata) and labels_of(vmi.metadata).get(IN_SERVICE) == "false"


def _without_notes(vm: VirtualMachine) -> dict[Path, str | None]:
    changes: dict[Path, str | None] = {("metadata", "annotations", each): None for each in own_notes(vm.metadata)}
    is_out = is_draining(vm.metadata) or has_standby_mark(vm.metadata)
    if is_out and template_labels_of(vm).get(IN_SERVICE) == "false":
        changes["spec", "template", "metadata", "labels", IN_SERVICE] = "true"
    return changes


def plan_finalizer_removals(snapshot: Snapshot) -> Plan:
    """Plan the removal of the pool finalizer from terminating VMs and from VMs that no longer belong to the pool."""
    terminating = snapshot.members.where(lambda each: is_deleting(each.vm) and has_pool_finalizer(each.vm))
    stages = remove_finalizers(snapshot, [each.vm for each in by_name(terminating)]) if snapshot.settled else ()
    return Plan(stages=stages)


def remove_finalizers(snapshot: Snapshot, leaving: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """Return stages that remove the pool finalizer from these VMs, and the finalizer and the notes from VMs that no
    longer belong to the pool, at most `burst` of each group.

    If the pool keeps disks, those of a terminating stray are kept too: a user may have deleted it before it left.
    """
    strays, burst, why = by_name(snapshot.strays), snapshot.limits.burst, "it is not a member of the pool any more"
    terminating = (each.vm for each in strays if is_deleting(each.vm))
    alive = (each for each in strays if not is_deleting(each.vm))
    of_strays = (*_remove_finalizers(snapshot, terminating, why), *_departures(alive, burst, why))
    return (*_remove_finalizers(snapshot, leaving, "it leaves the pool"), *of_strays)


def _remove_finalizers(snapshot: Snapshot, vms: Iterable[VirtualMachine], why: str) -> tuple[Stage, ...]:
    """If the pool keeps disks, the first stage removes the owner references from the disks of the terminating VMs. A VM
    that `hides_disks` then keeps its finalizer.
    """
    keeps_disks, with_finalizer = snapshot.keeps_disks, (vm for vm in vms if has_pool_finalizer(vm))
    batch = [vm for vm in with_finalizer if not (keeps_disks and hides_disks(vm))][: snapshot.limits.burst]
    return (
        *stage_of(owner_removals(batch, snapshot) if keeps_disks else ()),
        *stage_of(remove_finalizer(VMS, vm.metadata, why) for vm in batch),
    )


def plan_strays(strays: Iterable[Machine], *, burst: int) -> Plan:
    """Plan the removal of the pool finalizer from terminating strays whose pool no longer exists, and of the notes from
    the others. The disks are kept.

    A pool disappears before its VMs if a user removes the pool's finalizer by force. The pool's `statePreservation` is
    then unknown. Kept disks are the safe choice, because a user can delete them later. One reconciliation changes at
    most `burst` VMs.
    """
    why, ordered = "its pool does not exist any more", by_name(strays)
    terminating = (each.vm for each in ordered if is_deleting(each.vm) and has_pool_finalizer(each.vm))
    batch = [vm for vm in terminating if not hides_disks(vm)][:burst]
    alive = (each for each in ordered if not is_deleting(each.vm) and controller_of(each.metadata) is None)
    removals = stage_of(remove_finalizer(VMS, vm.metadata, why) for vm in batch)
    departures = _departures(alive, burst, why, finalizer="")
    return Plan(stages=(*stage_of(owner_removals(batch)), *removals, *departures))


def plan_member_finalizers(
    snapshot: Snapshot, members: Machines, *, may_remove: bool, others: Iterable[Plan] = ()
) -> Plan:
    """Plan the missing finalizers, or the removal of finalizers that are not needed, if `may_remove`. VMs that the
    `others` change or delete, the other parts of the plan, are left to a later reconciliation.
    """
    keeps_disks = snapshot.keeps_disks
    with_finalizer = members.where(lambda each: not is_deleting(each.vm) and has_pool_finalizer(each.vm))
    wrong = list(lacking_finalizer(snapshot, members) if keeps_disks else with_finalizer if may_remove else ())
    if not wrong or not snapshot.settled:
        return Plan()
    actions = (action for part in others for action in part.actions if not isinstance(action, Create))
    written = {action.key for action in actions if action.resource is VMS}
    free = by_name(each.vm for each in wrong if each.metadata.key not in written)
    batch = free[: snapshot.limits.burst]
    held = f"{len(free) - len(batch)} more finalizers wait for the next pass" if len(batch) < len(free) else ""
    stages = add_finalizers(batch) if keeps_disks else remove_needless_finalizers(batch)
    return replace(waiting(held), stages=stages)


def lacking_finalizer(snapshot: Snapshot, members: Machines) -> Iterator[Machine]:
    """Yield the members that need the finalizer if the pool keeps disks, and do not have it."""
    without = members.where(lambda each: not is_deleting(each.vm) and not has_pool_finalizer(each.vm))
    return (each for each in without if not is_safe_to_delete(snapshot, each.vm))
