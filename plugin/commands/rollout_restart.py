"""`kubectl vmherd rollout restart`: restarts all VMs of an object within its update limits."""

from __future__ import annotations

from typing import Any

import click

from controller.kinds import POOLS
from plugin import clock
from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, other_writer
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.steering import Refused, restart_edits
from plugin.writing import write


@click.command(
    "restart",
    cls=Verb,
    own=FLAGS["rollout restart"],
    help="Restart all VMs, as fast as the update limits allow. Each VM keeps its name and its disks; a VMI of a set "
    "is replaced.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects))


async def run(session: Session, subjects: tuple[Subject, ...]) -> None:
    """Change the template of each object. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    at = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for target in await reader.some_targets(subjects, session.flags.selector):
        try:
            edits = restart_edits(target.kind, target.document, at)
        except Refused as error:
            raise Failed(f"error: {error}") from error
        evidence = "" if target.kind is POOLS else await other_writer(session, target, {})
        if evidence:
            raise Failed(f"error: can't restart {target}: {KUBEVIRT_REPLACES_NONE} ({evidence})")
        await write(session, target, edits, "restarted")
