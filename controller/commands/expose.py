"""The Service that `kubectl vmherd expose` creates for the VMs of a replica set or pool, as `virtctl expose` does."""

from collections.abc import Mapping
from typing import Any

import click
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.owner_references import controller_reference
from controller.commands.command import CommandFailed
from controller.kinds import Kind
from controller.kubevirt.services import ServicePort, ServiceRequest, make_service
from controller.kubevirt.vmi_types import VMITemplate
from informers.resource import Resource


class Settings(Struct, frozen=True, kw_only=True):
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
