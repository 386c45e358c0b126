"""Who stays a member, and how VMs that leave are let go, so that they can be deleted (P2, P6, P9, P10).

Three ways out. A member whose labels stopped matching is released: it loses our reference and our finalizer in one
write. A stray has lost the reference already, and loses the finalizer. A member that is being deleted, by whomever,
loses the finalizer after its disks have lost it as their owner, where they are to outlive it. The finalizer is what
keeps the garbage collector from the disks until then, wherever we crash.

One VM that resists holds up nobody else, so none of these writes is essential to what follows.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from controller.apimachinery.finalizers import owner_and_finalizer_removal_patch, removal_patch
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting, is_held
from controller.pool.disks import disowns, disowns_of_left_behind
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Patch, Plan, Stage
from informers.meta import labels_of
from informers.objects import PatchType


class Claims(Struct, frozen=True):
    """Members that stay, and members that go."""

    kept: tuple[VirtualMachine, ...]
    released: tuple[VirtualMachine, ...]


def choose_claims(snapshot: Snapshot, selector: Selector) -> Claims:
    """Sort members by whether the selector wants them. One that is being deleted is on its way out either way."""
    kept: list[VirtualMachine] = []
    released: list[VirtualMachine] = []
    for vm in by_name(snapshot.members):
        stays = is_deleting(vm) or selector.matches(labels_of(vm.metadata))
        (kept if stays else released).append(vm)
    return Claims(tuple(kept), tuple(released))


def plan_releases(snapshot: Snapshot, released: Iterable[VirtualMachine]) -> Plan:
    """Release these members, at most `burst` in a pass (P2)."""
    owner_uid = snapshot.owner.metadata.uid
    patches = tuple(
        Patch(
            resource=VMS,
            key=vm.metadata.key,
            body=owner_and_finalizer_removal_patch(vm.metadata, POOL_FINALIZER, owner_uid),
            type=PatchType.JSON,
            why="its labels no longer match",
        )
        for vm in tuple(released)[: snapshot.limits.burst]
    )
    return Plan(stages=(Stage(patches, essential=False),) if patches else ())


def plan_departures(snapshot: Snapshot, *, preserve: bool) -> Plan:
    """Let go whatever has left or is leaving, at most `burst` of each."""
    leaving = [vm for vm in by_name(snapshot.members) if is_deleting(vm) and is_held(vm)]
    stages = (*let_go(snapshot, leaving, preserve=preserve), *let_strays_go(snapshot, preserve=preserve))
    return Plan(stages=stages)


def let_go(
    snapshot: Snapshot, vms: Iterable[VirtualMachine], *, preserve: bool, why: str = "it leaves the pool"
) -> tuple[Stage, ...]:
    """Take the finalizer off these, at most `burst`, after their disks are safe."""
    going = tuple(vms)[: snapshot.limits.burst]
    rescue = Stage(disowns(snapshot, going) if preserve else (), essential=False)
    farewell = Stage(tuple(_removal(vm, why) for vm in going), essential=False)
    return tuple(stage for stage in (rescue, farewell) if stage.actions)


def let_strays_go(snapshot: Snapshot, *, preserve: bool) -> tuple[Stage, ...]:
    """Take the finalizer off VMs that have left, at most `burst`. Their disks stay theirs.

    One that is being deleted may have been a member when that began: its disks are kept as a member's are.
    """
    return let_go(snapshot, by_name(snapshot.strays), preserve=preserve, why="it has left the pool")


def plan_left_behind(vms: Iterable[VirtualMachine], *, burst: int) -> Plan:
    """Let VMs go that are being deleted, and whose pool is gone: somebody took its finalizer off by force.

    Nobody can tell any more whether their disks were to be kept. So they are: what is kept can still be deleted.
    """
    going = [vm for vm in by_name(vms) if is_deleting(vm)][:burst]
    rescue = Stage(disowns_of_left_behind(going), essential=False)
    farewell = Stage(tuple(_removal(vm, "its pool is gone") for vm in going), essential=False)
    return Plan(stages=tuple(stage for stage in (rescue, farewell) if stage.actions))


def by_name(vms: Iterable[VirtualMachine]) -> list[VirtualMachine]:
    return sorted(vms, key=lambda vm: vm.metadata.name)


def _removal(vm: VirtualMachine, why: str) -> Patch:
    return Patch(
        resource=VMS,
        key=vm.metadata.key,
        body=removal_patch(vm.metadata, POOL_FINALIZER),
        type=PatchType.JSON,
        why=why,
        after_owner=vm.metadata.uid,
    )
