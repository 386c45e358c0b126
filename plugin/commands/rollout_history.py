"""`kubectl vmherd rollout history`: lists the revisions of an object, or prints one of them."""

from typing import Any

from msgspec import Struct

from controller.kinds import POOLS
from controller.kubevirt.resources import VMIS, VMS
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.flags import YAML
from plugin.other_writer import other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value, width
from plugin.reading import Reader, Target
from plugin.views.history import History, find_revision, history_lines, template_in
from plugin.views.pool_history import history_of_pool
from plugin.views.set_history import history_of_set
from plugin.views.steering import Refused

KUBEVIRT_KEEPS_NONE = "KubeVirt's own controller runs this set, and keeps no templates of sets"
NONE_YET = "vmherd has stored no template of this set. It stores the first one within five minutes after its start"


class Past(Struct, frozen=True):
    """The history of an object, and the snapshot that it was read with.

    `other_writer` is the evidence that KubeVirt's own controller works on a set, or "".
    """

    snapshot: Any
    history: History
    other_writer: str = ""


@on_objects(
    "rollout history",
    "List the templates that an object can return to. CHANGES has the fields that differ from the line above, "
    "and EFFECT is what this difference does to a running VM.",
)
async def command(session: Session, subjects: Subjects, revision: int) -> None:
    """Print the history of each object, or the template of one revision."""
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        past = await past_of(session, reader, target)
        if revision:
            template = template_in(find_revision(past.history, revision))
            if not session.flags.output:
                print(f"{target.path} with revision #{revision}")
            print_value(template, session.flags.output or YAML)
            continue
        if session.flags.output:
            print_value(past.history.rows, session.flags.output)
        else:
            print_lines([target.path, *history_lines(past.history, clock.now(), width=width()), ""])
        if past.other_writer and not session.flags.output:
            note(f"Note: {KUBEVIRT_KEEPS_NONE} ({past.other_writer})")
    notes_about_missing(reader.missing.values())


async def past_of(session: Session, reader: Reader, target: Target) -> Past:
    """Return the history of an object. Without permission to read its VMs, their number is not known.

    Raise Refused if the object has no history. Raise Failed if the user may not read its revisions.
    """
    snapshot = await reader.snapshot(target, without=(VMS, VMIS))
    revisions = await reader.revisions_of(target) if snapshot is not None and target.kind is not POOLS else ()
    if snapshot is None or revisions is None:
        for name in (VMS.name, VMIS.name):  # the history does not need them
            reader.missing.pop(name, None)
        raise reader.refusal()
    if target.kind is POOLS:
        # The history of a pool uses no VMI.
        reader.missing.pop(VMIS.name, None)
        return Past(snapshot, history_of_pool(snapshot, counts=VMS.name not in reader.missing))
    evidence = await other_writer(session, target, {})
    if not revisions:
        why = f"{KUBEVIRT_KEEPS_NONE} ({evidence})" if evidence else NONE_YET
        raise Refused(f"{target} has no rollout history: {why}")
    return Past(snapshot, history_of_set(snapshot, revisions, counts=VMIS.name not in reader.missing), evidence)
