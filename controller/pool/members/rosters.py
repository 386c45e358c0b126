"""The rosters of large pools, with their members in groups, and the unready periods of all pools."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controller.apimachinery.indexes import OWNER_UID, owned_by
from controller.kubevirt.annotations import STANDBY_STATE, standby_mark
from controller.kubevirt.standby import TAKEN, lost_mark, note_of
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.machine import Machine, Machines, own_vmi
from controller.pool.members.traits import erase
from controller.pool.members.unready_periods import (
    Observation,
    UnreadyNote,
    UnreadyPeriod,
    due_at,
    next_period,
    read_notes,
)
from controller.pool.spec.intent import asks_for_standbys
from controller.pool.spec.naming import name_of
from controller.runtime.execute.written import Noted
from controller.runtime.members.rosters import Rosters
from informers.meta import ObjectKey, ObjectMeta, annotations_of, controller_of, is_controlled_by
from informers.store import StoreView


class Downtimes:
    """The unready periods of the VMs of one pool, by name.

    `periods` also has the periods of VMs that were deleted less than `ABSENCE` ago. `due` has the times at which the
    periods end if their VMs do not change. `notes` are the entries of the pool's annotation at the last reading.
    """

    def __init__(self, periods: Mapping[str, UnreadyPeriod] | None = None) -> None:
        self.periods = dict(periods or {})
        self.due: dict[str, datetime] = {}
        self.notes: Mapping[str, UnreadyNote] = {}

    def put(self, name: str, period: UnreadyPeriod | None, now: datetime) -> None:
        self.periods.pop(name, None)
        self.due.pop(name, None)
        if period is not None:
            self.periods[name] = period
            due = due_at(period)
            if due is not None and due > now:
                self.due[name] = due


class PoolReader:
    """Reads the VMs of one pool with their VMIs, and brings their unready periods up to date in `downtimes`."""

    def __init__(
        self,
        vms: StoreView[VirtualMachine],
        vmis: StoreView[VirtualMachineInstance],
        pool: ObjectMeta,
        downtimes: Downtimes,
        now: datetime,
        *,
        marks: Mapping[ObjectKey, Noted],
    ) -> None:
        self.downtimes = downtimes
        self._vms, self._vmis, self._pool, self._marks, self._now = vms, vmis, pool, marks, now
        self._notes = {name_of(pool.name, ordinal): note for ordinal, note in read_notes(pool, now).items()}
        self._has_standbys = asks_for_standbys(pool)

    def size(self) -> int:
        return len(self._vms.by_index(OWNER_UID, self._pool.uid))

    def names(self) -> Iterable[str]:
        return {*(vm.metadata.name for vm in owned_by(self._pool, self._vms)), *self.downtimes.periods}

    def load(self) -> list[Machine]:
        machines = list(map(self._machine_of, owned_by(self._pool, self._vms)))
        for name in self.downtimes.periods.keys() - {each.metadata.name for each in machines}:
            self._observe(name, None)
        return machines

    def read(self, name: str) -> Machine | None:
        vm = self._vms.get(ObjectKey(self._pool.namespace, name))
        if vm is not None and is_controlled_by(vm.metadata, self._pool.uid):
            return self._machine_of(vm)
        self._observe(name, None)
        return None

    def due_names(self) -> list[str]:
        """Return the VMs whose unready period may change, although neither the VM nor its VMI has changed."""
        downtimes = self.downtimes
        names = [name for name, at in downtimes.due.items() if at <= self._now]
        if downtimes.notes != self._notes:
            names += [*downtimes.notes, *self._notes]
            downtimes.notes = self._notes
        return names

    def _machine_of(self, vm: VirtualMachine) -> Machine:
        name, vmi = vm.metadata.name, own_vmi(vm, self._vmis)
        vm = self._with_mark(vm, vmi) if self._marks or self._has_standbys else vm
        period = self._observe(name, Observation(vm, vmi, self._notes.get(name)))
        # A VM that is being deleted keeps the period of its name. That period may belong to an earlier VM.
        is_own = period is not None and period.uid == vm.metadata.uid and period.gone_since is None
        return Machine(vm, vmi, period if is_own else None)

    def _with_mark(self, vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> VirtualMachine:
        """Return a standby with the mark that this process has written, or that its state tells. Without it, it would
        be surplus (P32).
        """
        meta, noted = vm.metadata, self._marks.get(vm.metadata.key)
        if standby_mark(meta):
            return vm
        note = {STANDBY_STATE: noted.note} if noted is not None and noted.uid == meta.uid else {}
        if not note and self._has_standbys and (mark := lost_mark(vm, vmi)):
            note = note_of(mark, meta.name)
        notes = {**annotations_of(meta), **note, TAKEN: ""}
        return replace(vm, metadata=replace(meta, annotations=notes)) if note else vm

    def _observe(self, name: str, seen: Observation | None) -> UnreadyPeriod | None:
        period = next_period(self.downtimes.periods.get(name), seen, self._now)
        self.downtimes.put(name, period, self._now)
        return period


class PoolRosters:
    """Keeps the members of each large pool, and the unready periods of all pools.

    The caches tell this object about each change. The unready periods survive a new list of the caches. `downtimes`
    are the unready periods that are known at the start, by pool.
    """

    def __init__(
        self,
        vms: StoreView[VirtualMachine],
        vmis: StoreView[VirtualMachineInstance],
        downtimes: dict[ObjectKey, Downtimes] | None = None,
    ) -> None:
        self._vms, self._vmis = vms, vmis
        self._rosters: Rosters[Machine] = Rosters(erase)
        self._downtimes = {} if downtimes is None else downtimes
        vms.follow(self)
        vmis.follow(self)

    def __len__(self) -> int:
        return len(self._downtimes)

    def prepare(self, pool: ObjectMeta, now: datetime, marks: Mapping[ObjectKey, Noted]) -> Iterator[None]:
        """Read the members of a very large pool in slices (see `Rosters.prepare`)."""
        reader = self._reader(pool, now, marks)
        for _ in self._rosters.prepare(pool, reader):
            self._downtimes[pool.key] = reader.downtimes
            yield

    def read(self, pool: ObjectMeta, now: datetime, marks: Mapping[ObjectKey, Noted]) -> Machines:
        reader = self._reader(pool, now, marks)
        members = self._rosters.read(pool, reader)
        if reader.downtimes.periods or pool.uid in self._rosters:
            self._downtimes[pool.key] = reader.downtimes
        else:
            self._downtimes.pop(pool.key, None)
        return members

    def changed(self, old: Any, new: Any) -> None:
        for each in (old, new):
            vm = each if isinstance(each, VirtualMachine) else each and self._vms.get(each.metadata.key)
            owner = controller_of(vm.metadata) if vm is not None else None
            if vm is not None and owner is not None:
                self._rosters.change(owner.uid, vm.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()

    def forget(self, key: ObjectKey) -> None:
        self._rosters.forget(key)
        self._downtimes.pop(key, None)

    def _reader(self, pool: ObjectMeta, now: datetime, marks: Mapping[ObjectKey, Noted]) -> PoolReader:
        downtimes = self._downtimes.get(pool.key) or Downtimes()
        reader = PoolReader(self._vms, self._vmis, pool, downtimes, now, marks=marks)
        for name in reader.due_names():
            self._rosters.change(pool.uid, name)
        return reader
