"""`kubectl vmherd scale`: sets the number of VMs. A dry run names the VMs that leave."""

import msgspec

from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.flags import CLIENT, FOR_PROGRAMS, NAME
from plugin.other_writer import note_about_other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value
from plugin.reading import Reader, Target
from plugin.views.scaling import preview, preview_lines, with_replicas
from plugin.views.steering import Refused, is_paused
from plugin.writing import report, write_replicas


@on_objects(
    "scale", "Set the number of VMs. With --dry-run=client, print which VMs the controller would delete or create."
)
async def command(session: Session, subjects: Subjects, replicas: int, current_replicas: int | None) -> None:
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
    """Print what the controller would do if the object had this number of replicas. With `names`, the name of the
    object comes first. Raise Failed if the user may not read all objects in the snapshot.
    """
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
