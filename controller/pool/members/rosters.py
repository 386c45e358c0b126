"""The rosters of large pools: their VMs in groups, the VMIs of these VMs, and their unready periods."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from controller.apimachinery.indexes import OWNER_UID
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.traits import VMs, traits_of
from controller.pool.members.unready_periods import (
    UnreadyNote,
    UnreadyPeriod,
    next_period,
    period_of_absent,
    read_notes,
)
from controller.pool.spec.naming import name_of
from controller.runtime.members.groups import grouped
from controller.runtime.members.rosters import Rosters
from controller.runtime.members.shards import ShardedMap
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.store import StoreView

V = TypeVar("V")

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


class Reading(NamedTuple):
    """The VMs of a pool in groups, their VMIs by name, and their unready periods by name."""

    members: VMs
    vmis: VMIs
    unready: Mapping[str, UnreadyPeriod]


class _Known:
    """What the rosters remember of a pool: the VMIs and the unready periods of its VMs.

    `due` has the times at which unready periods end if their VMs do not change. `notes` are the entries of the pool's
    annotation at the last reading. Only the unready periods of a small pool are remembered.
    """

    def __init__(self) -> None:
        self.vmis: VMIs = {}
        self.unready: Mapping[str, UnreadyPeriod] = {}
        self.due: dict[str, datetime] = {}
        self.notes: Mapping[str, UnreadyNote] = {}

    def update(self, reader: PoolReader) -> None:
        """Take over what the reader has read, and empty the reader."""
        self.vmis = _sharded(self.vmis).changed(reader.vmis)
        self.unready = reader.before = _sharded(self.unready).changed(reader.unready)
        for name, period in reader.unready.items():
            at = period.due_at if period is not None else None
            if at is not None and at > reader.now:
                self.due[name] = at
            else:
                self.due.pop(name, None)
        reader.vmis, reader.unready = {}, {}


class PoolReader:
    """Reads the VMs of one pool with their VMIs, and computes their unready periods.

    `vmis` and `unready` are the results for the names that were read. `before` has the unready periods of the last
    snapshot.
    """

    def __init__(
        self, caches: MemberCaches, pool: ObjectMeta, before: Mapping[str, UnreadyPeriod], now: datetime
    ) -> None:
        self.now = now
        self.notes = {name_of(pool.name, ordinal): note for ordinal, note in read_notes(pool, now).items()}
        self.vmis: dict[str, VirtualMachineInstance | None] = {}
        self.unready: dict[str, UnreadyPeriod | None] = {}
        self._caches = caches
        self._pool = pool
        self.before = before

    def size(self) -> int:
        return len(self._caches.vms.by_index(OWNER_UID, self._pool.uid))

    def names(self) -> Iterable[str]:
        """Return the names of the VMs, and the names with an unready period."""
        return {*(vm.metadata.name for vm in self._caches.all_of(self._pool)), *self.before}

    def load(self) -> tuple[VirtualMachine, ...]:
        vms = self._caches.all_of(self._pool)
        for vm in vms:
            self._look_at(vm)
        for name in self.before:
            if name not in self.unready:
                self.unready[name] = period_of_absent(self.before[name], self.now)
        return vms

    def read(self, name: str) -> VirtualMachine | None:
        vm = self._caches.one_of(self._pool, name)
        if vm is not None:
            self._look_at(vm)
        else:
            self.vmis[name], self.unready[name] = None, period_of_absent(self.before.get(name), self.now)
        return vm

    def traits_of(self, vm: VirtualMachine) -> Hashable:
        name = vm.metadata.name
        return traits_of(vm, self.vmis[name], self.unready[name])

    def reading(self, members: VMs) -> Reading:
        """Return the results, if all VMs of the pool were read."""
        vmis = {name: vmi for name, vmi in self.vmis.items() if vmi is not None}
        unready = {name: period for name, period in self.unready.items() if period is not None}
        return Reading(members, vmis, unready)

    def _look_at(self, vm: VirtualMachine) -> None:
        name, vmi = vm.metadata.name, self._caches.vmi_of(vm)
        self.vmis[name] = vmi
        self.unready[name] = next_period(self.before.get(name), vm, vmi, self.notes.get(name), self.now)


def read_all(
    caches: MemberCaches, pool: ObjectMeta, unready_before: Mapping[str, UnreadyPeriod], now: datetime
) -> Reading:
    """Read all VMs of the pool."""
    reader = PoolReader(caches, pool, unready_before, now)
    return reader.reading(grouped(reader.load(), reader.traits_of))


class PoolRosters:
    """Keeps the VMs and VMIs of each large pool, and the unready periods of all pools.

    The caches tell this object about each change. The unready periods survive a new list of the caches.
    """

    def __init__(self, vms: StoreView[VirtualMachine], vmis: StoreView[VirtualMachineInstance]) -> None:
        self._caches = MemberCaches(vms, vmis)
        self._rosters: Rosters[VirtualMachine] = Rosters()
        self._known: dict[ObjectKey, _Known] = {}
        vms.follow(self)
        vmis.follow(self)

    def __len__(self) -> int:
        """Return the number of pools with a roster or an unready period."""
        return len(self._known)

    def prepare(self, pool: ObjectMeta, now: datetime) -> Iterator[None]:
        """Read the members of a very large pool in slices (see `Rosters.prepare`)."""
        known = self._known_of(pool)
        reader = PoolReader(self._caches, pool, known.unready, now)
        self._note_due(pool, known, reader)
        for _ in self._rosters.prepare(pool, reader):
            self._known[pool.key] = known
            known.update(reader)
            yield

    def read(self, pool: ObjectMeta, now: datetime) -> Reading:
        """Return the VMs of the pool with their VMIs and unready periods, as the caches show them now."""
        known = self._known_of(pool)
        reader = PoolReader(self._caches, pool, known.unready, now)
        self._note_due(pool, known, reader)
        members = self._rosters.read(pool, reader)
        if pool.uid not in self._rosters:
            return self._remember_small(pool, known, reader.reading(members))
        known.update(reader)
        self._known[pool.key] = known
        return Reading(members, known.vmis, known.unready)

    def changed(self, old: Any, new: Any) -> None:
        for each in (old, new):
            vm = each if isinstance(each, VirtualMachine) else each and self._caches.vms.get(each.metadata.key)
            owner = controller_of(vm.metadata) if vm is not None else None
            if vm is not None and owner is not None:
                self._rosters.change(owner.uid, vm.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()
        for known in self._known.values():
            known.vmis, known.due = {}, {}

    def forget(self, key: ObjectKey) -> None:
        """Remove what is known of a deleted pool."""
        self._rosters.forget(key)
        self._known.pop(key, None)

    def _known_of(self, pool: ObjectMeta) -> _Known:
        known = self._known.get(pool.key) or _Known()
        if pool.uid not in self._rosters:
            # All VMs are read again.
            known.vmis, known.due = {}, {}
        return known

    def _remember_small(self, pool: ObjectMeta, known: _Known, reading: Reading) -> Reading:
        known.unready = reading.unready
        if known.unready:
            self._known[pool.key] = known
        else:
            self._known.pop(pool.key, None)
        return reading

    def _note_due(self, pool: ObjectMeta, known: _Known, reader: PoolReader) -> None:
        """Note the VMs whose unready period may change, although neither the VM nor its VMI has changed."""
        names = [name for name, at in known.due.items() if at <= reader.now]
        if known.notes != reader.notes:
            names += [*known.notes, *reader.notes]
            known.notes = reader.notes
        for name in names:
            self._rosters.change(pool.uid, name)


def _sharded(values: Mapping[str, V]) -> ShardedMap[V]:
    return values if isinstance(values, ShardedMap) else ShardedMap(values.items())
