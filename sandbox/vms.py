"""The fields of a VirtualMachine that the simulator reads, and functions that return patches and manifests of VMs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from informers.meta import ObjectMeta, OwnerReference
from informers.resource import Resource
from sandbox.conditions import Condition
from sandbox.ownership import controlled_by
from sandbox.step import Create, Patch
from sandbox.vmi_status import initial_status
from sandbox.vmis import (
    CONTROLLER_FINALIZER,
    OBSERVED_VERSIONS,
    VMIS,
    Volume,
    decode_domain,
    is_observed,
)
from sandbox.vmis import FINALIZER as VMI_FINALIZER

FINALIZER: Final = CONTROLLER_FINALIZER
"""The finalizer that KubeVirt adds to every VM. The finalizer of a deleted VM is removed when its VMI no longer exists.
"""

GENERATION: Final = "kubevirt.io/vm-generation"
"""The annotation on a VMI. Its value is the VM's generation at the creation of the VMI."""


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
    """A request to start the VM, or to stop the VMI with this UID. `virtctl` writes such requests."""

    action: str = ""
    uid: str | None = None
    data: Mapping[str, str] | None = None


class VMStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a VM. A patch removes fields with the value None, because KubeVirt does not store empty fields."""

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
    spec: Raw = Raw(b"{}")
    status: VMStatus | None = None


VMS: Final = Resource(SimulatedVM, group="kubevirt.io", version="v1", plural="virtualmachines", kind="VirtualMachine")


class _TemplateSpec(Struct, frozen=True):
    volumes: tuple[Volume, ...] | None = None
    domain: Raw = Raw(b"{}")


class _NewMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class _New(Struct, frozen=True, rename="camel"):
    """The manifest of a new object."""

    api_version: str
    kind: str
    metadata: _NewMeta
    spec: Raw
    status: Mapping[str, Any] | UnsetType = UNSET


class _Meta(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    resource_version: str | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET
    finalizers: tuple[str, ...] | UnsetType = UNSET


class _Body(Struct, frozen=True):
    metadata: _Meta
    status: VMStatus | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode_vm_spec: Final = msgspec.json.Decoder(VMSpec).decode
_decode_spec: Final = msgspec.json.Decoder(_TemplateSpec).decode


@lru_cache(maxsize=512)
def _decoded(spec: bytes) -> VMSpec:
    return _decode_vm_spec(spec)


def spec_of(vm: SimulatedVM) -> VMSpec:
    """Return the fields of the VM's spec that the simulator reads."""
    return _decoded(bytes(vm.spec))


def strategy_of(vm: SimulatedVM) -> str:
    """Return the run strategy of the VM.

    `running: true` means Always, and `running: false` means Halted. If the spec has neither `running` nor
    `runStrategy`, the result is Halted.
    """
    spec = spec_of(vm)
    if spec.running is not None:
        return "Always" if spec.running else "Halted"
    return spec.run_strategy or "Halted"


def template_of(vm: SimulatedVM) -> Template:
    return spec_of(vm).template or Template()


def annotations_of_template(template: Template) -> Mapping[str, str]:
    return (template.metadata.annotations if template.metadata is not None else None) or {}


def volumes_of(vm: SimulatedVM) -> tuple[Volume, ...]:
    """Return the volumes in the VM's template, or () if the volumes cannot be decoded."""
    return _spec_of(template_of(vm)).volumes or ()


def _spec_of(template: Template) -> _TemplateSpec:
    try:
        return _decode_spec(template.spec)
    except msgspec.DecodeError:
        return _TemplateSpec()


def data_volume_templates_of(vm: SimulatedVM) -> Mapping[str, Template]:
    """Return the VM's dataVolumeTemplates by name. Templates without a name are left out."""
    templates = spec_of(vm).data_volume_templates or ()
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


def generation_of(vm: SimulatedVM) -> int:
    return vm.metadata.generation or 0


def has_finalizer(vm: SimulatedVM) -> bool:
    """Return True if the VM has KubeVirt's finalizer."""
    return FINALIZER in (vm.metadata.finalizers or ())


def observed_patch(vm: SimulatedVM) -> Patch:
    """Return the patch that adds the annotations `OBSERVED_VERSIONS`, as virt-controller's first write does."""
    return Patch(_encode(_Body(_Meta(uid=vm.metadata.uid, annotations=OBSERVED_VERSIONS))))


def finalizer_patch(vm: SimulatedVM, *, finalizer: bool) -> Patch:
    """Return the patch that adds or removes KubeVirt's finalizer.

    The patch keeps all other finalizers. A merge patch replaces the whole list of finalizers, so the patch contains the
    resource version. A patch that adds the finalizer also adds the annotations of `observed_patch`.
    """
    others = tuple(name for name in vm.metadata.finalizers or () if name != FINALIZER)
    finalizers = (*others, FINALIZER) if finalizer else others
    meta = vm.metadata
    annotations = OBSERVED_VERSIONS if finalizer and not is_observed(meta) else UNSET
    return Patch(
        _encode(
            _Body(
                _Meta(
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                    annotations=annotations,
                    finalizers=finalizers,
                )
            )
        )
    )


def status_patch(vm: SimulatedVM, status: VMStatus) -> Patch:
    """Return the patch that writes this status.

    The patch contains the resource version of the VM, so it cannot change a new VM with the same name. The UID is not
    enough, because the API server ignores the UID in a patch of the status.
    """
    meta = vm.metadata
    return Patch(_encode(_Body(_Meta(uid=meta.uid, resource_version=meta.resource_version), status)), "status")


def start(vm: SimulatedVM, now: datetime) -> Create:
    """Return the effect that creates the VM's VMI.

    The VMI has the finalizers and the status of a new VMI in KubeVirt.
    """
    template = template_of(vm)
    meta = template.metadata or TemplateMeta()
    annotations = {**(meta.annotations or {}), GENERATION: str(generation_of(vm))}
    status = msgspec.to_builtins(initial_status(decode_domain(_spec_of(template).domain), now))
    status |= {"guestOSInfo": {}, "virtualMachineRevisionName": revision_name(vm)}
    document = msgspec.structs.replace(
        _new(VMIS, vm.metadata.name, template, annotations, controlled_by(VMS, vm.metadata)), status=status
    )
    meta_of_vmi = msgspec.structs.replace(document.metadata, finalizers=(CONTROLLER_FINALIZER, VMI_FINALIZER))
    return Create(VMIS, _encode(msgspec.structs.replace(document, metadata=meta_of_vmi)))


def revision_name(vm: SimulatedVM) -> str:
    """Return the name of the ControllerRevision of the VM's start."""
    return f"revision-start-vm-{vm.metadata.uid}-{generation_of(vm)}"


def manifest(
    resource: Resource[Any],
    name: str,
    template: Template,
    annotations: Mapping[str, str],
    owner: OwnerReference,
) -> bytes:
    """Return the JSON manifest of an object from a template of the VM."""
    return _encode(_new(resource, name, template, annotations, owner))


def _new(
    resource: Resource[Any],
    name: str,
    template: Template,
    annotations: Mapping[str, str],
    owner: OwnerReference,
) -> _New:
    meta = _NewMeta(
        name=name,
        labels=template.metadata.labels if template.metadata is not None else None,
        annotations=annotations or None,
        owner_references=(owner,),
    )
    return _New(resource.api_version, resource.kind, meta, template.spec)
