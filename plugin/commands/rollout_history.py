"""`kubectl vmherd rollout history` and `undo`: lists the revisions of an object, and returns it to one of them."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from controller.kinds import POOLS
from controller.kubevirt.resources import VMIS, VMS
from plugin import clock
from plugin.command import on_each
from plugin.connection import Session
from plugin.flags import FOR_PROGRAMS, NAME, NONE, YAML
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value, width
from plugin.reading import Reader, Target
from plugin.views.disks import lost_by_undo
from plugin.views.edits import edited
from plugin.views.history import (
    Entry,
    History,
    find_revision,
    history_lines,
    history_of_pool,
    history_of_set,
    owner_in_git,
    previous_revision,
    staying_note,
    staying_vmis,
    template_in,
    undo_edits,
)
from plugin.views.steering import Refused, is_paused
from plugin.writing import confirm, write

KUBEVIRT_KEEPS_NONE = "KubeVirt's own controller runs this set, and keeps no templates of sets"
NONE_YET = "vmherd has stored no template of this set. It stores the first one within five minutes after its start"


class Past(Struct, frozen=True):
    """A history, its snapshot, and the evidence that KubeVirt's own controller works on the set, or ""."""

    snapshot: Any
    history: History
    other_writer: str = ""


@on_each("rollout history")
async def history(session: Session, reader: Reader, target: Target, revision: int) -> None:
    """List the templates that an object can return to. CHANGES has the fields that differ from the line above, and
    EFFECT is what this difference does to a running VM.
    """
    past = await past_of(session, reader, target)
    if revision:
        template = template_in(find_revision(past.history, revision))
        if session.flags.is_text:
            print(f"{target.path} with revision #{revision}")
        print_value(template, session.flags.output if session.flags.output in FOR_PROGRAMS else YAML)
    elif session.flags.output in FOR_PROGRAMS:
        print_value(past.history.rows, session.flags.output)
    elif session.flags.output == NAME:
        print_lines([target.path])
    else:
        print_lines([target.path, *history_lines(past.history, clock.now(), width=width(session.flags)), ""])
        if past.other_writer:
            note(f"Note: {KUBEVIRT_KEEPS_NONE} ({past.other_writer})")
    notes_about_missing(reader.missing.values())


async def past_of(session: Session, reader: Reader, target: Target) -> Past:
    """Without permission to read the VMs, their number is not known. Raise Refused without a history, or Failed."""
    snapshot = await reader.snapshot(target, without=(VMS, VMIS))
    revisions = await reader.revisions_of(target) if snapshot is not None and target.kind is not POOLS else ()
    if snapshot is None or revisions is None:
        for name in (VMS.name, VMIS.name):  # the history does not need them
            reader.missing.pop(name, None)
        raise reader.refusal()
    if target.kind is POOLS:
        # The history of a pool uses no VMI.
        reader.missing.pop(VMIS.name, None)
        return Past(snapshot, history_of_pool(snapshot, counts=VMS.name not in reader.missing))
    evidence = await other_writer(session, target, {})
    if not revisions:
        why = f"{KUBEVIRT_KEEPS_NONE} ({evidence})" if evidence else NONE_YET
        raise Refused(f"{target} has no rollout history: {why}")
    return Past(snapshot, history_of_set(snapshot, revisions, counts=VMIS.name not in reader.missing), evidence)


@on_each("rollout undo")
async def undo(session: Session, reader: Reader, target: Target, to_revision: int, yes: bool) -> None:
    """Return an object to an earlier template. The VMs of a pool follow by its update strategy. The VMIs of a set
    follow only if the set has a rolling update.
    """
    past = await past_of(session, reader, target)
    if is_paused(target.document):
        resume = f"kubectl vmherd rollout resume {target.kind.short_names[0]}/{target.key.name}"
        raise Refused(
            f"you cannot roll back a paused {target.kind.noun}; resume it first with '{resume}' and try again"
        )
    entry = find_revision(past.history, to_revision) if to_revision else previous_revision(past.history)
    edits = undo_edits(target.document, entry)
    if entry.has_present_template:
        why = f"skipped rollback (current template already matches revision {entry.row.revision})"
        await write(session, target, (), why)
        return
    program = owner_in_git(target.owner.metadata)
    if program:
        note(f"Warning: {target} belongs to {program}, which may undo this rollback: change the source, too")
    if target.kind is POOLS:
        owner = target.resource.decode(msgspec.json.encode(edited(target.document, edits)))
        lost = lost_by_undo(past.snapshot, owner, entry.row)
        if lost:  # a dry run only warns
            what = f"the rollback of {target} deletes {lost}; the VMs are created again with new disks"
            await confirm(what, yes=yes or session.flags.dry_run != NONE)
    await write(session, target, edits, "rolled back")
    if target.kind is not POOLS and not session.flags.output:
        _note_about_vmis(session, target, past, entry, reader.missing.values())


def _note_about_vmis(session: Session, target: Target, past: Past, entry: Entry, missing: Iterable[str]) -> None:
    """Say which VMIs of a set keep their template. `missing` names what the user may not read."""
    if past.other_writer:
        note(f"Note: {KUBEVIRT_REPLACES_NONE} ({past.other_writer})")
        return
    staying = staying_vmis(past.snapshot, entry)
    if staying == 0:
        return
    flags = f" -n {target.key.namespace}" if session.flags.namespace else ""
    note(staying_note(target.key.name, staying, flags=flags))
    if staying is None:
        notes_about_missing(missing)
