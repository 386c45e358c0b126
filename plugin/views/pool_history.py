"""The history of a pool. The input is the same snapshot as the controller takes of the pool (P11)."""

from collections import Counter
from typing import Final

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS
from controller.kubevirt.annotations import INDEX_SYSPREP, is_marked
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vms import revision_of
from controller.pool.members.revisions import read_revisions, template_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.effects import effect_between
from controller.pool.spec.intent import parse_intent
from controller.pool.spec.template import describe_difference
from controller.replicas.settings import read_settings
from plugin.views.edits import ABSENT, Document, Edit
from plugin.views.history import Entry, History, Revision, decoded, in_order

TEMPLATE_FIELDS: Final = (
    "virtualMachineTemplate",
    "nameGeneration",
    "appendPostfixToConfigMapReferences",
    "appendPostfixToSecretReferences",
)
"""The fields of a pool's spec that decide how VMs are created."""


def history_of_pool(snapshot: Snapshot, *, counts: bool) -> History:
    """Return the history of a pool. `counts` is False if the snapshot lacks the VMs, so their number is not known."""
    intent = parse_intent(snapshot.owner)
    present = None if isinstance(intent, FieldError) else read_revisions(snapshot, intent.template)
    settings = read_settings(snapshot.owner.metadata)
    returned_to = settings.return_target(present.template.digest) if present is not None else ""
    members = Counter(revision_of(each.vm) for each in snapshot.members)
    entries, before = [], None
    for each in in_order(snapshot.revisions):
        name, template = each.metadata.name, template_of(each)
        changes = effect = ""
        if before is not None and template is not None:
            changes = describe_difference(before, template)
            effect = effect_between(before, template, snapshot.live)
        row = Revision(
            revision=each.revision,
            name=name,
            is_current=present is not None and name == present.current,
            is_rolled_back=present is not None and name == present.current and bool(returned_to),
            vms=members[name] if counts else None,
            created=each.metadata.creation_timestamp,
            changes=changes,
            effect=effect,
        )
        fields = None if template is None else _fields_of(each)
        entries.append(
            Entry(
                row=row,
                has_present_template=present is not None and present.is_current(name),
                template=fields,
                edits=() if fields is None else _edits(each, fields),
            )
        )
        before = template
    return History(
        noun=POOLS.noun,
        name=snapshot.owner.metadata.name,
        members="VMS",
        entries=tuple(entries),
        returned_to=returned_to,
    )


def _fields_of(revision: ControllerRevision) -> Document:
    data = decoded(revision)
    return {name: data[name] for name in TEMPLATE_FIELDS if data.get(name) is not None}


def _edits(revision: ControllerRevision, template: Document) -> tuple[Edit, ...]:
    edits = [Edit(("spec", name), template.get(name, ABSENT)) for name in TEMPLATE_FIELDS]
    sysprep = "true" if is_marked(revision.metadata, INDEX_SYSPREP) else ABSENT
    return (*edits, Edit(("metadata", "annotations", INDEX_SYSPREP), sysprep))
