"""`kubectl vmherd tree`: an object with its VMs, and the reason for each VM that is not ready or not up to date."""

from __future__ import annotations

from typing import Any

import click

from plugin import clock
from plugin.connection import Session, carry_out
from plugin.flags import JSON, NAME, WIDE, YAML, Verb, flags_of
from plugin.printing import notes_about_missing, print_lines, print_table, print_value, width
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, check_scope, parse_subjects
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
    check_scope(subjects, all_namespaces=flags.all_namespaces)
    carry_out(flags, lambda session: run(session, subjects))


async def run(session: Session, subjects: tuple[Subject, ...]) -> None:
    """Print the tree of each object. Raise Failed, ApiError."""
    reader = Reader(session, session.scope, once=True)
    targets = await reader.some_targets(subjects, session.flags.selector)
    situations = [await reader.situation(target) for target in targets]
    output = session.flags.output
    if output == NAME:
        for each in situations:
            print_lines([each.identity.path, *(member.path for member in each.members)])
    elif output in (JSON, YAML):
        trees = [
            {"name": each.identity.path, "namespace": each.identity.namespace, "members": each.members}
            for each in situations
        ]
        print_value(trees[0] if len(trees) == 1 else trees, output)
    else:
        edge = 0 if output == WIDE else width()
        for number, situation in enumerate(situations):
            if number:
                print_lines([""])
            print_table(tree_lines(situation, clock.now(), all_namespaces=not session.scope, width=edge))
    notes_about_missing(reader.missing.values())
