"""The wire format of a simulated VirtualMachine: the fields that are read, and the patches that are written."""

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
"""KubeVirt's finalizer, which every VM has. It is removed when the VMI is gone."""

GENERATION: Final = "kubevirt.io/vm-generation"
"""An annotation of a VMI: the generation of the VM that it was made from."""


class TemplateMeta(Struct, frozen=True):
    name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class Template(Struct, frozen=True):
    """The template of a VMI or of a DataVolume. The spec is copied without changes."""

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
    """A request to start the VM, or to stop the VMI with this UID. `virtctl start` and `virtctl stop` write it."""

    action: str = ""
    uid: str | None = None


class VMStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The status as it is read and written. A field that is None is removed by a patch, since KubeVirt omits empty
    fields."""

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
    """A new object."""

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
    """The VM's run strategy. `running: true` means Always. A VM without both fields is Halted."""
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
    """The volumes of the VM's VMI; empty if the template's volumes cannot be decoded."""
    try:
        return _decode_volumes(template_of(vm).spec).volumes or ()
    except msgspec.DecodeError:
        return ()


def data_volume_templates_of(vm: SimulatedVM) -> Mapping[str, Template]:
    """The VM's dataVolumeTemplates by name."""
    templates = (vm.spec.data_volume_templates or ()) if vm.spec is not None else ()
    return {
        template.metadata.name: template
        for template in templates
        if template.metadata is not None and template.metadata.name
    }


def storage_of(vm: SimulatedVM) -> tuple[str, ...]:
    """The names of all DataVolumes and PVCs that the VM uses, without duplicates."""
    named = (volume.claim for volume in volumes_of(vm) if volume.claim)
    return tuple(dict.fromkeys((*data_volume_templates_of(vm), *named)))


def status_of(vm: SimulatedVM) -> VMStatus:
    return vm.status or VMStatus()


def has_finalizer(vm: SimulatedVM) -> bool:
    """True if KubeVirt's finalizer is set."""
    return FINALIZER in (vm.metadata.finalizers or ())


def finalizer_patch(vm: SimulatedVM, *, finalizer: bool) -> Patch:
    """The patch that adds or removes KubeVirt's finalizer. Other finalizers stay.

    A merge patch replaces the whole list, so the patch applies only to the resource version that was read.
    """
    others = tuple(name for name in vm.metadata.finalizers or () if name != FINALIZER)
    finalizers = (*others, FINALIZER) if finalizer else others
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version, finalizers=finalizers))))


def status_patch(vm: SimulatedVM, status: VMStatus) -> Patch:
    """The patch for the status. A status subresource does not compare UIDs, so the patch names the resource version."""
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version), status)), "status")


def start(vm: SimulatedVM) -> Create:
    """The creation of the VM's VMI."""
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
    """The manifest of an object that the VM creates from one of its templates."""
    meta = _NewMeta(
        name=name,
        labels=template.metadata.labels if template.metadata is not None else None,
        annotations=annotations or None,
        owner_references=(owner,),
    )
    return _encode(_New(resource.api_version, resource.kind, meta, template.spec))
