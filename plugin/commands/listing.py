"""`kubectl vmherd list` and `tree`: one line for each replica set and pool, and an object with its VMs."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from informers.resource import Resource
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.commands.watching import Picture, check_watch
from plugin.commands.watching import watch as watch_pictures
from plugin.connection import Session
from plugin.flags import FOR_PROGRAMS, NAME, WIDE
from plugin.members import MemberName, named_members, owners_of, parse_shown
from plugin.other_writer import warning_about_status
from plugin.printing import note, notes_about_missing, print_answers, print_lines, print_table, print_value, width
from plugin.reading import Reader, Target, situation_of, snapshot_of
from plugin.subjects import EVERY_TYPE, Subject, parse_subjects
from plugin.views.listing import list_lines, row_of, sorted_by, tree_lines
from plugin.views.situation import Situation, situation_from_status


@on_objects(
    "list",
    "List replica sets and pools, or only those of one TYPE.",
    metavar="[TYPE [NAME...]]",
    parse=lambda arguments: parse_subjects(arguments) if arguments else EVERY_TYPE,
)
async def command(session: Session, subjects: Subjects, sort_by: str | None, watch: bool) -> None:
    flags = session.flags
    namespace = session.scope
    check_watch(flags, watch=watch)
    reader = Reader(session, namespace)

    def table(situations: list[Situation], now: datetime) -> list[str]:
        wide = flags.output == WIDE
        return list_lines(situations, now, all_namespaces=not namespace, wide=wide, width=0 if wide else width())

    def picture(situations: list[Situation], warning: str) -> Picture:
        return Picture(partial(table, situations), warning)

    async def look() -> Picture:
        return picture(*await read_fleet(session, reader, subjects, sort_by))

    situations, warning = await read_fleet(session, reader, subjects, sort_by)
    rows = [row_of(each) for each in situations]
    if warning and not watch:
        note(f"Warning: {warning}")
    if flags.output in FOR_PROGRAMS:
        print_value(rows, flags.output)
    elif flags.output == NAME:
        print_lines(row.name for row in rows)
    elif not rows:
        await reader.check_served(subjects)
        note(f"No resources found{session.where}.")
    elif not watch:
        print_table(table(situations, clock.now()))
    notes_about_missing(reader.missing.values())
    if watch:
        await watch_pictures(picture(situations, warning), look)


async def read_fleet(
    session: Session, reader: Reader, subjects: Subjects, sort_by: str | None = None
) -> tuple[list[Situation], str]:
    """Return the situations of these objects in the order of a column, and the warning that they are old, or ""."""
    read = reader.visible_targets if subjects is EVERY_TYPE else reader.targets
    targets = await read(subjects, session.flags.selector)
    warning = await warning_about_status(session, targets)
    return sorted_by(sort_by, await _situations(reader, targets, session.scope)), warning


async def _situations(reader: Reader, targets: Iterable[Target], namespace: str) -> list[Situation]:
    """Return the situations from the statuses. The VMs are read only for objects whose status has no counters."""
    found, uncounted = [], dict[Resource[Any], list[Target]]()
    for target in targets:
        if getattr(target.owner.status, "updated_replicas", None) is None:
            uncounted.setdefault(target.resource, []).append(target)
        else:
            found.append(_from_status(target))
    for resource, group in uncounted.items():
        kind = group[0].kind
        rules = await reader.rules(kind, resource, [each.owner for each in group], namespace)
        for each in group:
            counted = situation_of(kind, resource.group, snapshot_of(rules, each.key)) if rules is not None else None
            found.append(counted or _from_status(each))
    return found


def _from_status(target: Target) -> Situation:
    return situation_from_status(target.kind, target.resource.group, target.owner, target.owner.status)


@on_objects(
    "tree",
    "Show an object with its VMs. WHY says what keeps a VM from being ready or up to date. With vm/NAME, show only "
    "this VM and its owner.",
    parse=parse_shown,
)
async def tree(session: Session, named: tuple[Subject | MemberName, ...], watch: bool) -> None:
    output = session.flags.output
    check_watch(session.flags, watch=watch)
    subjects, members = await owners_of(session, named)

    def table(situation: Situation, now: datetime) -> list[str]:
        some, edge = named_members(situation, members), 0 if output == WIDE else width()
        return tree_lines(situation, some, now, all_namespaces=not session.scope, width=edge)

    async def read() -> tuple[Reader, list[Situation], str]:
        reader = Reader(session, session.scope, once=True)
        targets = await reader.some_targets(subjects, session.flags.selector)
        situations = [await reader.situation(each) for each in targets]
        return reader, situations, await warning_about_status(session, targets)

    async def look() -> Picture:
        _, situations, warning = await read()
        return Picture(lambda now: [line for each in situations for line in table(each, now)], warning)

    if watch:
        await watch_pictures(await look(), look)
    reader, situations, warning = await read()
    if warning:
        note(f"Warning: {warning}")
    shown = [(each, named_members(each, members)) for each in situations]
    if output == NAME:
        for each, some in shown:
            print_lines([each.identity.path, *(member.path for member in some)])
    elif output in FOR_PROGRAMS:
        answers = [{**msgspec.to_builtins(row_of(each)), "members": some} for each, some in shown]
        print_answers(answers, output, is_list=not all(subject.name for subject in subjects))
    else:
        for number, situation in enumerate(situations):
            if number:
                print_lines([""])
            print_table(table(situation, clock.now()))
    notes_about_missing(reader.missing.values())
