"""`vmherd expose`: creates a Service for the VMs of a replica set or pool, as `virtctl expose` does.

The replica set or pool owns the Service. So Kubernetes deletes the Service when its owner is deleted. With the program
`kubectl-vmherd` on the PATH, kubectl offers the same commands. An example is `kubectl vmherd expose vmirs NAME --name
SERVICE --port 80`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
import msgspec
import yaml
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import is_subdomain
from controller.apimachinery.owner_references import controller_reference
from controller.commands.command import CommandFailed, carry_out
from controller.commands.shared_options import DRY_RUN, SERVICE_OPTIONS
from controller.config.options import Command, Option, chosen
from controller.config.settings import OPTIONS, Connection
from controller.config.types import ANY_NAMESPACE
from controller.kinds import KINDS, Kind, types_of
from controller.kubevirt.resources import SERVICES
from controller.kubevirt.services import ServicePort, ServiceRequest, make_service
from controller.kubevirt.vmi_types import VMITemplate
from controller.preflight.versions import served_resource
from informers.errors import NotFound
from informers.http.client import ApiClient
from informers.meta import ObjectKey
from informers.resource import Resource

EXPOSED: Final = tuple(kind for kind in KINDS if kind.vmi_template is not None)
TYPES: Final = types_of(EXPOSED)
KNOWN_TYPES: Final = (
    f"{' or '.join(kind.short_names[0] for kind in EXPOSED)}, "
    f"or {' or '.join(kind.own_short_names[0] for kind in EXPOSED)} for kinds in the groups of vmherd.dev"
)


class Subject(Struct, frozen=True):
    kind: Kind[Any]
    group: str
    name: str


class Settings(Connection, frozen=True, kw_only=True):
    subject: Subject = Subject(EXPOSED[0], "", "")
    namespace: str = ""
    name: str = ""
    port: int = 0
    target_port: int | str = ""
    protocol: str = ""
    port_name: str = ""
    type: str = ""
    cluster_ip: str = ""
    external_ip: str = ""
    ip_family: str = ""
    ip_family_policy: str = ""
    dry_run: bool = False


def read_subject(arguments: Sequence[str]) -> Subject:
    """Return the object that the arguments `vmirs NAME` or `vmirs/NAME` name.

    An API group may follow the type after a dot: `virtualmachinepools.pool.example.org`. Raises ValueError.
    """
    parts = arguments[0].split("/") if len(arguments) == 1 else arguments
    if len(parts) != 2 or not is_subdomain(parts[1]):
        raise ValueError("a type and a name, such as vmirs testreplicaset or vmpool web")
    kind, _, group = parts[0].lower().partition(".")
    if kind not in TYPES:
        raise ValueError(KNOWN_TYPES)
    known, usual_group = TYPES[kind]
    return Subject(known, group or usual_group, parts[1])


def _subject(ctx: click.Context, param: click.Parameter, arguments: Sequence[str]) -> Subject:
    try:
        return read_subject(arguments)
    except ValueError as error:
        given = f"{' '.join(arguments)!r} is invalid; " if arguments else ""
        raise click.BadParameter(f"{given}expected {error}", ctx=ctx, param=param) from error


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (
        OPTIONS["kubeconfig"],
        OPTIONS["context"],
        Option(
            "namespace", ANY_NAMESPACE, "the namespace of the object", unset="the namespace of the context", short="-n"
        ),
    ),
    "The Service": SERVICE_OPTIONS,
    "What to do": (DRY_RUN,),
}


@click.command("expose", cls=Command, groups=GROUPS, help=f"Create a Service. TYPE is {KNOWN_TYPES}.")
@click.argument("subject", nargs=-1, metavar="TYPE NAME", callback=_subject)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    settings = Settings(**chosen(ctx))
    check(settings)
    carry_out(settings, run)


async def run(client: ApiClient, settings: Settings) -> None:
    """Create the Service. With `--dry-run`, only print the Service as YAML. Raises CommandFailed, ApiError."""
    namespace = settings.namespace or client.namespace
    kind, key = settings.subject.kind, ObjectKey(namespace, settings.subject.name)
    resource = await served_resource(client, kind, settings.subject.group)
    owner = await _get(client, resource, key)
    service = service_of(f"{kind.kind} {key}", kind, resource, owner, settings)
    if settings.dry_run:
        print(yaml.safe_dump(service, sort_keys=False), end="")
        return
    await client.create(SERVICES, namespace, msgspec.json.encode(service))
    print(f"service/{settings.name} exposed")


def service_of(
    subject: str, kind: Kind[Any], resource: Resource[Any], owner: Any, settings: Settings
) -> Mapping[str, object]:
    """Return the manifest of a Service for the VMs of `owner`. Raise CommandFailed, which calls the owner `subject`."""
    reference = controller_reference(resource, owner.metadata)
    request = service_request(settings, owner.metadata.namespace)
    service = make_service(owner, kind.vmi_template or VMITemplate, reference, request)
    if isinstance(service, FieldError):
        raise CommandFailed(f"{subject} cannot be exposed: {service.message}")
    return service


def service_request(settings: Settings, namespace: str) -> ServiceRequest:
    port = ServicePort(
        settings.port, name=settings.port_name, protocol=settings.protocol, target_port=settings.target_port
    )
    families = tuple(settings.ip_family.split(",")) if settings.ip_family else ()
    return ServiceRequest(
        name=settings.name,
        namespace=namespace,
        type=settings.type,
        ports=(port,) if settings.port else (),
        cluster_ip=settings.cluster_ip,
        external_ip=settings.external_ip,
        ip_families=families,
        ip_family_policy=settings.ip_family_policy or ("PreferDualStack" if len(families) > 1 else ""),
    )


def check(settings: Settings) -> None:
    """Raise click.UsageError if an option describes the port of the Service, but `--port` is missing."""
    about_a_port = {
        "--target-port": settings.target_port,
        "--protocol": settings.protocol,
        "--port-name": settings.port_name,
    }
    for flag, value in about_a_port.items():
        if value and not settings.port:
            raise click.UsageError(f"{flag} needs --port as well, because it describes that port")


async def _get(client: ApiClient, resource: Resource[Any], key: ObjectKey) -> Any:
    """Return the object to expose. Raises CommandFailed if the object does not exist, and ApiError for other errors."""
    try:
        return resource.decode(await client.get(resource, key))
    except NotFound as error:
        if error.reason:
            raise CommandFailed(f"{error} in namespace {key.namespace}") from error
        raise CommandFailed(f"this cluster has no {resource.name}") from error
