"""The VMs of a pool for users who may not read all objects of the pool."""

from __future__ import annotations

from collections.abc import Iterable

from controller.kubevirt import vmis
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, is_ready, revision_of
from controller.pool.spec.naming import ordinal_of
from plugin.views.pools import PLAIN, marks_of
from plugin.views.problems import problem_of_vm, status_of_vm
from plugin.views.situation import Member, finalizers_of


def visible_members(
    owner: Pool, found: Iterable[tuple[VirtualMachine, VirtualMachineInstance | None]]
) -> tuple[Member, ...]:
    """Return the VMs of a pool. The current revision and the numbers of revisions come from names alone."""
    current = (owner.status.update_revision if owner.status is not None else None) or ""
    members = [(_ordinal(owner, vm), _member(owner, vm, vmi, current)) for vm, vmi in found]
    return tuple(member for _, member in sorted(members, key=lambda each: (each[0], each[1].name)))


def _ordinal(owner: Pool, vm: VirtualMachine) -> int:
    ordinal = ordinal_of(vm.metadata.name, owner.metadata.name)
    return PLAIN if ordinal is None else ordinal


def _member(owner: Pool, vm: VirtualMachine, vmi: VirtualMachineInstance | None, current: str) -> Member:
    revision = revision_of(vm)
    return Member(
        kind="vm",
        name=vm.metadata.name,
        revision=revision.removeprefix(f"{owner.metadata.name}-"),
        status=status_of_vm(vm),
        is_ready=is_ready(vm),
        is_updated=bool(current) and revision == current,
        is_deleting=is_deleting(vm),
        node=vmis.node_of(vmi) if vmi is not None else "",
        created=vm.metadata.creation_timestamp,
        problem=problem_of_vm(vm, vmi),
        finalizers=finalizers_of(vm.metadata),
        note=", ".join(marks_of(vm)),
    )
