"""`kubectl vmherd expose`: creates a Service for the VMs of a replica set or pool."""

from typing import Any

import click
import msgspec

from controller.commands import expose
from controller.commands.shared_options import SERVICE_OPTIONS
from controller.kubevirt.resources import SERVICES
from plugin.command import verb
from plugin.connection import Session, carry_out
from plugin.flags import CLIENT, flags_of, given
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.writing import report


@verb("expose", "Create a Service for the VMs of a replica set or pool. The Service is deleted with this object.")
@click.argument("arguments", nargs=-1, metavar=METAVAR)
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("name one object, such as vmpool/web")
    settings = expose.Settings(**given(ctx, SERVICE_OPTIONS))
    expose.check(settings)
    carry_out(flags, lambda session: run(session, subjects[0], settings))


async def run(session: Session, subject: Subject, settings: expose.Settings) -> None:
    """Create the Service. Raise Failed, CommandFailed, ApiError."""
    [target] = await Reader(session, session.namespace).targets([subject])
    document: Any = expose.service_of(str(target), target.kind, target.resource, target.owner, settings)
    if session.flags.dry_run != CLIENT:
        answer = await session.create(SERVICES, target.key.namespace, msgspec.json.encode(document))
        document = msgspec.json.decode(answer)
    report(session.flags, f"service/{settings.name}", document, "exposed")
