"""The revisions of a set or pool, and the changes that return it to an earlier revision (R17, P11)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import INDEX_SYSPREP, ROLLING_UPDATE, TEMPLATE_HASH, is_marked
from controller.kubevirt.normal_form import VMI_TEMPLATE, first_differences
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmis import is_active
from controller.kubevirt.vms import revision_of
from controller.pool.members.revisions import read_revisions, template_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.rollout.effects import effect_between
from controller.pool.spec.intent import parse_intent as parse_pool
from controller.pool.spec.template import describe_difference
from controller.replicas.settings import read_settings
from controller.replicaset.intent import Intent, parse_intent, parse_rolling
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.template import parse_template
from controller.replicaset.template import template_in as template_of_set
from informers.meta import ObjectMeta, annotations_of, labels_of
from plugin.views.edits import ABSENT, Document, Edit, field
from plugin.views.steering import Refused
from plugin.views.tables import age, table

GITOPS: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Labels and annotations of GitOps programs. Such a program resets an object to the state in a Git repository."""

REPLACE: Final = "replace"
"""The effect on an outdated VMI of a set: it is deleted, and the set creates a new VMI."""

UNKNOWN: Final = "<unknown>"
"""kubectl's word for a value that is not known."""

TEMPLATE_FIELDS: Final = (
    "virtualMachineTemplate",
    "nameGeneration",
    "appendPostfixToConfigMapReferences",
    "appendPostfixToSecretReferences",
)
"""The fields of a pool's spec that decide how VMs are created."""


class Revision(Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the history. `changes` lists the fields that differ from the revision before, and `effect` is what an
    update from the revision before does to a running VM, such as `restart`. `is_rolled_back` is true for the current
    revision if the VMs return from it by themselves (P29).

    `vms` is the number of VMs of a pool, or of VMIs of a set, with this revision. It is None if the user may not read
    them.
    """

    revision: int
    name: str
    is_current: bool
    is_rolled_back: bool
    vms: int | None
    created: datetime | None
    changes: str
    effect: str = ""


class Entry(Struct, frozen=True, kw_only=True):
    """A revision with its row. `has_present_template` is True if its template has the same meaning as that of the
    owner. `template` has the fields from which VMs are created, or is None if the revision cannot be read. `edits` are
    the changes that return the owner to the revision. `template_hash` is the hash of a set's template.
    """

    row: Revision
    has_present_template: bool
    template: Document | None
    edits: tuple[Edit, ...]
    template_hash: str = ""


class History(Struct, frozen=True):
    """The revisions, the oldest first. The VMs have returned to `returned_to` by themselves, or it is "" (P29)."""

    noun: str
    name: str
    members: str
    entries: tuple[Entry, ...]
    returned_to: str = ""

    @property
    def rows(self) -> tuple[Revision, ...]:
        return tuple(entry.row for entry in self.entries)


def history_of_pool(snapshot: PoolSnapshot, *, counts: bool) -> History:
    """`counts` is False if the snapshot lacks the VMs, so their number is not known."""
    intent = parse_pool(snapshot.owner)
    present = None if isinstance(intent, FieldError) else read_revisions(snapshot, intent.template)
    settings = read_settings(snapshot.owner.metadata)
    returned_to = settings.return_target(present.template.digest) if present is not None else ""
    members = Counter(revision_of(each.vm) for each in snapshot.members)
    entries, before = [], None
    for each in _in_order(snapshot.revisions):
        name, template = each.metadata.name, template_of(each)
        changes = effect = ""
        if before is not None and template is not None:
            changes = describe_difference(before, template)
            effect = effect_between(before, template, snapshot.live)
        is_current = present is not None and name == present.current
        vms = members[name] if counts else None
        data = _decoded(each) if template is not None else {}
        fields = {name: data[name] for name in TEMPLATE_FIELDS if data.get(name) is not None}
        entries.append(
            Entry(
                row=_row(each, changes, effect, vms, is_current=is_current, returned_to=returned_to),
                has_present_template=present is not None and present.is_current(name),
                template=None if template is None else fields,
                edits=() if template is None else _pool_edits(each, fields),
            )
        )
        before = template
    return History(POOLS.noun, snapshot.owner.metadata.name, "VMS", tuple(entries), returned_to)


def history_of_set(snapshot: SetSnapshot, revisions: Iterable[ControllerRevision], *, counts: bool) -> History:
    """`revisions` are those of the set, with their data. `counts` is False if the snapshot lacks the VMIs."""
    present = parse_intent(snapshot.owner)
    hashed = present.template.hash if isinstance(present, Intent) else ""
    adopted = present.template.adopted if isinstance(present, Intent) else ""
    members = Counter(labels_of(vmi.metadata).get(TEMPLATE_HASH, adopted) for vmi in snapshot.members)
    returned_to = read_settings(snapshot.owner.metadata).return_target(hashed)
    entries: list[Entry] = []
    before: Document | None = None
    for each in _in_order(revisions):
        template = template_of_set(snapshot.owner, each)
        document: Document | None = _decoded(each)["template"] if template is not None else None
        own = template.hash if template is not None else ""
        is_current, is_known = bool(own) and own == hashed, before is not None and document is not None
        changes = first_differences(before, document, VMI_TEMPLATE) if is_known else ""
        vms = (members[own] if own else 0) if counts else None
        effect = REPLACE if changes else ""
        entries.append(
            Entry(
                row=_row(each, changes, effect, vms, is_current=is_current, returned_to=returned_to),
                has_present_template=is_current,
                template=None if document is None else {"template": document},
                edits=(Edit(("spec", "template"), document),),
                template_hash=own,
            )
        )
        before = document
    return History(REPLICA_SETS.noun, snapshot.owner.metadata.name, "VMIS", tuple(entries), returned_to)


def _row(
    revision: ControllerRevision, changes: str, effect: str, vms: int | None, *, is_current: bool, returned_to: str
) -> Revision:
    return Revision(
        revision=revision.revision,
        name=revision.metadata.name,
        is_current=is_current,
        is_rolled_back=is_current and bool(returned_to),
        vms=vms,
        created=revision.metadata.creation_timestamp,
        changes=changes,
        effect=effect,
    )


def _in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions that stay, the oldest first."""
    staying = [each for each in revisions if each.metadata.deletion_timestamp is None]
    return sorted(staying, key=lambda each: (each.revision, each.metadata.name))


def _decoded(revision: ControllerRevision) -> dict[str, Any]:
    """Return the data of a revision, or an empty object if the data cannot be read."""
    try:
        data = msgspec.json.decode(revision.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _pool_edits(revision: ControllerRevision, template: Document) -> tuple[Edit, ...]:
    edits = [Edit(("spec", name), template.get(name, ABSENT)) for name in TEMPLATE_FIELDS]
    sysprep = "true" if is_marked(revision.metadata, INDEX_SYSPREP) else ABSENT
    return (*edits, Edit(("metadata", "annotations", INDEX_SYSPREP), sysprep))


def history_lines(history: History, now: datetime, *, width: int = 0) -> list[str]:
    headers = ("REVISION", "CURRENT", history.members, "AGE", "EFFECT", "CHANGES")
    cells = [
        (
            str(row.revision),
            "rolled back" if row.is_rolled_back else "*" if row.is_current else "",
            UNKNOWN if row.vms is None else str(row.vms),
            age(row.created, now),
            row.effect or "-",
            row.changes or "<none>",
        )
        for row in history.rows
    ]
    return table(headers, cells, width=width) if cells else ["no rollout history found"]


def find_revision(history: History, number: int) -> Entry:
    """Return the revision with this number. Raise Refused if there is none."""
    for each in history.entries:
        if each.row.revision == number:
            return each
    known = ", ".join(str(row.revision) for row in history.rows) or "none"
    raise Refused(f"unable to find specified revision {number} in history (revisions: {known})")


def previous_revision(history: History) -> Entry:
    """Return the revision to which the VMs have returned, or the newest with another template. Raise Refused."""
    returned = [each for each in history.entries if each.row.name == history.returned_to]
    for each in returned or reversed(history.entries):
        if not each.has_present_template:
            return each
    raise Refused(f'no rollout history found for {history.noun} "{history.name}"')


def template_in(entry: Entry) -> Document:
    """Return the fields of a revision from which VMs are created. Raise Refused if the revision cannot be read."""
    if entry.template is None:
        raise Refused(f"revision {entry.row.revision} cannot be read")
    return entry.template


def undo_edits(owner: Document, entry: Entry) -> tuple[Edit, ...]:
    """Return the changes that give the owner the template of this revision. Raise Refused."""
    template_in(entry)
    return tuple(edit for edit in entry.edits if field(owner, edit.path) != edit.value)


def owner_in_git(owner: ObjectMeta) -> str:
    marks = {**labels_of(owner), **annotations_of(owner)}
    return next((program for mark, program in GITOPS.items() if mark in marks), "")


def staying_vmis(snapshot: SetSnapshot, entry: Entry) -> int | None:
    """Return the number of VMIs that keep their template after an undo, or None if it is not known."""
    if parse_rolling(snapshot.owner.metadata) is not None:
        return 0
    if entry.row.vms is None:
        return None
    template = parse_template(snapshot.owner)
    if isinstance(template, FieldError):
        return None
    return sum(is_active(vmi) and template.hash_of(vmi) != entry.template_hash for vmi in snapshot.members)


def staying_note(name: str, staying: int | None, *, flags: str = "") -> str:
    """Return how to replace these VMIs. `staying` is None if their number is not known."""
    number = "1 VMI keeps its" if staying == 1 else f"{'the' if staying is None else staying} VMIs keep their"
    return (
        f"Note: {number} present template, because the set has no rolling update. To replace them, run "
        f'kubectl annotate vmirs {name}{flags} --overwrite {ROLLING_UPDATE}="maxUnavailable=25%", or delete them one '
        "after the other."
    )
