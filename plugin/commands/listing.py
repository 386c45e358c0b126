"""`kubectl vmherd list`: one line for each replica set and pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from controller.kinds import KINDS
from informers.meta import ObjectKey
from plugin import clock
from plugin.connection import Session, carry_out
from plugin.flags import JSON, NAME, WIDE, YAML, Verb, flags_of
from plugin.printing import note, notes_about_missing, print_lines, print_table, print_value, width
from plugin.reading import Reader, Target, snapshot_of
from plugin.subjects import Subject, check_scope, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.listing import list_lines, row_of
from plugin.views.situation import Situation
from plugin.views.situations import situation_from_status, situation_of

EVERY_TYPE = tuple(Subject(kind, group) for kind in KINDS for group in (kind.group, kind.own_group))


@click.command(
    "list",
    cls=Verb,
    own=FLAGS["list"],
    help="List replica sets and pools, or only those of one TYPE.",
)
@click.argument("arguments", nargs=-1, metavar="[TYPE [NAME...]]")
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments) if arguments else EVERY_TYPE, flags_of(values)
    check_scope(subjects, all_namespaces=flags.all_namespaces)
    carry_out(flags, lambda session: run(session, subjects))


async def run(session: Session, subjects: Iterable[Subject]) -> None:
    """Print the list. Raise ApiError."""
    flags = session.flags
    namespace = session.scope
    reader = Reader(session, namespace)
    read = reader.visible_targets if subjects is EVERY_TYPE else reader.targets
    targets = await read(subjects, flags.selector)
    situations = await _situations(reader, targets, namespace)
    situations.sort(key=lambda each: (each.identity.namespace, each.identity.plural, each.identity.name))
    rows = [row_of(each) for each in situations]
    if flags.output in (JSON, YAML):
        print_value(rows, flags.output)
    elif flags.output == NAME:
        print_lines(row.name for row in rows)
    elif not rows:
        note(f"No resources found{session.where}.")
    else:
        wide = flags.output == WIDE
        edge = 0 if wide else width()
        lines = list_lines(situations, clock.now(), all_namespaces=not namespace, wide=wide, width=edge)
        print_table(lines)
    notes_about_missing(reader.missing.values())


async def _situations(reader: Reader, targets: Iterable[Target], namespace: str) -> list[Situation]:
    """Return the situations from the statuses. The VMs are read only for objects whose status has no counters."""
    found, uncounted = [], []
    for target in targets:
        if getattr(target.owner.status, "updated_replicas", None) is None:
            uncounted.append(target)
        else:
            found.append(situation_from_status(target.kind, target.resource.group, target.owner))
    for resource in {target.resource: None for target in uncounted}:
        group = [target for target in uncounted if target.resource is resource]
        rules = await reader.rules(group[0].kind, resource, [each.owner for each in group], namespace)
        for each in group:
            key: ObjectKey = each.key
            if rules is None:
                found.append(situation_from_status(each.kind, resource.group, each.owner))
            else:
                found.append(situation_of(each.kind, resource.group, snapshot_of(rules, key)))
    return found
