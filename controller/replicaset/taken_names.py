"""The names that a new VMI of a set may not have (R5).

virt-handler may wait without end on a new VMI, if an earlier VMI of the same name is not cleaned up on its node. So a
name that was seen to go counts as taken for ten minutes. The names are only in memory: a restart forgets them.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NamesInUse
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.meta import ObjectKey, controller_of
from informers.store import Change, Removed, StoreView

REST: Final = timedelta(minutes=10)
MOST: Final = 100_000
"""The largest number of remembered names. The oldest are forgotten first."""


class TakenNames(Struct, frozen=True):
    """The names of the VMIs in a namespace, and of those that went a short time ago."""

    in_use: NamesInUse
    gone: OrderedDict[ObjectKey, datetime]

    def __contains__(self, name: object) -> bool:
        return name in self.in_use or (isinstance(name, str) and ObjectKey(self.in_use.namespace, name) in self.gone)


class GoneNames:
    """Remembers the names of VMIs that went. Call `handle` on the event loop."""

    def __init__(self) -> None:
        self._new: list[ObjectKey] = []
        self._gone: OrderedDict[ObjectKey, datetime] = OrderedDict()

    def handle(self, change: Change[VirtualMachineInstance]) -> None:
        if isinstance(change, Removed):
            owner = controller_of(change.last_known.metadata)
            # The name of a VM's VMI is the name of the VM.
            if owner is None or owner.kind == REPLICA_SET_KIND:
                self._new.append(change.last_known.metadata.key)

    def taken(self, vmis: StoreView[VirtualMachineInstance], namespace: str, now: datetime) -> TakenNames:
        """Return the taken names of a namespace. The time of a name begins with the first call after it went."""
        for key in self._new:
            self._gone[key] = now
            self._gone.move_to_end(key)
        self._new.clear()
        while self._gone and (len(self._gone) > MOST or next(iter(self._gone.values())) + REST <= now):
            self._gone.popitem(last=False)
        return TakenNames(NamesInUse(vmis, namespace), self._gone)
