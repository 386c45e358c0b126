"""`kubectl vmherd scale`, `rollout restart`, `pause` and `resume`. A dry run of `scale` names the VMs that leave."""

import msgspec

from controller.kinds import POOLS
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.flags import CLIENT, FOR_PROGRAMS, NAME
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, note_about_other_writer, other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value
from plugin.reading import Reader, Target
from plugin.views.scaling import preview, preview_lines, with_replicas
from plugin.views.steering import Refused, is_paused, pause_edits, pause_note, restart_edits, resume_edits
from plugin.writing import report, write, write_replicas


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
    """Raise Refused if an object is in this state already. A resume can begin the next step of a pool's update."""
    reader = Reader(session, session.namespace)
    for target in await reader.some_targets(subjects, session.flags.selector):
        if paused:
            edits = pause_edits(target.document, target.resource.name, paused=True)
        else:
            edits = resume_edits(target.owner, target.document, target.resource.name)
        await write(session, target, edits, "paused" if paused else "resumed")
        if paused and not session.flags.output:
            note(pause_note(target.kind))


@on_objects(
    "scale", "Set the number of VMs. With --dry-run=client, print which VMs the controller would delete or create."
)
async def scale(session: Session, subjects: Subjects, replicas: int, current_replicas: int | None) -> None:
    """Scale each object. If an object has another number than `current_replicas`, raise Refused."""
    reader = Reader(session, session.namespace)
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        if current_replicas is not None and target.wanted != current_replicas:
            raise Refused(f"Expected replicas to be {current_replicas}, was {target.wanted}")
        if session.flags.dry_run == CLIENT:
            await _preview(session, reader, target, replicas, names=len(targets) > 1)
        else:
            await _scale(session, target, replicas, is_exact=current_replicas is not None)
    if session.flags.dry_run == CLIENT:
        await note_about_other_writer(session, targets)
    notes_about_missing(reader.missing.values())


async def _preview(session: Session, reader: Reader, target: Target, replicas: int, *, names: bool) -> None:
    """With `names`, the name of the object comes first. Raise Failed without permission to read the snapshot."""
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise reader.refusal("there is no preview: ")
    given = preview(with_replicas(snapshot, replicas))
    if session.flags.output in FOR_PROGRAMS:
        print_value({"name": target.path, **msgspec.to_builtins(given)}, session.flags.output)
    elif session.flags.output == NAME:
        print(target.path)
    else:
        print_lines([*([f"{target.path}:"] if names else []), *(preview_lines(given) or ["would change nothing"])])


async def _scale(session: Session, target: Target, replicas: int, *, is_exact: bool) -> None:
    answer = await write_replicas(session, target, replicas, is_exact=is_exact)
    report(session.flags, target.path, msgspec.json.decode(answer), "scaled")
    if is_paused(target.document) and not session.flags.output:
        note(f"Note: the {target.kind.noun} is paused, so nothing is scaled until it is resumed.")
