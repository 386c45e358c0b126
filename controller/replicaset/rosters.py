"""The rosters of large replica sets, with their VMIs in groups."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.indexes import owned_by
from controller.kubevirt.annotations import EARLY_FAILURES
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.snapshot import SET_UID, by_set_uid
from controller.replicaset.traits import VMIs, erase
from controller.runtime.execute.written import Noted
from controller.runtime.members.rosters import Rosters
from informers.meta import ObjectKey, ObjectMeta, annotations_of, controller_of
from informers.store import StoreView

Notes = Mapping[ObjectKey, Noted]


class _Reader(Struct, frozen=True):
    """Reads a VMI with the history of its failures from `notes`: a policy may change it or take it off (R4a)."""

    vmis: StoreView[VirtualMachineInstance]
    owner: ObjectMeta
    notes: Notes

    def size(self) -> int:
        return len(self.vmis.by_index(SET_UID, self.owner.uid))

    def names(self) -> Iterable[str]:
        return (vmi.metadata.name for vmi in self.load())

    def load(self) -> Iterable[VirtualMachineInstance]:
        found = owned_by(self.owner, self.vmis, SET_UID)
        return map(self._with_note, found) if self.notes else found

    def read(self, name: str) -> VirtualMachineInstance | None:
        vmi = self.vmis.get(ObjectKey(self.owner.namespace, name))
        return self._with_note(vmi) if vmi is not None and self.owner.uid in by_set_uid(vmi) else None

    def _with_note(self, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
        meta, noted = vmi.metadata, self.notes.get(vmi.metadata.key) if self.notes else None
        if noted is None:
            return vmi
        return replace(vmi, metadata=replace(meta, annotations={**annotations_of(meta), EARLY_FAILURES: noted.note}))


class VMIRosters:
    def __init__(self, vmis: StoreView[VirtualMachineInstance]) -> None:
        self._vmis = vmis
        self._rosters: Rosters[VirtualMachineInstance] = Rosters(erase)
        vmis.follow(self)

    def prepare(self, owner: ObjectMeta, notes: Notes) -> Iterator[object]:
        return self._rosters.prepare(owner, _Reader(self._vmis, owner, notes))

    def read(self, owner: ObjectMeta, notes: Notes) -> VMIs:
        return self._rosters.read(owner, _Reader(self._vmis, owner, notes))

    def changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        for vmi in (old, new):
            owner = controller_of(vmi.metadata) if vmi is not None else None
            if vmi is not None and owner is not None and owner.kind == REPLICA_SET_KIND:
                self._rosters.change(owner.uid, vmi.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()

    def forget(self, key: ObjectKey) -> None:
        self._rosters.forget(key)
