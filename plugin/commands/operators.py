"""`kubectl vmherd takeover`, `cleanup`, `expose` and `version`: commands of `vmherd` with the flags of kubectl."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import click
import msgspec

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.owner_references import controller_reference
from controller.cli import version_line
from controller.commands import cleanup as controller_cleanup
from controller.commands import takeover as controller_takeover
from controller.commands.cleanup_options import CLEANUP_OPTIONS
from controller.commands.shared_options import SERVICE_OPTIONS, TAKEOVER_OPTIONS
from controller.config.options import write_sections
from controller.config.settings import with_groups
from controller.kubevirt.resources import SERVICES
from controller.kubevirt.services import ServicePort, ServiceRequest, make_service
from controller.kubevirt.vmi_types import VMITemplate
from controller.version import version as version_of_vmherd
from plugin.command import verb
from plugin.connection import Failed, Session, carry_out
from plugin.flags import CLIENT, CONNECTION, SERVER, Flags, flags_of, given
from plugin.printing import note, print_value
from plugin.reading import Reader
from plugin.subjects import MEMBER_TYPES, METAVAR, Subject, parse_subjects
from plugin.writing import report


@verb("takeover")
@click.pass_context
def takeover(ctx: click.Context, /, **values: Any) -> None:
    """Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them. One
    patch of the KubeVirt object does this, and --undo removes the patch.
    """
    flags = flags_of(values)
    within = {"kubevirt_namespace": flags.namespace} if flags.namespace else {}
    _run(controller_takeover, flags, {**within, **given(ctx, TAKEOVER_OPTIONS)})


@verb("cleanup")
@click.pass_context
def cleanup(ctx: click.Context, /, **values: Any) -> None:
    """Remove vmherd's finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay. Without
    -n, all namespaces are cleaned up.
    """
    flags = flags_of(values)
    within = {"watch_namespaces": (flags.namespace,)} if flags.namespace else {}
    _run(controller_cleanup, flags, with_groups({**within, **given(ctx, CLEANUP_OPTIONS)}))


def _run(command: ModuleType, flags: Flags, chosen: Mapping[str, Any]) -> None:
    settings = command.Settings(**chosen, dry_run=flags.dry_run == CLIENT)
    if flags.dry_run == SERVER:
        note("Note: this is a server dry run: the API server checks each write and stores nothing.")
    carry_out(flags, lambda session: command.run(session, settings))


@verb("expose")
@click.argument("arguments", nargs=-1, metavar=METAVAR)
@click.pass_context
def expose(ctx: click.Context, /, arguments: tuple[str, ...], **values: Any) -> None:
    """Create a Service for the VMs of a replica set or pool. The Service is deleted with this object."""
    type_, _, name = "/".join(arguments).partition("/")
    if type_.lower().partition(".")[0] in MEMBER_TYPES:
        raise click.UsageError(f"a Service of one VM: virtctl expose {type_} {name} --name={name} --port=PORT")
    subjects, flags = parse_subjects(arguments), flags_of(values)
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("name one object, such as vmpool/web")
    chosen = given(ctx, SERVICE_OPTIONS)
    for name in ("target_port", "protocol", "port_name"):
        if chosen.get(name) and not chosen.get("port"):
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} needs --port as well, because it describes that port")
    carry_out(flags, lambda session: _expose(session, subjects[0], chosen))


async def _expose(session: Session, subject: Subject, chosen: Mapping[str, Any]) -> None:
    target = await Reader(session, session.namespace).target(subject)
    chosen = {"name": subject.name, **chosen}
    reference = controller_reference(target.resource, target.owner.metadata)
    request = service_request(chosen, target.key.namespace)
    document: Any = make_service(target.owner, target.kind.vmi_template or VMITemplate, reference, request)
    if isinstance(document, FieldError):
        raise Failed(f"{target} cannot be exposed: {document.message}")
    if session.flags.dry_run != CLIENT:
        answer = await session.create(SERVICES, target.key.namespace, msgspec.json.encode(document))
        document = msgspec.json.decode(answer)
    report(session.flags, f"service/{chosen['name']}", document, "exposed")


def service_request(chosen: Mapping[str, Any], namespace: str) -> ServiceRequest:
    """Return the request of the options `SERVICE_OPTIONS` that a user has set, as `virtctl expose` reads them."""
    given = {**dict.fromkeys((option.name or "" for option in SERVICE_OPTIONS), ""), **chosen}
    port = ServicePort(
        given["port"] or 0, name=given["port_name"], protocol=given["protocol"], target_port=given["target_port"]
    )
    families = tuple(given["ip_family"].split(",")) if given["ip_family"] else ()
    return ServiceRequest(
        name=given["name"],
        namespace=namespace,
        type=given["type"],
        ports=(port,) if port.port else (),
        cluster_ip=given["cluster_ip"],
        external_ip=given["external_ip"],
        ip_families=families,
        ip_family_policy=given["ip_family_policy"] or ("PreferDualStack" if len(families) > 1 else ""),
    )


@verb("version")
def version(**values: Any) -> None:
    """Print the version. No cluster is needed."""
    flags = flags_of(values)
    if flags.output:
        print_value({"clientVersion": {"version": version_of_vmherd(), "python": sys.version.split()[0]}}, flags.output)
    else:
        print(version_line())


@click.command("options")
@click.pass_context
def options(ctx: click.Context) -> None:
    """Print the flags of the connection to the cluster. All commands have them."""
    formatter = ctx.make_formatter()
    write_sections({"Flags of all commands": CONNECTION}, ctx, formatter)
    print(formatter.getvalue(), end="")
