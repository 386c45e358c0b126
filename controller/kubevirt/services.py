"""Functions that make the manifest of a Service for the VMs of a set or pool.

KubeVirt copies the labels of a VMI to its Pod. So a Service can select Pods by labels of the VMI template. The best
labels are the labels in the selector of the set or pool, because a new template does not change these labels.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector
from controller.kubevirt.annotations import IN_SERVICE, REVISION_NAME, TEMPLATE_HASH
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
"""Labels that no Service must select by: they differ between the VMs, or KubeVirt sets another value on the Pod."""


class ServicePort(Struct, frozen=True, rename="camel", omit_defaults=True):
    port: int
    name: str = ""
    protocol: str = ""
    target_port: int | str = ""


class ServiceRequest(Struct, frozen=True, kw_only=True):
    """The user's settings for a Service. Empty ones have the server's default, or the template's `ports`."""

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
    owner: T, template_of: Callable[[T], VMITemplate], reference: OwnerReference, request: ServiceRequest
) -> Mapping[str, object] | FieldError:
    """Return the manifest of a Service for the VMs of a set or pool, which owns it, so the garbage collector deletes
    it.

    Return a FieldError if the template is invalid, has no common labels, or has no ports, as the request. `template_of`
    returns the VMI template of the set or pool.
    """
    try:
        template = template_of(owner)
        ports = request.ports or _ports_of(template)
    except msgspec.DecodeError as error:
        return FieldError(f"its template cannot be read: {error}")
    labels = template.metadata.labels if template.metadata is not None else None
    selector = choose_selector(owner.spec.selector, labels or {})
    if not selector:
        return FieldError("its template has no labels for VMIs that a Service can select by")
    if not ports:
        return FieldError("its template has no ports on the Pod network: set the ports with --port")
    spec = {
        "type": request.type,
        "selector": selector,
        "ports": [msgspec.to_builtins(port) for port in ports],
        "clusterIP": request.cluster_ip,
        "externalIPs": [request.external_ip] if request.external_ip else [],
        "ipFamilies": list(request.ip_families),
        "ipFamilyPolicy": request.ip_family_policy,
    }
    # The deletion of the owner does not have to wait for the Service. The garbage collector deletes the Service later.
    owners = [msgspec.to_builtins(structs.replace(reference, block_owner_deletion=False))]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": request.name, "namespace": request.namespace, "ownerReferences": owners},
        "spec": {field: value for field, value in spec.items() if value},
    }


def choose_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a VMI template by which a Service selects, or nothing without common labels.

    Common labels have the same value on all VMIs. The `matchLabels` of the set's or pool's selector are returned if all
    of them are common, with `vmherd.dev/in-service` if the template has it, so a VM that drains leaves the Service
    (P26). Else all common labels are returned: a pool's selector may contain labels that only the VMs have, and a
    Service cannot have expressions.
    """
    common = {key: value for key, value in sorted(labels.items()) if key not in NOT_COMMON}
    if selector is None or selector.match_expressions:
        return common
    named = dict(sorted((selector.match_labels or {}).items()))
    if not named or not named.items() <= common.items():
        return common
    return {**named, **{key: value for key, value in common.items() if key == IN_SERVICE}}


def template_of_replicaset(owner: ReplicaSet) -> VMITemplate:
    return owner.spec.template or VMITemplate()


def template_of_pool(owner: Pool) -> VMITemplate:
    """Return the VMI template in the pool's VM template. Raise msgspec.DecodeError."""
    machine = owner.spec.virtual_machine_template
    spec = msgspec.json.decode(machine.spec, type=_VMSpec) if machine is not None and machine.spec else _VMSpec()
    return spec.template or VMITemplate()


def _ports_of(template: VMITemplate) -> tuple[ServicePort, ...]:
    """Return the ports of the interface on the Pod network, or (). Raise msgspec.DecodeError."""
    spec = msgspec.json.decode(template.spec, type=_VMISpec) if template.spec else _VMISpec()
    network = next((network.name for network in spec.networks or () if network.pod is not None), None)
    devices = spec.domain.devices if spec.domain is not None else None
    interfaces = (devices.interfaces if devices is not None else None) or ()
    ports = next((interface.ports for interface in interfaces if interface.name == network), None) or ()
    return tuple(
        ServicePort(port.port, name=f"port-{number}", protocol=port.protocol or "")
        for number, port in enumerate(ports, start=1)
    )
