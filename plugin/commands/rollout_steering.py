"""`kubectl vmherd rollout restart`, `pause` and `resume`: restarts all VMs of an object, and pauses an object."""

from controller.kinds import POOLS
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, other_writer
from plugin.printing import note
from plugin.reading import Reader
from plugin.views.steering import Refused, pause_edits, pause_note, restart_edits, resume_edits
from plugin.writing import write


@on_objects(
    "rollout restart",
    "Restart all VMs, as fast as the update limits allow. Each VM keeps its name and its disks; a VMI of a set "
    "is replaced.",
)
async def restart(session: Session, subjects: Subjects) -> None:
    reader = Reader(session, session.namespace)
    at = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for target in await reader.some_targets(subjects, session.flags.selector):
        edits = restart_edits(target.kind, target.document, at)
        evidence = "" if target.kind is POOLS else await other_writer(session, target, {})
        if evidence:
            raise Refused(f"can't restart {target}: {KUBEVIRT_REPLACES_NONE} ({evidence})")
        await write(session, target, edits, "restarted")


@on_objects(
    "rollout pause", "Pause an object. The controller then does not update, scale or heal it until `rollout resume`."
)
async def pause(session: Session, subjects: Subjects) -> None:
    await _set_paused(session, subjects, paused=True)


@on_objects("rollout resume", "End the pause of an object, or begin the next step of a pool's update at once.")
async def resume(session: Session, subjects: Subjects) -> None:
    await _set_paused(session, subjects, paused=False)


async def _set_paused(session: Session, subjects: Subjects, *, paused: bool) -> None:
    """Pause or resume each object. Raise Refused if an object already is in this state. A resume of a pool that is
    not paused begins the next step of its update.
    """
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        if paused:
            edits = pause_edits(target.document, target.resource.name, paused=True)
        else:
            edits = resume_edits(target.owner, target.document, target.resource.name)
        await write(session, target, edits, "paused" if paused else "resumed")
        if paused and not session.flags.output:
            note(pause_note(target.kind))
