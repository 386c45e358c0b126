"""`kubectl vmherd expose`: creates a Service for the VMs of a replica set or pool."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.owner_references import controller_reference
from controller.commands import expose
from controller.commands.expose_options import SERVICE_OPTIONS
from controller.kubevirt.resources import SERVICES
from controller.kubevirt.services import make_service
from controller.kubevirt.vmi_types import VMITemplate
from plugin.connection import Failed, Session, carry_out
from plugin.flags import CLIENT, Verb, flags_of, given
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.writing import params_of, report


@click.command(
    "expose",
    cls=Verb,
    own=FLAGS["expose"],
    help="Create a Service for the VMs of a replica set or pool. The Service is deleted with this object.",
)
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
    """Create the Service. Raise Failed, ApiError."""
    [target] = await Reader(session, session.namespace).targets([subject])
    namespace = target.key.namespace
    reference = controller_reference(target.resource, target.owner.metadata)
    request = expose.service_request(settings, namespace)
    service = make_service(target.owner, target.kind.vmi_template or VMITemplate, reference, request)
    if isinstance(service, FieldError):
        raise Failed(f"error: {target} cannot be exposed: {service.message}")
    document: Any = service
    if session.flags.dry_run != CLIENT:
        body = msgspec.json.encode(service)
        answer = await session.request("POST", SERVICES.path(namespace), params=params_of(session.flags), body=body)
        document = msgspec.json.decode(answer)
    report(session.flags, f"service/{settings.name}", document, "exposed")
