"""Applies instance types and preferences to new VMIs, as KubeVirt does by default. This module is pure.

A ControllerRevision of each VM keeps the instance type and the preference that the VM has first seen.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.normal_form import value_at
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from informers.meta import ObjectMeta, labels_of
from informers.resource import Resource
from sandbox.step import Create, creation
from sandbox.vms import VMS, Matcher, SimulatedVM, Template

Fields = dict[str, Any]

GROUP, VERSION = "instancetype.kubevirt.io", "v1beta1"
LABELS: Final = f"{GROUP}/object-"


class Definition(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Raw = Raw(b"{}")


def _resource(kind: str) -> Resource[Definition]:
    is_cluster = "Cluster" in kind
    return Resource(
        Definition, group=GROUP, version=VERSION, plural=f"{kind.lower()}s", kind=kind, namespaced=not is_cluster
    )


DEFINITIONS: Final = {
    name: (_resource(f"VirtualMachine{kind}"), _resource(f"VirtualMachineCluster{kind}"))
    for name, kind in (("instancetype", "Instancetype"), ("preference", "Preference"))
}
"""The resource with a namespace and that without one, by the name of the field in the spec of a VM."""


def matchers_of(vm: SimulatedVM) -> Iterator[tuple[str, Matcher, Resource[Definition]]]:
    """Yield each matcher in the spec of the VM, with the name of its field and the resource. No kind means Cluster."""
    for name, matcher in (("instancetype", vm.wanted.instancetype), ("preference", vm.wanted.preference)):
        if matcher is not None:
            yield name, matcher, DEFINITIONS[name]["cluster" in matcher.kind.lower() or not matcher.kind]


def stored(
    vm: SimulatedVM, revisions: Mapping[str, ControllerRevision], definitions: Mapping[str, Definition]
) -> tuple[tuple[Create, ...], tuple[str, str] | None]:
    """Return the revisions that the VM lacks, and the reason and message of its failure, or None."""
    creates = []
    for name, matcher, resource in matchers_of(vm):
        if _spec_of(matcher, resource, revisions) is not None:
            continue
        if name not in definitions:
            found = f'{resource.plural}.{GROUP} "{matcher.name}" not found'
            return (), (f"FailedFind{name.capitalize()}", found)
        creates.append(_revision(vm, definitions[name], resource))
    return tuple(creates), None


def applied(vm: SimulatedVM, revisions: Mapping[str, ControllerRevision]) -> Template:
    """Return the template of the VMI, with CPUs, memory, the bus of disks and annotations."""
    specs, annotations = {}, dict(vm.template.annotations)
    for name, matcher, resource in matchers_of(vm):
        specs[name] = _spec_of(matcher, resource, revisions)
        annotations[f"kubevirt.io/{'' if resource.namespaced else 'cluster-'}{name}-name"] = matcher.name
    if not specs:
        return vm.template
    spec: Fields = msgspec.json.decode(vm.template.spec)
    domain = spec.setdefault("domain", {})
    size, preference = specs.get("instancetype"), specs.get("preference")
    if size is not None:
        topology: Fields = {"cores": 1, "sockets": 1, "threads": 1}
        preferred = str(value_at(preference, ("cpu", "preferredCPUTopology"))).lower().removeprefix("prefer")
        topology[preferred if preferred in topology else "sockets"] = value_at(size, ("cpu", "guest"))
        domain["cpu"] = {**(domain.get("cpu") or {}), **topology}
        domain["memory"] = {**(domain.get("memory") or {}), "guest": value_at(size, ("memory", "guest"))}
    bus = value_at(preference, ("devices", "preferredDiskBus"))
    for disk in (domain.get("devices") or {}).get("disks") or ():
        if bus is not None and not {"cdrom", "lun"} & disk.keys():
            disk["disk"] = {"bus": bus, **(disk.get("disk") or {})}
    meta = msgspec.structs.replace(vm.template.meta, annotations=annotations)
    return Template(meta, Raw(msgspec.json.encode(spec)))


def _spec_of(
    matcher: Matcher, resource: Resource[Definition], revisions: Mapping[str, ControllerRevision]
) -> Fields | None:
    wanted = {f"{LABELS}kind": resource.kind, f"{LABELS}name": matcher.name}
    found = (each for each in revisions.values() if wanted.items() <= labels_of(each.metadata).items())
    return next((msgspec.json.decode(each.data)["spec"] for each in found), None)


def _revision(vm: SimulatedVM, found: Definition, resource: Resource[Definition]) -> Create:
    uid, generation = found.metadata.uid, str(found.metadata.generation or 0)
    parts = {"name": found.metadata.name, "version": VERSION, "uid": uid, "generation": generation}
    meta = {
        "name": "-".join((vm.metadata.name, *parts.values())),
        "labels": {f"{LABELS}{part}": text for part, text in {**parts, "kind": resource.kind}.items()},
        "ownerReferences": [controller_reference(VMS, vm.metadata)],
    }
    data = {"apiVersion": f"{GROUP}/{VERSION}", "kind": resource.kind, "metadata": found.metadata, "spec": found.spec}
    return creation(CONTROLLER_REVISIONS, meta, data=data, revision=0)
