"""`kubectl vmherd scale`, `rollout restart`, `pause` and `resume`. A dry run of `scale` names the VMs that leave."""

from contextlib import suppress

import msgspec

from controller.apimachinery.conditions import time_text
from controller.kinds import POOLS
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.runtime.execute.disk_check import DiskCheck
from informers.errors import Forbidden
from plugin import clock
from plugin.command import Subjects, on_each, on_objects
from plugin.connection import Session
from plugin.flags import CLIENT
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, note_about_other_writer, other_writer
from plugin.printing import note, notes_about_missing, print_answers, print_lines
from plugin.reading import Reader, Target
from plugin.views.scaling import creates_in, preview, preview_lines, with_obstacles, with_replicas
from plugin.views.steering import Refused, is_paused, pause_edits, pause_note, restart_edits, resume_edits
from plugin.writing import report, write, write_replicas


@on_each("rollout restart")
async def restart(session: Session, _: Reader, target: Target) -> None:
    """Restart all VMs, as fast as the update limits allow. Each VM keeps its name and its disks; a VMI of a set is
    replaced.
    """
    edits = restart_edits(target.kind, target.document, time_text(clock.now()))
    evidence = "" if target.kind is POOLS else await other_writer(session, target, {})
    if evidence:
        raise Refused(f"can't restart {target}: {KUBEVIRT_REPLACES_NONE} ({evidence})")
    await write(session, target, edits, "restarted")


@on_each("rollout pause")
async def pause(session: Session, _: Reader, target: Target) -> None:
    """Pause an object. The controller then does not update, scale or heal it until `rollout resume`."""
    await write(session, target, pause_edits(target.document, target.resource.name, paused=True), "paused")
    if not session.flags.output:
        note(pause_note(target.kind))


@on_each("rollout resume")
async def resume(session: Session, _: Reader, target: Target) -> None:
    """End the pause of an object, or begin the next step of a pool's update at once."""
    await write(session, target, resume_edits(target.owner, target.document, target.resource.name), "resumed")


@on_objects("scale")
async def scale(session: Session, subjects: Subjects, replicas: int, current_replicas: int | None) -> None:
    """Set the number of VMs. With --dry-run=client, print which VMs the controller would delete or create."""
    reader = Reader(session, session.namespace)
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        with session.going_on():
            if current_replicas is not None and target.wanted != current_replicas:
                raise Refused(f"{target}: Expected replicas to be {current_replicas}, was {target.wanted}")
            if session.flags.dry_run == CLIENT:
                await _preview(session, reader, target, replicas, names=len(targets) > 1)
            else:
                answer = await write_replicas(session, target, replicas, is_exact=current_replicas is not None)
                report(session.flags, target.path, msgspec.json.decode(answer), "scaled")
                if is_paused(target.document) and not session.flags.output:
                    note(f"Note: the {target.kind.noun} is paused, so nothing is scaled until it is resumed.")
    if session.flags.dry_run == CLIENT:
        await note_about_other_writer(session, targets)
    notes_about_missing(reader.missing.values())


async def _preview(session: Session, reader: Reader, target: Target, replicas: int, *, names: bool) -> None:
    """With `names`, the name of the object comes first. Raise Failed without permission to read the snapshot."""
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise reader.refusal("there is no preview: ")
    given = preview(changed := with_replicas(snapshot, replicas))
    if isinstance(changed, PoolSnapshot) and given.creating:
        creates = creates_in(plan_pool(changed))
        check = DiskCheck(session, creates)
        with suppress(Forbidden):  # without the right to read disks, nothing is known about them
            given = with_obstacles(given, {each.key.name: await check.obstacle(each) for each in creates})
    print_answers([{"name": target.path, **msgspec.to_builtins(given)}], session.flags.output)
    if session.flags.is_text:
        print_lines([*([f"{target.path}:"] if names else []), *(preview_lines(given) or ["would change nothing"])])
