"""Who stays a member, and how VMs that leave are let go, so that they can be deleted (P2, P6, P9, P10).

Three ways out. A member whose labels stopped matching is released: it loses our reference and our finalizer in one
write. A stray has lost the reference already, and loses the finalizer. A member that is being deleted, by whomever,
loses the finalizer after its disks have lost it as their owner, where they are to outlive it. The finalizer is what
keeps the garbage collector from the disks until then, wherever we crash.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from controller.kubevirt.finalizers import letting_go_patch, removal_patch
from controller.kubevirt.machine_types import VirtualMachine
from controller.kubevirt.machines import disk_names_of, is_deleting, is_deleting_with_disks, is_held
from controller.kubevirt.markers import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.selectors import Selector
from controller.planning import Disown, Patch, PatchType, Plan, Stage
from controller.pool.snapshot import Snapshot
from informers.meta import ObjectKey, labels_of


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
    """Release these members (P2)."""
    owner_uid = snapshot.owner.metadata.uid
    patches = tuple(
        Patch(
            resource=VMS,
            key=vm.metadata.key,
            body=letting_go_patch(vm.metadata, POOL_FINALIZER, owner_uid),
            type=PatchType.JSON,
            why="its labels no longer match",
        )
        for vm in released
    )
    return Plan(stages=(Stage(patches),) if patches else ())


def plan_departures(snapshot: Snapshot, *, preserve: bool) -> Plan:
    """Let go whatever has left or is leaving, at most `burst` of each. What fails here holds nothing back."""
    leaving = [vm for vm in by_name(snapshot.members) if is_deleting(vm) and is_held(vm)][: snapshot.limits.burst]
    return Plan(stages=(*let_go(leaving, preserve=preserve), *let_strays_go(snapshot)))


def let_go(vms: Iterable[VirtualMachine], *, preserve: bool) -> tuple[Stage, ...]:
    """Take the finalizer off, after the disks are safe. One VM whose disks resist does not hold up the others."""
    disowns: list[Disown] = []
    patches: list[Patch] = []
    for vm in vms:
        if preserve and not is_deleting_with_disks(vm):
            disowns += _disowns(vm)
        patches.append(_removal(vm, "it leaves the pool"))
    stages = (Stage(tuple(disowns), essential=False), Stage(tuple(patches), essential=False))
    return tuple(stage for stage in stages if stage.actions)


def let_strays_go(snapshot: Snapshot) -> tuple[Stage, ...]:
    """Take the finalizer off VMs that have left. Their disks stay theirs."""
    patches = tuple(_removal(vm, "it has left the pool") for vm in by_name(snapshot.strays)[: snapshot.limits.burst])
    return (Stage(patches, essential=False),) if patches else ()


def by_name(vms: Iterable[VirtualMachine]) -> list[VirtualMachine]:
    return sorted(vms, key=lambda vm: vm.metadata.name)


def _disowns(vm: VirtualMachine) -> list[Disown]:
    """A DataVolume and its claim share a name, and either may be the VM's own."""
    return [
        Disown(
            resource=resource,
            key=ObjectKey(vm.metadata.namespace, name),
            owner_uid=vm.metadata.uid,
            why=f"the state of {vm.metadata.name} is kept",
        )
        for name in disk_names_of(vm)
        for resource in (DATA_VOLUMES, PVCS)
    ]


def _removal(vm: VirtualMachine, why: str) -> Patch:
    return Patch(
        resource=VMS,
        key=vm.metadata.key,
        body=removal_patch(vm.metadata, POOL_FINALIZER),
        type=PatchType.JSON,
        why=why,
        after_owner=vm.metadata.uid,
    )
