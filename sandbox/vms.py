"""A simulated VirtualMachine on the wire: what the simulator reads of it, and what KubeVirt would write for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from informers.meta import ObjectMeta, OwnerReference
from informers.resource import Resource
from sandbox.ownership import controlled_by
from sandbox.step import Create, Patch
from sandbox.vmis import VMIS, Condition, Volume

FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"
"""KubeVirt's own, on every VM: it stays until the VMI has gone."""

GENERATION: Final = "kubevirt.io/vm-generation"
"""On a VMI: the generation of the VM that it was made from."""


class TemplateMeta(Struct, frozen=True):
    name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class Template(Struct, frozen=True):
    """Of the VMI, or of a DataVolume. The spec is passed on byte by byte."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw(b"{}")


class VMSpec(Struct, frozen=True, rename="camel"):
    running: bool | None = None
    run_strategy: str | None = None
    template: Template | None = None
    data_volume_templates: tuple[Template, ...] | None = None


class StartFailure(Struct, frozen=True, kw_only=True, rename="camel"):
    consecutive_fail_count: int = 0
    last_failed_vmi_uid: str | None = msgspec.field(name="lastFailedVMIUID", default=None)
    retry_after_timestamp: datetime | None = None


class ChangeRequest(Struct, frozen=True, omit_defaults=True):
    """Somebody wants the VM started, or the VMI with this UID stopped: what `virtctl start` and `stop` leave behind."""

    action: str = ""
    uid: str | None = None


class VMStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Read and written. What is None in a patch is taken off: KubeVirt leaves out what is false or empty."""

    created: bool | None = None
    ready: bool | None = None
    printable_status: str | None = None
    run_strategy: str | None = None
    start_failure: StartFailure | None = None
    conditions: tuple[Condition, ...] | None = None
    state_change_requests: tuple[ChangeRequest, ...] | None = None
    observed_generation: int | None = None
    desired_generation: int | None = None


class SimulatedVM(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VMSpec | None = None
    status: VMStatus | None = None


VMS: Final = Resource(SimulatedVM, group="kubevirt.io", version="v1", plural="virtualmachines", kind="VirtualMachine")


class _Volumes(Struct, frozen=True):
    volumes: tuple[Volume, ...] | None = None


class _NewMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class _New(Struct, frozen=True, rename="camel"):
    """An object that is about to be created."""

    api_version: str
    kind: str
    metadata: _NewMeta
    spec: Raw


class _Meta(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    resource_version: str | UnsetType = UNSET
    finalizers: tuple[str, ...] | UnsetType = UNSET


class _Body(Struct, frozen=True):
    metadata: _Meta
    status: VMStatus | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode_volumes: Final = msgspec.json.Decoder(_Volumes).decode


def strategy_of(vm: SimulatedVM) -> str:
    """Its run strategy, also where it is written as `running: true`. A VM that says nothing is halted."""
    if vm.spec is None:
        return "Halted"
    if vm.spec.running is not None:
        return "Always" if vm.spec.running else "Halted"
    return vm.spec.run_strategy or "Halted"


def template_of(vm: SimulatedVM) -> Template:
    return (vm.spec.template if vm.spec is not None else None) or Template()


def annotations_of_template(template: Template) -> Mapping[str, str]:
    return (template.metadata.annotations if template.metadata is not None else None) or {}


def volumes_of(vm: SimulatedVM) -> tuple[Volume, ...]:
    """The volumes that its VMI gets; none where the template's are no volumes at all."""
    try:
        return _decode_volumes(template_of(vm).spec).volumes or ()
    except msgspec.DecodeError:
        return ()


def data_volume_templates_of(vm: SimulatedVM) -> Mapping[str, Template]:
    """What its dataVolumeTemplates ask for, by name."""
    templates = (vm.spec.data_volume_templates or ()) if vm.spec is not None else ()
    return {
        template.metadata.name: template
        for template in templates
        if template.metadata is not None and template.metadata.name
    }


def storage_of(vm: SimulatedVM) -> tuple[str, ...]:
    """The names of all DataVolumes and PVCs that matter to it, each once."""
    named = (volume.claim for volume in volumes_of(vm) if volume.claim)
    return tuple(dict.fromkeys((*data_volume_templates_of(vm), *named)))


def status_of(vm: SimulatedVM) -> VMStatus:
    return vm.status or VMStatus()


def holds_on(vm: SimulatedVM) -> bool:
    """Whether KubeVirt's finalizer is on it."""
    return FINALIZER in (vm.metadata.finalizers or ())


def change_hold(vm: SimulatedVM, *, hold: bool) -> Patch:
    """Put KubeVirt's finalizer on it, or take it off, and leave those of others as they are.

    A list of finalizers is replaced as a whole, so it is only taken by the version of the VM that was read.
    """
    others = tuple(name for name in vm.metadata.finalizers or () if name != FINALIZER)
    finalizers = (*others, FINALIZER) if hold else others
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version, finalizers=finalizers))))


def change_status(vm: SimulatedVM, status: VMStatus) -> Patch:
    """Only taken by the version of the VM that was read: a status subresource does not compare UIDs."""
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version), status)), "status")


def start(vm: SimulatedVM) -> Create:
    """Make its VMI."""
    template = template_of(vm)
    meta = template.metadata or TemplateMeta()
    annotations = {**(meta.annotations or {}), GENERATION: str(vm.metadata.generation or 0)}
    return Create(VMIS, manifest(VMIS, vm.metadata.name, template, annotations, controlled_by(VMS, vm.metadata)))


def manifest(
    resource: Resource[Any],
    name: str,
    template: Template,
    annotations: Mapping[str, str],
    owner: OwnerReference,
) -> bytes:
    """The manifest of an object that the VM makes from one of its templates."""
    meta = _NewMeta(
        name=name,
        labels=template.metadata.labels if template.metadata is not None else None,
        annotations=annotations or None,
        owner_references=(owner,),
    )
    return _encode(_New(resource.api_version, resource.kind, meta, template.spec))
