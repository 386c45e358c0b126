"""The snapshot of a replica set: all input of one reconciliation, read from the caches at one moment.

It is an immutable value. Indexes find the VMIs and orphans, so no reconciliation scans a namespace.

The templates of a set are stored as ControllerRevisions (R17). virt-handler may wait without end on a new VMI, if an
earlier VMI of the same name is not cleaned up on its node. So a name that was seen to go counts as taken for ten
minutes (R5). The names are only in memory: a restart forgets them.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NAMESPACE, OWNER_UID, NamesInUse, by_namespace, by_owner_uid, owned_by
from controller.apimachinery.label_selectors import LabelSelector, Operator
from controller.apimachinery.names import SUFFIX_LENGTH
from controller.kubevirt.annotations import own_notes
from controller.kubevirt.delicate import is_busy_vmi
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND, ReplicaSet
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.catalogue import Place
from controller.replicas.disruption_budget import BUDGET_NAMESPACE, Budgets, by_budgeted_namespace, useless_budget
from controller.replicas.revisions import former_set_of, hash_of_set_revision, revision_base
from controller.replicas.settings import asks_for_budget
from controller.replicas.wrong_annotations import Wrong, all_wrong, wrong_in_template
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.traits import VMIs, wrong_on_vmi
from informers.meta import ObjectKey, ObjectMeta, controller_of, labels_of
from informers.resource import Resource
from informers.store import Change, Removed, StoreView

FORMER_SET: Final = "former-set"


REVISION_INDEXES: Final[Mapping[str, Callable[[ControllerRevision], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    FORMER_SET: lambda revision: map(str, former_set_of(revision)),
}


class History(Struct, frozen=True, kw_only=True):
    """The revisions of one set. No owner controls those `orphaned` by an earlier set of the same name. `names` are
    those in use in the namespace, `keep` the unused revisions to keep, and `since` the first reconciliation of any set.
    """

    revisions: tuple[ControllerRevision, ...]
    orphaned: tuple[ControllerRevision, ...]
    names: Container[str]
    keep: int
    since: datetime


class RevisionCache:
    """Reads the histories of sets from the cache, and remembers the time of the first read."""

    def __init__(self, revisions: StoreView[ControllerRevision], keep: int) -> None:
        self._revisions = revisions
        self._keep = keep
        self._since: datetime | None = None

    def history_of(self, owner: ObjectMeta, now: datetime) -> History:
        if self._since is None:
            self._since = now
        owned = owned_by(owner, self._revisions)
        return History(
            revisions=tuple(each for each in owned if hash_of_set_revision(each.metadata)),
            orphaned=self.orphaned(owner.key),
            names=NamesInUse(owner.namespace, self._revisions.keys(owner.namespace)),
            keep=self._keep,
            since=self._since,
        )

    def orphaned(self, key: ObjectKey) -> tuple[ControllerRevision, ...]:
        """Return the revisions of a former set with this key, which no owner controls."""
        former = ObjectKey(key.namespace, revision_base(key.name))
        return tuple(self._revisions.by_index(FORMER_SET, str(former)))


REST: Final = timedelta(minutes=10)
MOST: Final = 100_000
"""The largest number of remembered names. The oldest are forgotten first."""


class GoneNames:
    """Remembers the names of VMIs that went. Call `handle` on the event loop."""

    def __init__(self) -> None:
        self._new: deque[ObjectKey] = deque(maxlen=MOST)
        self._gone: OrderedDict[ObjectKey, datetime] = OrderedDict()

    def handle(self, change: Change[VirtualMachineInstance]) -> None:
        if isinstance(change, Removed):
            owner = controller_of(change.last_known.metadata)
            # The name of a VM's VMI is the name of the VM.
            if owner is None or owner.kind == REPLICA_SET_KIND:
                self._new.append(change.last_known.metadata.key)

    def taken(self, vmis: StoreView[VirtualMachineInstance], namespace: str, now: datetime) -> NamesInUse:
        """Return the taken names of a namespace. The time of a name begins with the first call after it went."""
        for key in self._new:
            self._gone[key] = now
            self._gone.move_to_end(key)
        self._new.clear()
        while self._gone and (len(self._gone) > MOST or next(iter(self._gone.values())) + REST <= now):
            self._gone.popitem(last=False)
        return NamesInUse(namespace, vmis.keys(namespace), self._gone)


def by_set_uid(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index: the UID of the set that controls the VMI, and nothing for the many VMIs of VMs, to save memory."""
    owner = controller_of(vmi.metadata)
    return (owner.uid,) if owner is not None and owner.kind == REPLICA_SET_KIND else ()


SET_UID: Final = "set-uid"

REQUIRED_LABEL: Final = "required-label"


def by_required_label(owner: ReplicaSet) -> Iterable[str]:
    """Index: a key for each allowed value of one required label, or the namespace if no label is required."""
    selector = owner.spec.selector or LabelSelector()
    namespace = owner.metadata.namespace
    for key, value in (selector.match_labels or {}).items():
        return (label_key(namespace, key, value),)
    for requirement in selector.match_expressions or ():
        if requirement.operator == Operator.IN:
            return {label_key(namespace, requirement.key, value) for value in requirement.values or ()}
    return (namespace,)


def label_key(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"


def by_orphan(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index: where a set finds an orphan: by namespace, by each label as in `REQUIRED_LABEL`, and by its former set."""
    meta = vmi.metadata
    if controller_of(meta) is not None:
        return ()
    labels = [label_key(meta.namespace, *label) for label in labels_of(meta).items()]
    return (meta.namespace, *labels, *map(str, former_set_of_vmi(vmi)))


def former_set_of_vmi(vmi: VirtualMachineInstance) -> tuple[ObjectKey, ...]:
    """Return the key that the name of a VMI with vmherd's notes suggests, also if there was never such a set."""
    meta = vmi.metadata
    return (ObjectKey(meta.namespace, meta.name[:-SUFFIX_LENGTH]),) if own_notes(meta) else ()


def orphans_of(owner: ReplicaSet, vmis: StoreView[VirtualMachineInstance]) -> tuple[VirtualMachineInstance, ...]:
    keys = dict.fromkeys((*by_required_label(owner), str(owner.metadata.key)))
    found = (vmi for key in keys for vmi in vmis.by_index(ORPHAN, key))
    return tuple({vmi.metadata.name: vmi for vmi in found}.values())


ORPHAN: Final = "orphan"

VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {
    SET_UID: by_set_uid,
    ORPHAN: by_orphan,
    NAMESPACE: by_namespace,
}


REPLICASET_INDEXES: Final[Mapping[str, Callable[[ReplicaSet], Iterable[str]]]] = {
    REQUIRED_LABEL: by_required_label,
    BUDGET_NAMESPACE: by_budgeted_namespace,
}


class Snapshot(Struct, frozen=True, kw_only=True):
    """One replica set with its VMIs, and all else that a reconciliation reads.

    `members` are the VMIs that it controls. `orphans` may not match its selector. VMIs in its namespace have, or had a
    short time ago, the names `taken` (R5). `settled` is True if the caches show all earlier writes (R9). `burst` limits
    the creates and the deletes (R4, R6, R7), and `max_replicas` the VMIs, or 0 (R4). `history` has the revisions (R17),
    and `budgets` the disruption budgets, or None if they are not known (P27).
    """

    owner: ReplicaSet
    members: VMIs
    orphans: tuple[VirtualMachineInstance, ...]
    taken: Container[str]
    now: datetime
    settled: bool
    burst: int
    replicasets: Resource[ReplicaSet]
    history: History
    max_replicas: int = 0
    budgets: Budgets | None = None

    @property
    def revisions(self) -> tuple[ControllerRevision, ...]:
        return self.history.revisions

    @property
    def marked(self) -> Mapping[str, int]:
        """The number of VMIs that are busy now (P24)."""
        return {"busy": len(self.members.where(lambda vmi: is_busy_vmi(vmi, self.now)))}

    @property
    def wrong_annotations(self) -> tuple[Wrong, ...]:
        """The wrong annotations of the set and of its VMIs (P23)."""
        members = (("VMI", group, wrong_on_vmi(group.traits)) for group in self.members.groups)
        of_template = wrong_in_template(self.owner.spec.template)
        return (*of_template, *self.useless_budget, *all_wrong(self.owner.metadata, Place.SET, members))

    @property
    def useless_budget(self) -> tuple[Wrong, ...]:
        """The annotation that asks for a disruption budget, if the set gets none (P27)."""
        intent = parse_intent(self.owner) if asks_for_budget(self.owner.metadata) else None
        if not isinstance(intent, Intent):
            return ()
        return useless_budget(self.owner.metadata, self.budgets, intent.selector, intent.template.labels, self.members)
