"""The revisions of a pool, and the changes that return a pool to an earlier revision (P11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import INDEX_SYSPREP, is_marked
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vms import revision_of
from controller.pool.intent import parse_intent
from controller.pool.revisions import read_revisions, template_of
from controller.pool.snapshot import Snapshot
from controller.pool.template import describe_difference
from plugin.views.ages import age
from plugin.views.edits import ABSENT, Document, Edit, field
from plugin.views.tables import table

TEMPLATE_FIELDS: Final = (
    "virtualMachineTemplate",
    "nameGeneration",
    "appendPostfixToConfigMapReferences",
    "appendPostfixToSecretReferences",
)
"""The fields of a pool's spec that decide how VMs are created."""

GITOPS: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Labels and annotations of GitOps programs. Such a program resets an object to the state in a Git repository."""


class Revision(Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the history. `changes` lists the fields that differ from the revision before."""

    revision: int
    name: str
    is_current: bool
    vms: int
    created: datetime | None
    changes: str


class HistoryError(Exception):
    """The history has no revision to return to. `str(error)` is a line for the user."""


def history_of(snapshot: Snapshot) -> tuple[Revision, ...]:
    """Return the revisions of a pool, the oldest first."""
    intent = parse_intent(snapshot.owner)
    current = "" if isinstance(intent, FieldError) else read_revisions(snapshot, intent.template).current
    members = Counter(map(revision_of, snapshot.members))
    rows, before = [], None
    for each in in_order(snapshot):
        template = template_of(each)
        changes = describe_difference(before, template) if before is not None and template is not None else ""
        rows.append(
            Revision(
                revision=each.revision,
                name=each.metadata.name,
                is_current=each.metadata.name == current,
                vms=members[each.metadata.name],
                created=each.metadata.creation_timestamp,
                changes=changes,
            )
        )
        before = template
    return tuple(rows)


def in_order(snapshot: Snapshot) -> list[ControllerRevision]:
    staying = [each for each in snapshot.revisions if each.metadata.deletion_timestamp is None]
    return sorted(staying, key=lambda each: (each.revision, each.metadata.name))


def history_lines(rows: tuple[Revision, ...], now: datetime, *, width: int = 0) -> list[str]:
    headers = ("REVISION", "CURRENT", "VMS", "AGE", "CHANGES")
    cells = [
        (str(row.revision), "*" if row.is_current else "", str(row.vms), age(row.created, now), row.changes or "<none>")
        for row in rows
    ]
    return table(headers, cells, width=width)


def find_revision(snapshot: Snapshot, number: int) -> ControllerRevision:
    """Return the revision with this number. Raise HistoryError if there is none."""
    for each in in_order(snapshot):
        if each.revision == number:
            return each
    known = ", ".join(str(each.revision) for each in in_order(snapshot)) or "none"
    raise HistoryError(f"unable to find specified revision {number} in history (revisions: {known})")


def previous_revision(snapshot: Snapshot) -> ControllerRevision:
    """Return the newest revision with another template than the pool. Raise HistoryError if there is none."""
    intent = parse_intent(snapshot.owner)
    revisions = None if isinstance(intent, FieldError) else read_revisions(snapshot, intent.template)
    for each in reversed(in_order(snapshot)):
        if revisions is None or not revisions.is_current(each.metadata.name):
            return each
    raise HistoryError(f'no rollout history found for pool "{snapshot.owner.metadata.name}"')


def is_same_template(snapshot: Snapshot, revision: ControllerRevision) -> bool:
    intent = parse_intent(snapshot.owner)
    if isinstance(intent, FieldError):
        return False
    template = template_of(revision)
    return template is not None and template.digest == intent.template.digest


def template_in(revision: ControllerRevision) -> dict[str, Any]:
    """Return the fields of a revision from which VMs are created. Raise HistoryError if the revision cannot be read."""
    try:
        data = msgspec.json.decode(revision.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        data = None
    if not isinstance(data, dict) or template_of(revision) is None:
        raise HistoryError(f"revision {revision.revision} cannot be read")
    return {name: data[name] for name in TEMPLATE_FIELDS if data.get(name) is not None}


def undo_edits(pool: Document, revision: ControllerRevision) -> tuple[Edit, ...]:
    """Return the changes that give the pool the template of this revision. Raise HistoryError."""
    template = template_in(revision)
    edits = [Edit(("spec", name), template.get(name, ABSENT)) for name in TEMPLATE_FIELDS]
    sysprep = "true" if is_marked(revision.metadata, INDEX_SYSPREP) else ABSENT
    edits.append(Edit(("metadata", "annotations", INDEX_SYSPREP), sysprep))
    return tuple(edit for edit in edits if field(pool, edit.path) != edit.value)


def owner_in_git(document: Document) -> str:
    """Return the name of the program that undoes changes of this object, or ""."""
    metadata = document.get("metadata") or {}
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return next((program for mark, program in GITOPS.items() if mark in marks), "")
