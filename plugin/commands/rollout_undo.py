"""`kubectl vmherd rollout undo`: gives an object the template of an earlier revision."""

from collections.abc import Iterable, Sequence

import msgspec

from controller.kinds import POOLS
from plugin.command import Subjects, on_objects
from plugin.commands.rollout_history import Past, past_of
from plugin.connection import Session
from plugin.flags import NONE
from plugin.other_writer import KUBEVIRT_REPLACES_NONE
from plugin.printing import note, notes_about_missing
from plugin.reading import Reader, Target
from plugin.views.disks import lost_by_undo
from plugin.views.edits import Edit, edited
from plugin.views.history import Entry, find_revision, owner_in_git, previous_revision, undo_edits
from plugin.views.set_history import staying_note, staying_vmis
from plugin.views.steering import Refused, is_paused
from plugin.writing import confirm, write


@on_objects(
    "rollout undo",
    "Return an object to an earlier template. The VMs of a pool follow by its update strategy. The VMIs of a set "
    "follow only if the set has a rolling update.",
)
async def command(session: Session, subjects: Subjects, to_revision: int, yes: bool) -> None:
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        await _undo(session, reader, target, to_revision, yes=yes)


async def _undo(session: Session, reader: Reader, target: Target, number: int, *, yes: bool) -> None:
    past = await past_of(session, reader, target)
    if is_paused(target.document):
        resume = f"kubectl vmherd rollout resume {target.kind.short_names[0]}/{target.key.name}"
        raise Refused(
            f"you cannot roll back a paused {target.kind.noun}; resume it first with '{resume}' and try again"
        )
    entry = find_revision(past.history, number) if number else previous_revision(past.history)
    edits = undo_edits(target.document, entry)
    if entry.has_present_template:
        why = f"skipped rollback (current template already matches revision {entry.row.revision})"
        await write(session, target, (), why)
        return
    program = owner_in_git(target.document)
    if program:
        note(f"Warning: {target} belongs to {program}, which may undo this rollback: change the source, too")
    if target.kind is POOLS:
        await _ask_about_disks(session, target, past, entry, edits, yes=yes)
    await write(session, target, edits, "rolled back")
    if target.kind is not POOLS and not session.flags.output:
        _note_about_vmis(session, target, past, entry, reader.missing.values())


async def _ask_about_disks(
    session: Session, target: Target, past: Past, entry: Entry, edits: Sequence[Edit], *, yes: bool
) -> None:
    """Ask the user if the update to this revision deletes disks. A dry run only warns. Raise Failed."""
    owner = target.resource.decode(msgspec.json.encode(edited(target.document, edits)))
    lost = lost_by_undo(past.snapshot, owner, entry.row)
    if lost:
        what = f"the rollback of {target} deletes {lost}; the VMs are created again with new disks"
        await confirm(what, yes=yes or session.flags.dry_run != NONE)


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
