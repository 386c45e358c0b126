"""The fields of a VirtualMachine that the simulator reads, and functions that return patches and manifests of VMs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.conditions import Condition
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import TemplateMeta
from informers.meta import ObjectMeta
from informers.resource import Resource
from sandbox.step import Create, Delete, Effect, Patch, creation, patch_of
from sandbox.vmi_status import initial_status
from sandbox.vmis import CONTROLLER_FINALIZER, OBSERVED_VERSIONS, VMIS, Volume, decode_domain, is_observed
from sandbox.vmis import FINALIZER as VMI_FINALIZER

FINALIZER: Final = CONTROLLER_FINALIZER
"""The finalizer that KubeVirt adds to every VM, and removes when the VMI of a deleted VM is gone."""

GENERATION: Final = "kubevirt.io/vm-generation"


class _TemplateSpec(Struct, frozen=True):
    volumes: tuple[Volume, ...] | None = None
    domain: Raw = Raw(b"{}")


_decode_template_spec: Final = msgspec.json.Decoder(_TemplateSpec).decode


class Template(Struct, frozen=True):
    """The template of a VMI or of a DataVolume. A new object gets the spec of the template without changes."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw(b"{}")

    @property
    def meta(self) -> TemplateMeta:
        return self.metadata or TemplateMeta()

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.meta.annotations or {}

    @property
    def decoded(self) -> _TemplateSpec:
        try:
            return _decode_template_spec(self.spec)
        except msgspec.DecodeError:
            return _TemplateSpec()


class Matcher(Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""


class VMSpec(Struct, frozen=True, rename="camel"):
    running: bool | None = None
    run_strategy: str | None = None
    instancetype: Matcher | None = None
    preference: Matcher | None = None
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
    status: VMStatus = VMStatus()

    @property
    def wanted(self) -> VMSpec:
        return _decoded(bytes(self.spec))

    @property
    def generation(self) -> int:
        return self.metadata.generation or 0

    @property
    def has_finalizer(self) -> bool:
        return FINALIZER in (self.metadata.finalizers or ())

    @property
    def strategy(self) -> str:
        """The run strategy. `running: true` means Always, and `running: false` or neither field means Halted."""
        if self.wanted.running is not None:
            return "Always" if self.wanted.running else "Halted"
        return self.wanted.run_strategy or "Halted"

    @property
    def template(self) -> Template:
        return self.wanted.template or Template()

    @property
    def volumes(self) -> tuple[Volume, ...]:
        return self.template.decoded.volumes or ()

    @property
    def data_volume_templates(self) -> Mapping[str, Template]:
        """Return the VM's dataVolumeTemplates by name. Templates without a name are left out."""
        return {each.meta.name: each for each in self.wanted.data_volume_templates or () if each.meta.name}

    @property
    def storage(self) -> tuple[str, ...]:
        named = (volume.claim for volume in self.volumes if volume.claim)
        return tuple(dict.fromkeys((*self.data_volume_templates, *named)))

    @property
    def revision_name(self) -> str:
        return f"revision-start-vm-{self.metadata.uid}-{self.generation}"


VMS: Final = Resource(SimulatedVM, group="kubevirt.io", version="v1", plural="virtualmachines", kind="VirtualMachine")

_decode_vm_spec: Final = msgspec.json.Decoder(VMSpec).decode


@lru_cache(maxsize=512)
def _decoded(spec: bytes) -> VMSpec:
    return _decode_vm_spec(spec)


def finalizer_patch(vm: SimulatedVM, *, finalizer: bool) -> Patch:
    """Return the patch that adds KubeVirt's finalizer with `OBSERVED_VERSIONS`, or removes it."""
    others = tuple(name for name in vm.metadata.finalizers or () if name != FINALIZER)
    changes: dict[str, Any] = {"finalizers": (*others, FINALIZER) if finalizer else others}
    if finalizer and not is_observed(vm.metadata):
        changes["annotations"] = OBSERVED_VERSIONS
    return patch_of(vm.metadata, versioned=True, metadata=changes)


def start(vm: SimulatedVM, template: Template, now: datetime) -> Create:
    """Return the effect that creates the VM's VMI, with the finalizers and the status that KubeVirt gives it."""
    annotations = {**template.annotations, GENERATION: str(vm.generation)}
    status = initial_status(decode_domain(template.decoded.domain), now)
    status["virtualMachineRevisionName"] = vm.revision_name
    finalizers = [CONTROLLER_FINALIZER, VMI_FINALIZER]
    return create(VMIS, vm.metadata.name, vm, template, annotations, finalizers=finalizers, status=status)


def create(
    resource: Resource[Any],
    name: str,
    vm: SimulatedVM,
    template: Template,
    annotations: Mapping[str, str],
    *,
    finalizers: Sequence[str] = (),
    **fields: Any,
) -> Create:
    meta = {
        "name": name,
        "labels": template.meta.labels,
        "annotations": annotations,
        "ownerReferences": [controller_reference(VMS, vm.metadata)],
        "finalizers": finalizers,
    }
    return creation(resource, meta, spec=template.spec, **fields)


def record_start(vm: SimulatedVM, revisions: Mapping[str, ControllerRevision]) -> Iterator[Effect]:
    """The effects create the ControllerRevision for the VM's generation and delete the revisions of earlier starts."""
    name = vm.revision_name
    for other in _of_starts(vm, revisions):
        if other.metadata.name != name:
            yield Delete(CONTROLLER_REVISIONS, other.metadata.name, other.metadata.uid)
    if name not in revisions:
        meta = {"name": name, "ownerReferences": [controller_reference(VMS, vm.metadata)]}
        yield creation(CONTROLLER_REVISIONS, meta, data={"spec": vm.spec}, revision=vm.generation)


def start_revision(vm: SimulatedVM, revisions: Mapping[str, ControllerRevision]) -> ControllerRevision | None:
    return max(_of_starts(vm, revisions), key=lambda each: each.revision, default=None)


def spec_in(revision: ControllerRevision) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.json.decode(bytes(revision.data) or b"{}").get("spec") or {}
    return spec


def _of_starts(vm: SimulatedVM, revisions: Mapping[str, ControllerRevision]) -> Iterator[ControllerRevision]:
    prefix = f"revision-start-vm-{vm.metadata.uid}-"
    return (revision for revision in revisions.values() if revision.metadata.name.startswith(prefix))
