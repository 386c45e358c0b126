"""`vmherd expose`: put a Service in front of the VMs of a replica set or pool, as `virtctl expose` does.

The Service is the object's: it goes when the object is deleted. With `kubectl-vmherd` on the PATH, each command of this
program is one of kubectl's, too: `kubectl vmherd expose vmirs NAME --name SERVICE --port 80`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from controller import kinds
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.owner_references import controller_reference
from controller.commands.command import DRY_RUN, SAME, CommandFailed, carry_out, read
from controller.config.flags import Operands, UsageError
from controller.config.options import ANY_NAMESPACE, Kind, Option, Unfit, is_label, is_subdomain, one_of, whole_number
from controller.kubevirt.resources import SERVICES
from controller.kubevirt.services import ServicePort, ServiceRequest, make_service
from controller.kubevirt.vmi_types import VMITemplate
from informers.client import ApiClient
from informers.errors import NotFound
from informers.meta import ObjectKey
from informers.resource import Resource

COMMAND: Final = "vmherd expose"

EXPOSED: Final = tuple(kind for kind in kinds.KINDS if kind.vmi_template is not None)
TYPES: Final[Mapping[str, tuple[kinds.Kind[Any], str]]] = {
    **{name: (kind, kind.group) for kind in EXPOSED for name in (*kind.short_names, kind.singular, kind.plural)},
    **{name: (kind, kind.own_group) for kind in EXPOSED for name in kind.own_short_names},
}
"""The kinds by the names by which kubectl knows them, and the group in which each name is looked for."""

KNOWN_TYPES: Final = (
    f"{' or '.join(kind.short_names[0] for kind in EXPOSED)}, "
    f"or {' or '.join(kind.own_short_names[0] for kind in EXPOSED)} for those of vmherd.dev"
)

PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
PORTS: Final = range(1, 65536)
HEADLESS: Final = "None"


class Subject(Struct, frozen=True):
    """What to expose."""

    kind: kinds.Kind[Any]
    group: str
    name: str


class Settings(Struct, frozen=True, kw_only=True):
    subject: Subject = Subject(EXPOSED[0], "", "")
    kubeconfig: str = ""
    context: str = ""
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


def read_subject(words: Sequence[str]) -> Subject:
    """`vmirs NAME` or `vmirs/NAME`; the type may name its group: `virtualmachinepools.pool.example.org`."""
    parts = words[0].split("/") if len(words) == 1 else words
    if len(parts) != 2 or not is_subdomain(parts[1]):
        raise Unfit("TYPE NAME, such as vmirs testreplicaset or vmpool web")
    kind, _, group = parts[0].lower().partition(".")
    if kind not in TYPES:
        raise Unfit(KNOWN_TYPES)
    known, usual_group = TYPES[kind]
    return Subject(known, group or usual_group, parts[1])


SUBJECT: Final = Operands("subject", "TYPE NAME", f"TYPE is {KNOWN_TYPES}.", read_subject)


def _read_service_name(text: str) -> str:
    if is_label(text):
        return text
    raise Unfit("the name of a Service: small letters, digits and dashes")


def _read_port_name(text: str) -> str:
    if len(text) <= 15 and PORT_NAME.fullmatch(text):
        return text
    raise Unfit("the name of a port: up to 15 small letters, digits and dashes, such as ssh")


def _read_target(text: str) -> int | str:
    if not (text.isascii() and text.isdigit()):
        return _read_port_name(text)
    if len(text) <= 5 and int(text) in PORTS:
        return int(text)
    raise Unfit(f"a port from {PORTS[0]} to {PORTS[-1]}, or the name of one")


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise Unfit("an IP address, such as 192.0.2.1") from None


def _read_cluster_ip(text: str) -> str:
    return HEADLESS if text.lower() == HEADLESS.lower() else _read_address(text)


def _about_it(field: str, kind: Kind, help_: str, unset: str) -> Option:
    """No variables: each Service is another one, and a cluster sets VMHERD_PORT where one is named vmherd."""
    return Option(field, kind, help_, unset=unset, flag_only=True)


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "the cluster": (
        SAME["kubeconfig"],
        SAME["context"],
        Option("namespace", ANY_NAMESPACE, "where the object is", unset="that of the context", short="-n"),
    ),
    "the Service": (
        _about_it("name", Kind(read=_read_service_name, metavar="NAME"), "its name, which has to be given", "none"),
        _about_it(
            "port",
            whole_number(least=PORTS[0], most=PORTS[-1]),
            "the port that it serves on",
            "those that the template's interface on the Pod network names",
        ),
        _about_it(
            "target_port",
            Kind(read=_read_target, metavar="PORT"),
            "that port of the VMs, by number or name",
            "the same",
        ),
        _about_it("protocol", one_of("TCP", "UDP"), "what is spoken there", "TCP"),
        _about_it("port_name", Kind(read=_read_port_name, metavar="NAME"), "a name for the port", "none"),
        _about_it("type", one_of("ClusterIP", "NodePort", "LoadBalancer"), "how it is reached", "ClusterIP"),
        _about_it(
            "cluster_ip",
            Kind(read=_read_cluster_ip, metavar="IP"),
            "its address in the cluster; None makes it headless",
            "any",
        ),
        _about_it(
            "external_ip",
            Kind(read=_read_address, metavar="IP"),
            "an address that is routed to the nodes, at which it answers as well",
            "none",
        ),
        _about_it(
            "ip_family",
            one_of("IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"),
            "what addresses it has",
            "as the cluster has it",
        ),
        _about_it(
            "ip_family_policy",
            one_of("SingleStack", "PreferDualStack", "RequireDualStack"),
            "whether it has addresses of both families",
            "as the cluster has it; PreferDualStack where --ip-family names two",
        ),
    ),
    "what to do": (DRY_RUN,),
}


def main(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises UsageError, CommandFailed; `--help` prints and raises SystemExit(0)."""
    settings = read(Settings(), GROUPS, command=COMMAND, argv=argv, env=env, operands=SUBJECT)
    _check(settings)
    carry_out(settings, run)


async def run(client: ApiClient, settings: Settings) -> None:
    """Make the Service, or print what would be sent. Raises CommandFailed, ApiError."""
    namespace = settings.namespace or client.namespace
    key = ObjectKey(namespace, settings.subject.name)
    kind = settings.subject.kind
    resource = kind.resource(settings.subject.group)
    owner = await _get(client, resource, key)
    reference = controller_reference(resource, owner.metadata)
    service = make_service(owner, kind.vmi_template or VMITemplate, reference, wish_of(settings, namespace))
    if isinstance(service, FieldError):
        raise CommandFailed(f"{kind.kind} {key} cannot be exposed: {service.message}")
    if settings.dry_run:
        print(yaml.safe_dump(service, sort_keys=False), end="")
        return
    await client.create(SERVICES, namespace, msgspec.json.encode(service))
    print(f"service/{settings.name} exposed")


def wish_of(settings: Settings, namespace: str) -> ServiceRequest:
    """What the flags ask for."""
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


def _check(settings: Settings) -> None:
    if not settings.name:
        raise UsageError("expected --name as well, the name of the Service")
    about_a_port = {
        "--target-port": settings.target_port,
        "--protocol": settings.protocol,
        "--port-name": settings.port_name,
    }
    for flag, value in about_a_port.items():
        if value and not settings.port:
            raise UsageError(f"{flag} {value}: expected --port as well, because it is about that port")


async def _get(client: ApiClient, resource: Resource[Any], key: ObjectKey) -> Any:
    """Raises CommandFailed, ApiError."""
    try:
        return resource.decode(await client.get(resource, key))
    except NotFound as error:
        if error.reason:
            raise CommandFailed(f"{error} in namespace {key.namespace}") from error
        raise CommandFailed(f"this cluster has no {resource.name}") from error
