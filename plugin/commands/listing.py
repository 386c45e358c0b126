"""`kubectl vmherd list` and `tree`: one line for each replica set and pool, and an object with its VMs."""

from collections.abc import Iterable

from controller.kinds import KINDS
from informers.meta import ObjectKey
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.flags import FOR_PROGRAMS, NAME, WIDE
from plugin.members import MemberName, named_members, owners_of, parse_shown
from plugin.printing import note, notes_about_missing, print_answers, print_lines, print_table, print_value, width
from plugin.reading import Reader, Target, snapshot_of
from plugin.subjects import Subject, parse_subjects
from plugin.views.listing import list_lines, row_of, tree_lines
from plugin.views.situation import Situation
from plugin.views.situations import situation_from_status, situation_of

EVERY_TYPE = tuple(Subject(kind, group) for kind in KINDS for group in (kind.group, kind.own_group))


@on_objects(
    "list",
    "List replica sets and pools, or only those of one TYPE.",
    metavar="[TYPE [NAME...]]",
    parse=lambda arguments: parse_subjects(arguments) if arguments else EVERY_TYPE,
)
async def command(session: Session, subjects: Subjects) -> None:
    flags = session.flags
    namespace = session.scope
    reader = Reader(session, namespace)
    read = reader.visible_targets if subjects is EVERY_TYPE else reader.targets
    targets = await read(subjects, flags.selector)
    situations = await _situations(reader, targets, namespace)
    situations.sort(key=lambda each: (each.identity.namespace, each.identity.plural, each.identity.name))
    rows = [row_of(each) for each in situations]
    if flags.output in FOR_PROGRAMS:
        print_value(rows, flags.output)
    elif flags.output == NAME:
        print_lines(row.name for row in rows)
    elif not rows:
        await reader.check_served(subjects)
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


@on_objects(
    "tree",
    "Show an object with its VMs. WHY says what keeps a VM from being ready or up to date. With vm/NAME, show only "
    "this VM and its owner.",
    parse=parse_shown,
)
async def tree(session: Session, named: tuple[Subject | MemberName, ...]) -> None:
    reader = Reader(session, session.scope, once=True)
    subjects, members = await owners_of(session, named)
    targets = await reader.some_targets(subjects, session.flags.selector)
    situations = [await reader.situation(target) for target in targets]
    shown = [named_members(each, members) for each in situations]
    output = session.flags.output
    if output == NAME:
        for each, some in zip(situations, shown, strict=True):
            print_lines([each.identity.path, *(member.path for member in some)])
    elif output in FOR_PROGRAMS:
        found = [(each.identity, some) for each, some in zip(situations, shown, strict=True)]
        print_answers(
            [{"name": this.path, "namespace": this.namespace, "members": some} for this, some in found], output
        )
    else:
        edge = 0 if output == WIDE else width()
        for number, situation in enumerate(situations):
            if number:
                print_lines([""])
            some = shown[number]
            print_table(tree_lines(situation, some, clock.now(), all_namespaces=not session.scope, width=edge))
    notes_about_missing(reader.missing.values())
