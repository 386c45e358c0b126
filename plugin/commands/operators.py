"""`kubectl vmherd takeover`, `cleanup`, `expose` and `version`: commands of `vmherd` with the flags of kubectl."""

import sys
from typing import Any

import click
import msgspec

from controller.cli import version_line
from controller.commands import cleanup as controller_cleanup
from controller.commands import expose as controller_expose
from controller.commands import takeover as controller_takeover
from controller.commands.cleanup_options import CLEANUP_OPTIONS
from controller.commands.shared_options import SERVICE_OPTIONS, TAKEOVER_OPTIONS
from controller.config.settings import with_groups
from controller.kubevirt.resources import SERVICES
from controller.version import version as version_of_vmherd
from plugin.command import verb
from plugin.connection import Session, carry_out
from plugin.flags import CLIENT, SERVER, Flags, flags_of, given
from plugin.printing import note, print_value
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.writing import report


@verb(
    "takeover",
    "Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them. One "
    "patch of the KubeVirt object does this, and --undo removes the patch.",
)
@click.pass_context
def takeover(ctx: click.Context, /, **values: Any) -> None:
    flags = flags_of(values)
    chosen = given(ctx, TAKEOVER_OPTIONS)
    if flags.namespace:
        chosen.setdefault("kubevirt_namespace", flags.namespace)
    settings = controller_takeover.Settings(**chosen, dry_run=flags.dry_run == CLIENT)
    _announce(flags)
    carry_out(flags, lambda session: controller_takeover.run(session, settings))


@verb(
    "cleanup",
    "Remove vmherd's finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay. "
    "Without -n, all namespaces are cleaned up.",
)
@click.pass_context
def cleanup(ctx: click.Context, /, **values: Any) -> None:
    flags = flags_of(values)
    chosen = given(ctx, CLEANUP_OPTIONS)
    if flags.namespace:
        chosen.setdefault("watch_namespaces", (flags.namespace,))
    settings = controller_cleanup.Settings(**with_groups(chosen), dry_run=flags.dry_run == CLIENT)
    _announce(flags)
    carry_out(flags, lambda session: controller_cleanup.run(session, settings))


def _announce(flags: Flags) -> None:
    if flags.dry_run == SERVER:
        note("Note: this is a server dry run: the API server checks each write and stores nothing.")


@verb("expose", "Create a Service for the VMs of a replica set or pool. The Service is deleted with this object.")
@click.argument("arguments", nargs=-1, metavar=METAVAR)
@click.pass_context
def expose(ctx: click.Context, /, arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("name one object, such as vmpool/web")
    settings = controller_expose.Settings(**given(ctx, SERVICE_OPTIONS))
    controller_expose.check(settings)
    carry_out(flags, lambda session: _expose(session, subjects[0], settings))


async def _expose(session: Session, subject: Subject, settings: controller_expose.Settings) -> None:
    """Create the Service. Raise Failed, CommandFailed, ApiError."""
    [target] = await Reader(session, session.namespace).targets([subject])
    document: Any = controller_expose.service_of(str(target), target.kind, target.resource, target.owner, settings)
    if session.flags.dry_run != CLIENT:
        answer = await session.create(SERVICES, target.key.namespace, msgspec.json.encode(document))
        document = msgspec.json.decode(answer)
    report(session.flags, f"service/{settings.name}", document, "exposed")


@verb("version", "Print the version. No cluster is needed.")
def version(**values: Any) -> None:
    flags = flags_of(values)
    if flags.output:
        print_value({"clientVersion": {"version": version_of_vmherd(), "python": sys.version.split()[0]}}, flags.output)
    else:
        print(version_line())
