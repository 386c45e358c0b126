"""Services in front of the VMs of a set or pool: whom one selects, at which ports, and what it looks like.

KubeVirt passes the labels of a VMI on to its Pod, so a Service selects by labels of the VMI template. Those that the
owner's own selector names are the best of them: they stay as they are when a new template changes the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from controller.kubevirt.flaw import Flaw
from controller.kubevirt.markers import REVISION_NAME, TEMPLATE_HASH
from controller.kubevirt.owners import controller_reference
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.types import LabelSelector, ReplicaSet, VMITemplate
from informers.resource import Resource

NOT_COMMON: Final = frozenset(
    {
        REVISION_NAME,
        TEMPLATE_HASH,
        "kubevirt.io",
        "kubevirt.io/created-by",
        "kubevirt.io/nodeName",
        "vm.kubevirt.io/name",
        "vmi.kubevirt.io/id",
    }
)
"""Labels that differ from VM to VM, or that KubeVirt gives a value of its own on the Pod: no Service selects by them."""


class ServicePort(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of a Service's ports. What is empty is left to the API server."""

    port: int
    name: str = ""
    protocol: str = ""
    target_port: int | str = ""


class ServiceWish(Struct, frozen=True, kw_only=True):
    """What somebody asks of a Service. What is empty is left to the API server; ports, to the template."""

    name: str
    namespace: str
    type: str = ""
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = ""
    external_ip: str = ""
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str = ""


class _InterfacePort(Struct, frozen=True):
    port: int
    protocol: str | None = None


class _Interface(Struct, frozen=True):
    name: str = ""
    ports: tuple[_InterfacePort, ...] | None = None


class _Devices(Struct, frozen=True):
    interfaces: tuple[_Interface, ...] | None = None


class _Domain(Struct, frozen=True):
    devices: _Devices | None = None


class _Network(Struct, frozen=True):
    name: str = ""
    pod: Raw | None = None


class _VMISpec(Struct, frozen=True):
    domain: _Domain | None = None
    networks: tuple[_Network, ...] | None = None


class _VMSpec(Struct, frozen=True):
    template: VMITemplate | None = None


def service_of_set(replicaset: ReplicaSet, resource: Resource[ReplicaSet], wish: ServiceWish) -> bytes | Flaw:
    """The Service for a set's VMIs, as JSON; or why there cannot be one."""
    try:
        spec = replicaset.spec
        return _service(spec.template, spec.selector, controller_reference(resource, replicaset.metadata), wish)
    except msgspec.DecodeError as error:
        return Flaw(f"its template cannot be read: {error}")
