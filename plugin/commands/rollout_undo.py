"""`kubectl vmherd rollout undo`: gives a pool the template of an earlier revision."""

from __future__ import annotations

from typing import Any

import click

from plugin.commands.rollout_history import pool_snapshot
from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.history import (
    HistoryError,
    find_revision,
    is_same_template,
    owner_in_git,
    previous_revision,
    undo_edits,
)
from plugin.views.steering import is_paused
from plugin.writing import write


@click.command(
    "undo",
    cls=Verb,
    own=FLAGS["rollout undo"],
    help="Return a pool to an earlier template. The VMs follow by the pool's update strategy.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], to_revision: int, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects, to_revision))


async def run(session: Session, subjects: tuple[Subject, ...], number: int) -> None:
    """Return each pool to an earlier template. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    for target in await reader.targets(subjects, session.flags.selector):
        await _undo(session, reader, target, number)


async def _undo(session: Session, reader: Reader, target: Target, number: int) -> None:
    snapshot = await pool_snapshot(reader, target)
    if is_paused(target.document):
        resume = f"kubectl vmherd rollout resume {target.kind.short_names[0]}/{target.key.name}"
        raise Failed(f"error: you cannot roll back a paused pool; resume it first with '{resume}' and try again")
    try:
        revision = find_revision(snapshot, number) if number else previous_revision(snapshot)
        edits = undo_edits(target.document, revision)
    except HistoryError as error:
        raise Failed(f"error: {error}") from error
    if is_same_template(snapshot, revision):
        why = f"skipped rollback (current template already matches revision {revision.revision})"
        await write(session, target, (), why)
        return
    program = owner_in_git(target.document)
    if program:
        note(f"Warning: {target} belongs to {program}, which may undo this rollback: change the source, too")
    await write(session, target, edits, "rolled back")
