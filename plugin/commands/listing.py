"""`kubectl vmherd list` and `tree`: one line for each replica set and pool, and an object with its VMs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from controller.replicas.history import read_history
from informers.resource import Resource
from plugin import clock
from plugin.command import Subjects, on_each, on_objects
from plugin.commands.watching import Picture, check_watch
from plugin.commands.watching import watch as watch_pictures
from plugin.connection import Session
from plugin.flags import FOR_PROGRAMS, NAME, WIDE
from plugin.members import Named, named_members, owners_of, parse_shown
from plugin.other_writer import warning_about_status
from plugin.printing import most_lines, note, notes_about_missing, print_answers, print_lines, print_table, width
from plugin.reading import Reader, Target, situation_of, snapshot_of
from plugin.subjects import EVERY_TYPE, parse_subjects
from plugin.views.listing import fact_lines, list_lines, row_of, sorted_by, tree_answer, tree_lines
from plugin.views.situation import Member, Situation, situation_from_status

FEWEST_LINES: Final = 4
"""The least number of lines of each object in `tree`, however many objects there are."""

Shown: TypeAlias = tuple[Situation, Sequence[Member]]
"""An object with those of its members that a user wants to see."""


@on_objects("list", metavar="[TYPE [NAME...]]", parse=lambda words: parse_subjects(words) if words else EVERY_TYPE)
async def command(
    session: Session, subjects: Subjects, sort_by: str | None, label_columns: Sequence[str], watch: bool
) -> None:
    """List replica sets and pools, or only those of one TYPE."""
    flags = session.flags
    namespace = session.scope
    check_watch(flags, watch=watch)
    reader = Reader(session, namespace)
    labels, wide = [name for names in label_columns for name in names.split(",")], flags.output == WIDE

    def table(situations: list[Situation], now: datetime) -> list[str]:
        lines = list_lines(situations, now, labels, all_namespaces=not namespace, wide=wide, width=width(flags))
        return lines[flags.no_headers :]

    def picture(situations: list[Situation], warning: str) -> Picture:
        return Picture(partial(table, situations), warning, _names(session, [(each, ()) for each in situations]))

    async def look() -> Picture:
        return picture(*await read_fleet(session, reader, subjects, sort_by))

    situations, warning = await read_fleet(session, reader, subjects, sort_by)
    rows = [row_of(each) for each in situations]
    if warning and not watch:
        note(f"Warning: {warning}")
    print_answers(rows, flags.output, is_list=True)
    if flags.is_text and not rows:
        await reader.check_served(subjects)
        note(f"No resources found{session.where}.")
    elif flags.is_text and not watch:
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
    warning = await warning_about_status(session, reader, targets)
    return sorted_by(sort_by, await _situations(reader, targets, session.scope)), warning


async def _situations(reader: Reader, targets: Iterable[Target], namespace: str) -> list[Situation]:
    """Return the situations from the statuses. The VMs are read only for objects whose status has no counters."""
    found, uncounted = [], dict[Resource[Any], list[Target]]()
    for target in targets:
        if getattr(target.owner.status, "updated_replicas", None) is None:
            uncounted.setdefault(target.resource, []).append(target)
        else:
            found.append(_from_status(target))
    for group in uncounted.values():
        rules = await reader.rules(group, namespace)
        found += [
            situation_of(each.kind, each.resource.group, snapshot_of(rules, each.key)) if rules else _from_status(each)
            for each in group
        ]
    return found


def _from_status(target: Target) -> Situation:
    return situation_from_status(target.kind, target.resource.group, target.owner, target.owner.status)


def _names(session: Session, shown: Iterable[Shown]) -> frozenset[str]:
    """Return the names of sets, pools and members for a user who looks at one or at all namespaces."""
    return frozenset(
        f"{'' if session.scope else f'{owner.identity.namespace} '}{path}"
        for owner, members in shown
        for path in (owner.identity.short_path, *(each.short_path for each in members))
    )


@on_objects("tree", parse=parse_shown)
async def tree(session: Session, named: Named, watch: bool, problems: bool, whole: bool) -> None:
    """Show an object with its VMs, sick ones first. WHY says what keeps a VM from being ready or up to date. With more
    than 40 lines, VMs in the same state are one line. With vm/NAME, show only this VM and its owner.
    """
    output = session.flags.output
    check_watch(session.flags, watch=watch)
    subjects, members = await owners_of(session, named)

    async def read() -> tuple[Reader, list[Shown], str]:
        reader = Reader(session, session.scope, once=True)
        targets = await reader.some_targets(subjects, session.flags.selector)
        situations = [await reader.situation(each) for each in targets]
        shown = [(each, named_members(each, members, only_sick=problems)) for each in situations]
        return reader, shown, await warning_about_status(session, reader, targets)

    def tables(shown: Sequence[Shown], now: datetime) -> list[list[str]]:
        most = 0 if whole else max(most_lines(live=watch) // max(len(shown), 1), FEWEST_LINES)
        draw = partial(tree_lines, all_namespaces=not session.scope, width=width(session.flags), most=most)
        return [draw(*each, now)[session.flags.no_headers :] for each in shown]

    async def look() -> Picture:
        _, shown, warning = await read()
        names = _names(session, ((each, each.members) for each, _ in shown))
        return Picture(lambda now: [line for each in tables(shown, now) for line in each], warning, names)

    if watch:
        await watch_pictures(await look(), look)
    reader, shown, warning = await read()
    if warning:
        note(f"Warning: {warning}")
    if output == NAME:
        for each, some in shown:
            print_lines([each.identity.path, *(member.path for member in some)])
    elif output in FOR_PROGRAMS:
        answers = [tree_answer(each, some) for each, some in shown]
        print_answers(answers, output, is_list=not all(subject.name for subject in subjects))
    else:
        for number, lines in enumerate(tables(shown, clock.now())):
            print_table([""] * bool(number) + lines)
    notes_about_missing(reader.missing.values())


@on_each("history")
async def history(session: Session, reader: Reader, target: Target) -> None:
    """Say what happened to an object: the last facts that vmherd has noted, such as a scale, a rollout or a healing.
    The newest one comes first.
    """
    facts = read_history(target.owner.metadata)
    if session.flags.output in FOR_PROGRAMS:
        print_answers([{"name": target.path, "namespace": target.key.namespace, "facts": facts}], session.flags.output)
    elif session.flags.output == NAME:
        print_lines([target.path])
    elif facts:
        print_lines([target.path, *fact_lines(facts, clock.now(), width=width(session.flags)), ""])
    else:
        note(f"vmherd has noted nothing about {target}.")
