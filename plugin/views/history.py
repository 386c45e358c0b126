"""The revisions of a set or pool, and the changes that return it to an earlier revision (R17, P11)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.kubevirt.vm_types import ControllerRevision
from plugin.views.edits import Document, Edit, field
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


class History(Struct, frozen=True, kw_only=True):
    """The revisions of a set or pool, the oldest first. `noun` is the word for the owner, such as `pool`.

    `returned_to` is the name of the revision to which the VMs have returned by themselves, or "" (P29).
    """

    noun: str
    name: str
    members: str
    entries: tuple[Entry, ...]
    returned_to: str = ""

    @property
    def rows(self) -> tuple[Revision, ...]:
        return tuple(entry.row for entry in self.entries)


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions that stay, the oldest first."""
    staying = [each for each in revisions if each.metadata.deletion_timestamp is None]
    return sorted(staying, key=lambda each: (each.revision, each.metadata.name))


def decoded(revision: ControllerRevision) -> dict[str, Any]:
    """Return the data of a revision, or an empty object if the data cannot be read."""
    try:
        data = msgspec.json.decode(revision.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


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
    """Return the revision to which the VMs have returned, or the newest one with another template than the owner.

    Raise Refused if there is none.
    """
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


def owner_in_git(document: Document) -> str:
    """Return the name of the program that undoes changes of this object, or ""."""
    metadata = document.get("metadata") or {}
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return next((program for mark, program in GITOPS.items() if mark in marks), "")
