"""`kubectl vmherd rollout history`: lists the revisions of an object, or prints one of them."""

from __future__ import annotations

from typing import Any

import click
from msgspec import Struct

from controller.kinds import POOLS
from controller.kubevirt.resources import VMIS, VMS
from plugin import clock
from plugin.connection import Failed, Session, carry_out
from plugin.flags import YAML, Verb, flags_of
from plugin.other_writer import other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value, width
from plugin.reading import Reader, Target
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.history import History, HistoryError, find_revision, history_lines, template_in
from plugin.views.pool_history import history_of_pool
from plugin.views.set_history import history_of_set

KUBEVIRT_KEEPS_NONE = "KubeVirt's own controller runs this set, and keeps no templates of sets"
NONE_YET = (
    "vmherd has stored no template of this set. It stores the first one within five minutes after its start, "
    "unless it runs with --no-replicaset-history"
)


class Past(Struct, frozen=True):
    """The history of an object, and the snapshot that it was read with.

    `other_writer` is the evidence that KubeVirt's own controller works on a set, or "".
    """

    snapshot: Any
    history: History
    other_writer: str = ""


@click.command(
    "history",
    cls=Verb,
    own=FLAGS["rollout history"],
    help="List the templates that an object can return to. CHANGES has the fields that differ from the line above.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], revision: int, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects, revision))


async def run(session: Session, subjects: tuple[Subject, ...], revision: int) -> None:
    """Print the history of each object. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        past = await past_of(session, reader, target)
        try:
            if revision:
                template = template_in(find_revision(past.history, revision))
                if not session.flags.output:
                    print(f"{target.path} with revision #{revision}")
                print_value(template, session.flags.output or YAML)
                continue
        except HistoryError as error:
            raise Failed(f"error: {error}") from error
        if session.flags.output:
            print_value(past.history.rows, session.flags.output)
        else:
            print_lines([target.path, *history_lines(past.history, clock.now(), width=width()), ""])
        if past.other_writer and not session.flags.output:
            note(f"Note: {KUBEVIRT_KEEPS_NONE} ({past.other_writer})")
    notes_about_missing(reader.missing.values())


async def past_of(session: Session, reader: Reader, target: Target) -> Past:
    """Return the history of an object. Without permission to read its VMs, their number is not known.

    Raise Failed if the object has no history, or if the user may not read its revisions.
    """
    snapshot = await reader.snapshot(target, without=(VMS, VMIS))
    revisions = await reader.revisions_of(target) if snapshot is not None and target.kind is not POOLS else ()
    if snapshot is None or revisions is None:
        raise Failed("".join(f"error: {line}\n" for line in reader.missing.values()))
    if target.kind is POOLS:
        # The history of a pool uses no VMI.
        reader.missing.pop(VMIS.name, None)
        return Past(snapshot, history_of_pool(snapshot, counts=VMS.name not in reader.missing))
    evidence = await other_writer(session, target, {})
    if not revisions:
        why = f"{KUBEVIRT_KEEPS_NONE} ({evidence})" if evidence else NONE_YET
        raise Failed(f"error: {target} has no rollout history: {why}")
    return Past(snapshot, history_of_set(snapshot, revisions, counts=VMIS.name not in reader.missing), evidence)
