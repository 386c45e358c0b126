"""`kubectl vmherd scale`: sets the number of VMs. A dry run names the VMs that leave."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from informers.objects import PatchType
from plugin.connection import Failed, Session, carry_out
from plugin.flags import CLIENT, JSON, NAME, YAML, Verb, flags_of
from plugin.other_writer import note_about_other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value
from plugin.reading import Reader, Target
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.scaling import preview, preview_lines
from plugin.views.steering import is_paused
from plugin.writing import params_of, report


@click.command(
    "scale",
    cls=Verb,
    own=FLAGS["scale"],
    help="Set the number of VMs. With --dry-run=client, print which VMs the controller would delete or create.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], replicas: int, current_replicas: int | None, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: run(session, subjects, replicas, current_replicas))


async def run(session: Session, subjects: tuple[Subject, ...], replicas: int, expected: int | None) -> None:
    """Scale each object. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        found = 1 if target.owner.spec.replicas is None else target.owner.spec.replicas
        if expected is not None and found != expected:
            raise Failed(f"error: Expected replicas to be {expected}, was {found}")
        if session.flags.dry_run == CLIENT:
            await _preview(session, reader, target, replicas)
        else:
            await _scale(session, target, replicas, expected)
    if session.flags.dry_run == CLIENT:
        await note_about_other_writer(session, targets)
    notes_about_missing(reader.missing.values())


async def _preview(session: Session, reader: Reader, target: Target, replicas: int) -> None:
    """Print what the controller would do if the object had this number of replicas. Raise Failed if the user may not
    read all objects in the snapshot.
    """
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise Failed("".join(f"error: there is no preview: {line}\n" for line in reader.missing.values()))
    given = preview(snapshot, replicas)
    if session.flags.output in (JSON, YAML):
        print_value({"name": target.path, **msgspec.to_builtins(given)}, session.flags.output)
    elif session.flags.output == NAME:
        print(target.path)
    else:
        print_lines(preview_lines(given))


async def _scale(session: Session, target: Target, replicas: int, expected: int | None) -> None:
    """Write the number through the subresource `scale`, as kubectl does. Raise ApiError."""
    body: dict[str, Any] = {"spec": {"replicas": replicas}, "metadata": {"uid": target.owner.metadata.uid}}
    if expected is not None:
        # The number was read from this version of the object.
        body["metadata"]["resourceVersion"] = target.owner.metadata.resource_version
    answer = await session.request(
        "PATCH",
        target.resource.path(*target.key, "scale"),
        params=params_of(session.flags),
        body=msgspec.json.encode(body),
        content_type=PatchType.MERGE,
    )
    report(session.flags, target.path, msgspec.json.decode(answer), "scaled")
    if is_paused(target.document) and not session.flags.output:
        note(f"Note: the {target.kind.noun} is paused, so nothing is scaled until it is resumed.")
