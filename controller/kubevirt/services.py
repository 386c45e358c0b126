"""Services in front of the VMs of a set or pool: whom one selects, at which ports, and what it looks like.

KubeVirt passes the labels of a VMI on to its Pod, so a Service selects by labels of the VMI template. Those that the
owner's own selector names are the best of them: they stay as they are when a new template changes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector
from controller.kubevirt.annotations import REVISION_NAME, TEMPLATE_HASH
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import OwnerReference

T = TypeVar("T", bound=Any)

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
"""Labels that no Service selects by: they differ from VM to VM, or KubeVirt gives the Pod a value of its own."""


class ServicePort(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of a Service's ports. What is empty is left to the API server."""

    port: int
    name: str = ""
    protocol: str = ""
    target_port: int | str = ""


class ServiceRequest(Struct, frozen=True, kw_only=True):
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
    pod: Mapping[str, object] | None = None


class _VMISpec(Struct, frozen=True):
    domain: _Domain | None = None
    networks: tuple[_Network, ...] | None = None


class _VMSpec(Struct, frozen=True):
    template: VMITemplate | None = None


def make_service(
    owner: T, template_of: Callable[[T], VMITemplate], reference: OwnerReference, wish: ServiceRequest
) -> Mapping[str, object] | FieldError:
    """The Service in front of the owner's VMs, which goes when the owner does; or why there cannot be one.

    `template_of` finds the owner's VMI template.
    """
    try:
        template = template_of(owner)
        ports = wish.ports or _ports_of(template)
    except msgspec.DecodeError as error:
        return FieldError(f"its template cannot be read: {error}")
    selector = choose_selector(owner.spec.selector, _labels_of(template))
    if not selector:
        return FieldError("its template gives VMIs no labels that a Service could select by")
    if not ports:
        return FieldError("its template names no ports of the Pod network: say which with --port")
    spec = {
        "type": wish.type,
        "selector": selector,
        "ports": [msgspec.to_builtins(port) for port in ports],
        "clusterIP": wish.cluster_ip,
        "externalIPs": [wish.external_ip] if wish.external_ip else [],
        "ipFamilies": list(wish.ip_families),
        "ipFamilyPolicy": wish.ip_family_policy,
    }
    # The owner may go before its Service has: nobody but the garbage collector cares for that one.
    owners = [msgspec.to_builtins(structs.replace(reference, block_owner_deletion=False))]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": wish.name, "namespace": wish.namespace, "ownerReferences": owners},
        "spec": {field: value for field, value in spec.items() if value},
    }


def choose_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> dict[str, str]:
    """Which labels of a VMI template to select by; none where it has none that all of its VMIs keep.

    Expressions are nothing that a Service could repeat, and a pool's selector may name labels that only VMs have: then
    all labels of the template have to do.
    """
    common = {key: value for key, value in sorted(labels.items()) if key not in NOT_COMMON}
    if selector is None or selector.match_expressions:
        return common
    named = dict(sorted((selector.match_labels or {}).items()))
    return named if named and named.items() <= common.items() else common


def template_of_replicaset(owner: ReplicaSet) -> VMITemplate:
    return owner.spec.template or VMITemplate()


def template_of_pool(owner: Pool) -> VMITemplate:
    """Raises msgspec.DecodeError."""
    machine = owner.spec.virtual_machine_template
    spec = msgspec.json.decode(machine.spec, type=_VMSpec) if machine is not None and machine.spec else _VMSpec()
    return spec.template or VMITemplate()


def _labels_of(template: VMITemplate) -> Mapping[str, str]:
    return (template.metadata.labels if template.metadata is not None else None) or {}


def _ports_of(template: VMITemplate) -> tuple[ServicePort, ...]:
    """The ports of the interface that is on the Pod network. Raises msgspec.DecodeError."""
    spec = msgspec.json.decode(template.spec, type=_VMISpec) if template.spec else _VMISpec()
    network = next((network.name for network in spec.networks or () if network.pod is not None), None)
    devices = spec.domain.devices if spec.domain is not None else None
    interfaces = (devices.interfaces if devices is not None else None) or ()
    ports = next((interface.ports for interface in interfaces if interface.name == network), None) or ()
    return tuple(
        ServicePort(port.port, name=f"port-{number}", protocol=port.protocol or "")
        for number, port in enumerate(ports, start=1)
    )
