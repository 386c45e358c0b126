"""The rosters of large pools: their VMs in groups, and the VMIs of these VMs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from controller.apimachinery.indexes import OWNER_UID
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.traits import VMs, traits_of
from controller.runtime.members import grouped
from controller.runtime.rosters import Rosters
from controller.runtime.shards import ShardedMap
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.store import StoreView

VMIs = Mapping[str, VirtualMachineInstance]


def own_vmi(vm: VirtualMachine, vmis: StoreView[VirtualMachineInstance]) -> VirtualMachineInstance | None:
    """Return the VMI that this VM controls, or None if the VM controls no VMI.

    A VMI with the VM's name can belong to another owner, or to an earlier VM with the same name.
    """
    vmi = vmis.get(vm.metadata.key)
    owner = controller_of(vmi.metadata) if vmi is not None else None
    return vmi if owner is not None and owner.uid == vm.metadata.uid else None


class MemberCaches(NamedTuple):
    """The caches of VMs and VMIs."""

    vms: StoreView[VirtualMachine]
    vmis: StoreView[VirtualMachineInstance]

    def all_of(self, owner: ObjectMeta) -> tuple[VirtualMachine, ...]:
        """Return the VMs that the pool controls."""
        # Owner references across namespaces are invalid in Kubernetes. Otherwise a user could add VMs to a pool in
        # another namespace.
        return tuple(vm for vm in self.vms.by_index(OWNER_UID, owner.uid) if vm.metadata.namespace == owner.namespace)

    def one_of(self, owner: ObjectMeta, name: str) -> VirtualMachine | None:
        """Return the VM with this name, or None if the pool controls no such VM."""
        vm = self.vms.get(ObjectKey(owner.namespace, name))
        controller = controller_of(vm.metadata) if vm is not None else None
        return vm if controller is not None and controller.uid == owner.uid else None

    def vmi_of(self, vm: VirtualMachine) -> VirtualMachineInstance | None:
        return own_vmi(vm, self.vmis)

    def read(self, owner: ObjectMeta) -> tuple[VMs, VMIs]:
        """Return the VMs of the pool in groups, and their VMIs by name."""
        vms = self.all_of(owner)
        found = {vm.metadata.name: vmi for vm in vms if (vmi := self.vmi_of(vm)) is not None}
        return grouped(vms, lambda vm: traits_of(vm, found.get(vm.metadata.name))), found


class PoolRosters:
    """Keeps the VMs and VMIs of each large pool. The caches tell this object about each change."""

    def __init__(self, vms: StoreView[VirtualMachine], vmis: StoreView[VirtualMachineInstance]) -> None:
        self._caches = MemberCaches(vms, vmis)
        self._rosters = Rosters(
            load=self._caches.all_of,
            read=self._caches.one_of,
            size=lambda owner: len(vms.by_index(OWNER_UID, owner.uid)),
            name_of=lambda vm: vm.metadata.name,
            traits_of=lambda vm: traits_of(vm, self._caches.vmi_of(vm)),
        )
        self._vmis: dict[ObjectKey, ShardedMap[VirtualMachineInstance]] = {}
        """The VMIs of each pool with a roster."""
        vms.follow(self)
        vmis.follow(self)

    def prepare(self, owner: ObjectMeta) -> Iterator[None]:
        """Read the members of a very large pool in slices (see `Rosters.prepare`)."""
        if owner.uid not in self._rosters:
            self._vmis.pop(owner.key, None)
        for names in self._rosters.prepare(owner):
            known = self._vmis.get(owner.key, ShardedMap())
            self._vmis[owner.key] = known.changed({name: self._vmi_of(owner, name) for name in names})
            yield

    def read(self, owner: ObjectMeta) -> tuple[VMs, VMIs]:
        """Return the VMs of the pool in groups, and their VMIs by name."""
        members, changed = self._rosters.read(owner)
        known = self._vmis.get(owner.key)
        if owner.uid not in self._rosters:
            self._vmis.pop(owner.key, None)
            return members, dict(self._pairs(members))
        if changed is None or known is None:
            found = ShardedMap(self._pairs(members))
        else:
            found = known.changed({name: self._vmi_of(owner, name) for name in changed})
        self._vmis[owner.key] = found
        return members, found

    def changed(self, old: Any, new: Any) -> None:
        for each in (old, new):
            vm = each if isinstance(each, VirtualMachine) else each and self._caches.vms.get(each.metadata.key)
            owner = controller_of(vm.metadata) if vm is not None else None
            if vm is not None and owner is not None:
                self._rosters.change(owner.uid, vm.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()
        self._vmis.clear()

    def forget(self, key: ObjectKey) -> None:
        """Remove the roster of a deleted pool."""
        self._rosters.forget(key)
        self._vmis.pop(key, None)

    def _vmi_of(self, owner: ObjectMeta, name: str) -> VirtualMachineInstance | None:
        vm = self._caches.one_of(owner, name)
        return None if vm is None else self._caches.vmi_of(vm)

    def _pairs(self, members: VMs) -> list[tuple[str, VirtualMachineInstance]]:
        return [(vm.metadata.name, vmi) for vm in members if (vmi := self._caches.vmi_of(vm)) is not None]
