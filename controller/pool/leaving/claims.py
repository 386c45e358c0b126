"""Plans for the release of members, and for the removal of the pool finalizer from VMs (P2, P6, P9, P10).

A *member* is a VM that the pool controls. There are three cases:

1. A member is released if its labels no longer match the selector. One patch removes the pool's owner reference and the
   pool finalizer from the VM.
2. A stray is a former member without the pool's owner reference. A stray loses the pool finalizer.
3. A terminating member loses the pool finalizer. If the pool keeps the VM's disks, the disks first lose their owner
   reference to the VM. The finalizer keeps the VM until then, so that the garbage collector does not delete the disks.

If the write for one VM fails, the plan continues with the other VMs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from controller.apimachinery.finalizers import owner_and_finalizer_removal_patch, removal_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer, is_deleting
from controller.pool.leaving.disks import hides_disks, owner_removals, owner_removals_by_spec
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.intent import Intent
from controller.replicas.release_delay import split_by_age
from controller.runtime.actions import Patch, Plan, Stage
from controller.runtime.members.groups import Member, grouped
from informers.meta import labels_of
from informers.objects import PatchType

T = TypeVar("T", bound=Member)


class Claims(Struct, frozen=True):
    """The VMs of a pool in three groups.

    `kept` VMs stay in the pool. `released` VMs leave the pool now. The release of `held` VMs waits, because these VMs
    were created only a short time ago.
    """

    kept: Machines
    released: tuple[VirtualMachine, ...]
    held: Machines = Machines()


def choose_claims(snapshot: Snapshot, intent: Intent) -> Claims:
    """Separate the pool's VMs into kept and released VMs.

    A VM is kept if the selector matches its labels. A terminating VM is never released, because it leaves the pool
    anyway.
    """

    def stays(machine: Machine) -> bool:
        return is_deleting(machine.vm) or intent.selector.matches(labels_of(machine.metadata))

    kept = snapshot.members.where(stays)
    if len(kept) == len(snapshot.members):
        return Claims(kept, ())
    released, held = split_by_age(snapshot.members.where(lambda each: not stays(each)), snapshot.now)
    return Claims(kept, tuple(each.vm for each in released), grouped(held, lambda each: each.metadata.name))


def plan_releases(
    snapshot: Snapshot,
    released: Iterable[VirtualMachine],
    *,
    why: str = "its labels do not match the selector any more",
) -> Plan:
    """Plan patches that remove the pool's owner reference and finalizer from the VMs in `released` (P2).

    One reconciliation releases at most `burst` VMs.
    """
    owner_uid = snapshot.owner.metadata.uid
    patches = tuple(
        Patch(
            resource=VMS,
            key=vm.metadata.key,
            body=owner_and_finalizer_removal_patch(vm.metadata, POOL_FINALIZER, owner_uid),
            type=PatchType.JSON,
            why=why,
        )
        for vm in tuple(released)[: snapshot.limits.burst]
    )
    return Plan(stages=(Stage(patches, essential=False),) if patches else ())


def plan_finalizer_removals(snapshot: Snapshot, *, preserve: bool) -> Plan:
    """Plan the removal of the pool finalizer from terminating VMs and from VMs that no longer belong to the pool.

    One reconciliation changes at most `burst` VMs of each group. With `preserve`, the disks of terminating VMs are
    kept.
    """
    terminating = snapshot.members.where(lambda each: is_deleting(each.vm) and has_pool_finalizer(each.vm))
    leaving = [each.vm for each in by_name(terminating)]
    of_members = remove_finalizers_of_leaving(snapshot, leaving, preserve=preserve)
    return Plan(stages=(*of_members, *remove_finalizers_of_strays(snapshot, preserve=preserve)))


def remove_finalizers_of_leaving(
    snapshot: Snapshot, vms: Iterable[VirtualMachine], *, preserve: bool, why: str = "it leaves the pool"
) -> tuple[Stage, ...]:
    """Return stages that remove the pool finalizer from at most `burst` of these VMs.

    With `preserve`, the first stage removes the owner references from the disks of the terminating VMs. A VM that
    `hides_disks` keeps its finalizer.
    """
    batch = [vm for vm in vms if not (preserve and hides_disks(vm))][: snapshot.limits.burst]
    keep_disks = Stage(owner_removals(snapshot, batch) if preserve else (), essential=False)
    removals = Stage(tuple(_removal(vm, why) for vm in batch), essential=False)
    return tuple(stage for stage in (keep_disks, removals) if stage.actions)


def remove_finalizers_of_strays(snapshot: Snapshot, *, preserve: bool) -> tuple[Stage, ...]:
    """Return stages that remove the pool finalizer from at most `burst` VMs that no longer belong to the pool.

    With `preserve`, the disks of terminating VMs are kept too. The reason: a user may have deleted such a VM while the
    VM still belonged to the pool.
    """
    return remove_finalizers_of_leaving(
        snapshot, by_name(snapshot.strays), preserve=preserve, why="it is not a member of the pool any more"
    )


def plan_orphaned(vms: Iterable[VirtualMachine], *, burst: int) -> Plan:
    """Plan the removal of the pool finalizer from terminating VMs whose pool no longer exists. The disks are kept.

    A pool disappears before its VMs if a user removes the pool's finalizer by force. The pool's `statePreservation` is
    then unknown. Kept disks are the safe choice, because a user can delete them later. One reconciliation changes at
    most `burst` VMs.
    """
    batch = [vm for vm in by_name(vms) if is_deleting(vm) and not hides_disks(vm)][:burst]
    keep_disks = Stage(owner_removals_by_spec(batch), essential=False)
    removals = Stage(tuple(_removal(vm, "its pool does not exist any more") for vm in batch), essential=False)
    return Plan(stages=tuple(stage for stage in (keep_disks, removals) if stage.actions))


def by_name(members: Iterable[T]) -> list[T]:
    return sorted(members, key=lambda each: each.metadata.name)


def _removal(vm: VirtualMachine, why: str) -> Patch:
    return Patch(
        resource=VMS,
        key=vm.metadata.key,
        body=removal_patch(vm.metadata, POOL_FINALIZER),
        type=PatchType.JSON,
        why=why,
        after_owner=vm.metadata.uid,
        uid=vm.metadata.uid,
        finalizer=POOL_FINALIZER,
    )
