"""`kubectl vmherd rollout pause`: pauses an object."""

from __future__ import annotations

from typing import Any

import click

from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.printing import note
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.steering import Refused, pause_edits, pause_note
from plugin.writing import write


@click.command(
    "pause",
    cls=Verb,
    own=FLAGS["rollout pause"],
    help="Pause an object. The controller then does not update, scale or heal it until `rollout resume`.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: set_paused(session, subjects, paused=True))


async def set_paused(session: Session, subjects: tuple[Subject, ...], *, paused: bool) -> None:
    """Pause or resume each object. Raise Failed if an object already is in this state. Raise ApiError if a request
    fails.
    """
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        try:
            edits = pause_edits(target.document, target.resource.name, paused=paused)
        except Refused as error:
            raise Failed(f"error: {error}") from error
        await write(session, target, edits, "paused" if paused else "resumed")
        if paused and not session.flags.output:
            note(pause_note(target.kind))
