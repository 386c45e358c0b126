"""The rosters of large replica sets, with their VMIs in groups."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.indexes import owned_by
from controller.kubevirt.annotations import EARLY_FAILURES
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.snapshot import SET_UID, by_set_uid
from controller.replicaset.traits import VMIs, erase, replaces_failure
from controller.runtime.members.rosters import Rosters
from informers.meta import ObjectKey, ObjectMeta, annotations_of, controller_of
from informers.store import StoreView

NoteOf = Callable[[ObjectKey], str]


class _Reader(Struct, frozen=True):
    """Reads a VMI with the history of its failures that `note_of` remembers, if a policy has taken it off (R4a)."""

    vmis: StoreView[VirtualMachineInstance]
    owner: ObjectMeta
    note_of: NoteOf

    def size(self) -> int:
        return len(self.vmis.by_index(SET_UID, self.owner.uid))

    def names(self) -> Iterable[str]:
        return (vmi.metadata.name for vmi in self.load())

    def load(self) -> Iterable[VirtualMachineInstance]:
        return map(self._with_note, owned_by(self.owner, self.vmis, SET_UID))

    def read(self, name: str) -> VirtualMachineInstance | None:
        vmi = self.vmis.get(ObjectKey(self.owner.namespace, name))
        return self._with_note(vmi) if vmi is not None and self.owner.uid in by_set_uid(vmi) else None

    def _with_note(self, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
        note, meta = self.note_of(vmi.metadata.key), vmi.metadata
        if not note or replaces_failure(vmi):
            return vmi
        return replace(vmi, metadata=replace(meta, annotations={**annotations_of(meta), EARLY_FAILURES: note}))


class VMIRosters:
    def __init__(self, vmis: StoreView[VirtualMachineInstance]) -> None:
        self._vmis = vmis
        self._rosters: Rosters[VirtualMachineInstance] = Rosters(erase)
        vmis.follow(self)

    def prepare(self, owner: ObjectMeta, note_of: NoteOf) -> Iterator[object]:
        return self._rosters.prepare(owner, _Reader(self._vmis, owner, note_of))

    def read(self, owner: ObjectMeta, note_of: NoteOf) -> VMIs:
        return self._rosters.read(owner, _Reader(self._vmis, owner, note_of))

    def changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        for vmi in (old, new):
            owner = controller_of(vmi.metadata) if vmi is not None else None
            if vmi is not None and owner is not None and owner.kind == REPLICA_SET_KIND:
                self._rosters.change(owner.uid, vmi.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()

    def forget(self, key: ObjectKey) -> None:
        self._rosters.forget(key)
