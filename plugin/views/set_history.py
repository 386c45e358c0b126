"""The history of a replica set, and what an undo does to its VMIs (R17)."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from controller.apimachinery.field_error import FieldError
from controller.kinds import REPLICA_SETS
from controller.kubevirt.annotations import ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.normal_form import VMI_TEMPLATE, differences
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmis import is_active
from controller.replicas.settings import read_settings
from controller.replicaset.intent import Intent, parse_intent, parse_rolling
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import parse_template, template_in
from informers.meta import labels_of
from plugin.views.edits import Document, Edit
from plugin.views.history import REPLACE, Entry, History, Revision, decoded, in_order

MOST_CHANGES: Final = 3


def history_of_set(snapshot: Snapshot, revisions: Iterable[ControllerRevision], *, counts: bool) -> History:
    """Return the history of a set. `revisions` are the revisions that the set controls, with their data.

    `counts` is False if the snapshot lacks the VMIs, so their number is not known.
    """
    present = parse_intent(snapshot.owner)
    hashed = present.template.hash if isinstance(present, Intent) else ""
    adopted = present.template.adopted if isinstance(present, Intent) else ""
    members = Counter(labels_of(vmi.metadata).get(TEMPLATE_HASH, adopted) for vmi in snapshot.members)
    returned_to = read_settings(snapshot.owner.metadata).return_target(hashed)
    entries: list[Entry] = []
    before: Document | None = None
    for each in in_order(revisions):
        template = template_in(snapshot.owner, each)
        document: Document | None = decoded(each)["template"] if template is not None else None
        own = template.hash if template is not None else ""
        changes = _changes(before, document)
        row = Revision(
            revision=each.revision,
            name=each.metadata.name,
            is_current=bool(own) and own == hashed,
            is_rolled_back=bool(own) and own == hashed and bool(returned_to),
            vms=(members[own] if own else 0) if counts else None,
            created=each.metadata.creation_timestamp,
            changes=changes,
            effect=REPLACE if changes else "",
        )
        entries.append(
            Entry(
                row=row,
                has_present_template=row.is_current,
                template=None if document is None else {"template": document},
                edits=(Edit(("spec", "template"), document),),
                template_hash=own,
            )
        )
        before = document
    return History(
        noun=REPLICA_SETS.noun,
        name=snapshot.owner.metadata.name,
        members="VMIS",
        entries=tuple(entries),
        returned_to=returned_to,
    )


def staying_vmis(snapshot: Snapshot, entry: Entry) -> int | None:
    """Return the number of VMIs that do not follow an undo to this revision, because the set has no rolling update.

    Return None if this number is not known.
    """
    if is_rolled_out(snapshot):
        return 0
    if entry.row.vms is None:
        return None
    template = parse_template(snapshot.owner)
    if isinstance(template, FieldError):
        return None
    return sum(is_active(vmi) and template.hash_of(vmi) != entry.template_hash for vmi in snapshot.members)


def is_rolled_out(snapshot: Snapshot) -> bool:
    """Return True if the set has a valid rolling-update annotation."""
    return parse_rolling(snapshot.owner.metadata) is not None


def staying_note(name: str, staying: int | None, *, flags: str = "") -> str:
    """Return the note that VMIs keep their template, and how to replace them. `staying` is None if their number is not
    known.
    """
    number = "1 VMI keeps its" if staying == 1 else f"{'the' if staying is None else staying} VMIs keep their"
    return (
        f"Note: {number} present template, because the set has no rolling update. To replace them, run "
        f'kubectl annotate vmirs {name}{flags} --overwrite {ROLLING_UPDATE}="maxUnavailable=25%", or delete them one '
        "after the other."
    )


def _changes(before: Any, after: Any) -> str:
    if before is None or after is None:
        return ""
    paths = list(islice(differences(before, after, VMI_TEMPLATE), MOST_CHANGES + 1))
    return ", ".join(paths[:MOST_CHANGES]) + (" and more" if len(paths) > MOST_CHANGES else "")
