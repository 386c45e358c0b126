"""This module defines the fields of a VirtualMachine that the simulator reads, and builds patches and manifests."""

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
"""The finalizer that KubeVirt adds to every VM. The finalizer of a deleted VM is removed when its VMI no longer exists.
"""

GENERATION: Final = "kubevirt.io/vm-generation"
"""The annotation of a VMI with the generation of the VM at the time when the VMI was created."""


class TemplateMeta(Struct, frozen=True):
    name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class Template(Struct, frozen=True):
    """The template of a VMI or of a DataVolume. A new object gets the spec of the template without changes."""

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
    """A request to start the VM, or to stop the VMI with this UID.

    The commands `virtctl start` and `virtctl stop` write such requests.
    """

    action: str = ""
    uid: str | None = None


class VMStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a VM. If a field is None, a patch removes the field, as KubeVirt does not store empty fields."""

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
    """The manifest of a new object."""

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
    """Return the run strategy of the VM.

    `running: true` means Always, and `running: false` means Halted. If the spec has neither `running` nor
    `runStrategy`, the result is Halted.
    """
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
    """Return the volumes in the VM's template, or () if the volumes cannot be decoded."""
    try:
        return _decode_volumes(template_of(vm).spec).volumes or ()
    except msgspec.DecodeError:
        return ()


def data_volume_templates_of(vm: SimulatedVM) -> Mapping[str, Template]:
    """Return the VM's dataVolumeTemplates by name. Templates without a name are left out."""
    templates = (vm.spec.data_volume_templates or ()) if vm.spec is not None else ()
    return {
        template.metadata.name: template
        for template in templates
        if template.metadata is not None and template.metadata.name
    }


def storage_of(vm: SimulatedVM) -> tuple[str, ...]:
    """Return the names of all DataVolumes and PVCs that the VM uses, without duplicates."""
    named = (volume.claim for volume in volumes_of(vm) if volume.claim)
    return tuple(dict.fromkeys((*data_volume_templates_of(vm), *named)))


def status_of(vm: SimulatedVM) -> VMStatus:
    return vm.status or VMStatus()


def has_finalizer(vm: SimulatedVM) -> bool:
    """Return True if the VM has KubeVirt's finalizer."""
    return FINALIZER in (vm.metadata.finalizers or ())


def finalizer_patch(vm: SimulatedVM, *, finalizer: bool) -> Patch:
    """Return the patch that adds KubeVirt's finalizer if `finalizer` is True, and otherwise removes this finalizer.

    The patch keeps all other finalizers. A merge patch replaces the whole list of finalizers, so the API server rejects
    the patch if the VM's resource version has changed.
    """
    others = tuple(name for name in vm.metadata.finalizers or () if name != FINALIZER)
    finalizers = (*others, FINALIZER) if finalizer else others
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version, finalizers=finalizers))))


def status_patch(vm: SimulatedVM, status: VMStatus) -> Patch:
    """Return the patch that writes this status.

    The patch contains the resource version of the VM, because the API server does not compare UIDs when it patches a
    status subresource.
    """
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version), status)), "status")


def start(vm: SimulatedVM) -> Create:
    """Return the step's effect that creates the VM's VMI."""
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
    """Return the JSON manifest of an object that the VM creates from one of its templates."""
    meta = _NewMeta(
        name=name,
        labels=template.metadata.labels if template.metadata is not None else None,
        annotations=annotations or None,
        owner_references=(owner,),
    )
    return _encode(_New(resource.api_version, resource.kind, meta, template.spec))
