"""`kubectl vmherd tree`: an object with its VMs, and the reason for each VM that is not ready or not up to date."""

from __future__ import annotations

from typing import Any

import click

from plugin import clock
from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.printing import notes_about_missing, print_lines, print_value, width
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.listing import tree_lines


@click.command(
    "tree",
    cls=Verb,
    own=FLAGS["tree"],
    help="Show an object with its VMs. WHY says what keeps a VM from being ready or up to date.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects))


async def run(session: Session, subjects: tuple[Subject, ...]) -> None:
    """Print the tree of each object. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace, once=True)
    targets = await reader.targets(subjects, session.flags.selector)
    if not targets:
        raise Failed(f"error: no resources found in {session.namespace} namespace")
    situations = [await reader.situation(target) for target in targets]
    if session.flags.output:
        trees = [{"name": each.identity.path, "members": each.members} for each in situations]
        print_value(trees[0] if len(trees) == 1 else trees, session.flags.output)
    else:
        for number, situation in enumerate(situations):
            print_lines([*([""] if number else []), *tree_lines(situation, clock.now(), width=width())])
    notes_about_missing(reader.missing.values())
