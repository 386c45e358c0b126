"""`kubectl vmherd rollout history`: lists the revisions of a pool, or prints one of them."""

from __future__ import annotations

from typing import Any

import click

from controller.kinds import POOLS
from plugin import clock
from plugin.connection import Failed, Session, carry_out
from plugin.flags import YAML, Verb, flags_of
from plugin.printing import notes_about_missing, print_lines, print_value, width
from plugin.reading import Reader, Target
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.history import HistoryError, find_revision, history_lines, history_of, template_in

SETS_HAVE_NONE = "sets keep no history yet: a new template replaces the old one"


@click.command(
    "history",
    cls=Verb,
    own=FLAGS["rollout history"],
    help="List the templates that a pool can return to. CHANGES has the fields that differ from the line above.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], revision: int, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects, revision))


async def run(session: Session, subjects: tuple[Subject, ...], revision: int) -> None:
    """Print the history of each pool. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    for target in await reader.targets(subjects, session.flags.selector):
        snapshot = await pool_snapshot(reader, target)
        try:
            if revision:
                template = template_in(find_revision(snapshot, revision))
                if not session.flags.output:
                    print(f"{target.path} with revision #{revision}")
                print_value(template, session.flags.output or YAML)
                continue
        except HistoryError as error:
            raise Failed(f"error: {error}") from error
        rows = history_of(snapshot)
        if session.flags.output:
            print_value(rows, session.flags.output)
        else:
            print_lines([target.path, *history_lines(rows, clock.now(), width=width()), ""])
    notes_about_missing(reader.missing.values())


async def pool_snapshot(reader: Reader, target: Target) -> Any:
    """Return the snapshot of a pool. Raise Failed if the object is a set, or if the user may not read all objects of
    the pool.
    """
    if target.kind is not POOLS:
        raise Failed(f"error: {target} has no rollout history: {SETS_HAVE_NONE}")
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise Failed("".join(f"error: {line}\n" for line in reader.missing.values()))
    return snapshot
