"""Finds the reasons to reject an object, as docs/sandbox.md lists them. The messages are those of KubeVirt 1.9."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector, parse_selector
from controller.kubevirt.normal_form import value_at
from sandbox.virt_api.lifecycle import run_strategy

Document = Mapping[str, Any]

STRATEGIES: Final = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")

RESERVED_LABELS: Final = frozenset(
    {
        "kubevirt.io/created-by",
        "kubevirt.io/migrationJobUID",
        "kubevirt.io/nodeName",
        "kubevirt.io/migrationTargetNodeName",
        "kubevirt.io/schedulable",
        "kubevirt.io/install-strategy",
    }
)
"""The labels of a VMI that only KubeVirt may add or change."""

_SIZES: Final = (
    ("resources", "requests", "cpu"),
    ("resources", "limits", "cpu"),
    ("cpu", "sockets"),
    ("cpu", "cores"),
    ("cpu", "threads"),
    ("memory", "guest"),
    ("resources", "requests", "memory"),
    ("resources", "limits", "memory"),
)
"""The fields of the domain that every instance type sets, in KubeVirt's order."""

INVALID, REQUIRED, NOT_SUPPORTED = "FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported"
TOGETHER: Final = (
    "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead"
)
NO_TEMPLATE: Final = "missing virtual machine template."


class Cause(Struct, frozen=True, omit_defaults=True):
    reason: str
    message: str
    field: str = ""


def causes(resource: str, new: Document, old: Document | None, *, by_kubevirt: bool) -> list[Cause]:
    """Return the reasons to reject a new object of this resource, or a changed object if `old` is not None."""
    match resource:
        case "virtualmachines":
            return _causes_for_vm(new, old, by_kubevirt=by_kubevirt)
        case "virtualmachineinstances":
            if old is None:
                return _causes_for_new_vmi(new, by_kubevirt=by_kubevirt)
            return _causes_for_changed_vmi(new, old, by_kubevirt=by_kubevirt)
        case "datavolumes":
            is_same = new.get("spec") == (old or {}).get("spec")
            return [] if is_same else [Cause("FieldValueDuplicate", "Cannot update DataVolume Spec", "DataVolume.Spec")]
        case "virtualmachineinstancereplicasets":
            return _causes_for_replica_set(new)
        case _:
            return _causes_for_pool(new, old, by_kubevirt=by_kubevirt)


def _causes_for_vm(vm: Document, old: Document | None, *, by_kubevirt: bool) -> list[Cause]:
    if (vm.get("metadata") or {}).get("deletionTimestamp"):
        return []
    spec = vm.get("spec") or {}
    wrong = list(_instance_type_conflicts(spec)) or list(_vm_spec(spec, "spec", by_kubevirt=by_kubevirt))
    return wrong or (list(_delicate(vm, old)) if old is not None else [])


def _causes_for_new_vmi(vmi: Document, *, by_kubevirt: bool) -> list[Cause]:
    wrong = [*_disks(vmi.get("spec") or {}, "spec"), *_volumes_without_disk(vmi.get("spec") or {})]
    return wrong if by_kubevirt else [*wrong, *_reserved_labels(vmi, "metadata")]


def _causes_for_changed_vmi(vmi: Document, old: Document, *, by_kubevirt: bool) -> list[Cause]:
    if by_kubevirt:
        return []
    if vmi.get("spec") != old.get("spec"):
        return [Cause(NOT_SUPPORTED, "update of VMI object is restricted")]
    if _reserved(vmi) != _reserved(old):
        message = "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        return [Cause(NOT_SUPPORTED, message)]
    return []


def _causes_for_replica_set(replica_set: Document) -> list[Cause]:
    spec = replica_set.get("spec") or {}
    template = spec.get("template")
    if not template:
        return [Cause(REQUIRED, NO_TEMPLATE, "spec.template")]
    return [*_disks(template.get("spec") or {}, "spec.template.spec"), *_selector(spec, template)]


def _causes_for_pool(pool: Document, old: Document | None, *, by_kubevirt: bool) -> list[Cause]:
    spec = pool.get("spec") or {}
    template = spec.get("virtualMachineTemplate")
    if not template:
        return [Cause(REQUIRED, NO_TEMPLATE, "spec.template")]
    field = "spec.virtualMachineTemplate.spec"
    wrong = [*_vm_spec(template.get("spec") or {}, field, by_kubevirt=by_kubevirt), *_selector(spec, template)]
    if old is not None and spec.get("selector") != (old.get("spec") or {}).get("selector"):
        wrong.append(Cause(INVALID, "selector is immutable after creation.", "spec.selector"))
    return wrong


def _vm_spec(spec: Document, field: str, *, by_kubevirt: bool) -> Iterator[Cause]:
    template = spec.get("template")
    if not template:
        yield Cause(REQUIRED, NO_TEMPLATE, f"{field}.template")
        return
    if not by_kubevirt:
        yield from _reserved_labels(template, f"{field}.template.metadata")
    yield from _disks(template.get("spec") or {}, f"{field}.template.spec")
    yield from _data_volume_templates(spec, field)
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        yield Cause(INVALID, TOGETHER, f"{field}.running")
    if running is None and strategy is None:
        yield Cause(INVALID, "RunStrategy must be specified", f"{field}.running")
    if strategy is not None and strategy not in STRATEGIES:
        yield Cause(INVALID, f"Invalid RunStrategy ({strategy})", f"{field}.runStrategy")


def _instance_type_conflicts(spec: Document) -> Iterator[Cause]:
    """Yield a cause for each field of the VM that its instance type sets too. Of the memory, only the first counts."""
    domain = ((spec.get("template") or {}).get("spec") or {}).get("domain") or {}
    set_by_vm = [path for path in _SIZES if value_at(domain, path) is not None] if spec.get("instancetype") else []
    of_memory = [path for path in set_by_vm if "memory" in path]
    for path in (*(path for path in set_by_vm if path not in of_memory), *of_memory[:1]):
        name = ".".join(("spec.template.spec.domain", *path))
        yield Cause(INVALID, f"VM field(s) {name} conflicts with selected instance type", name)


def _disks(spec: Document, field: str) -> Iterator[Cause]:
    """Yield a cause for each disk without a volume. An empty CD-ROM drive is allowed."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, disk in enumerate(_devices(spec).get("disks") or ()):
        if disk.get("name") not in volumes and disk.get("cdrom") is None:
            path = f"{field}.domain.devices.disks[{index}]"
            yield Cause(INVALID, f"{path}.Name '{disk.get('name', '')}' not found.", f"{path}.name")


def _volumes_without_disk(spec: Document) -> Iterator[Cause]:
    devices = _devices(spec)
    named = {device.get("name") for field in ("disks", "filesystems") for device in devices.get(field) or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("name") not in named and volume.get("memoryDump") is None:
            path = f"spec.domain.volumes[{index}].name"
            yield Cause(INVALID, f"{path} '{volume.get('name', '')}' not found.", path)


def _data_volume_templates(spec: Document, field: str) -> Iterator[Cause]:
    volumes = (spec["template"].get("spec") or {}).get("volumes") or ()
    used = {(volume.get("dataVolume") or {}).get("name") for volume in volumes}
    used |= {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    for index, template in enumerate(spec.get("dataVolumeTemplates") or ()):
        path = f"{field}.dataVolumeTemplate[{index}]"
        name, wanted = (template.get("metadata") or {}).get("name"), template.get("spec") or {}
        both = [claim for claim in ("pvc", "storage") if wanted.get(claim) is not None]
        if not name:
            message = f"'name' field must not be empty for DataVolumeTemplate entry {path}.name."
            yield Cause(REQUIRED, message, f"{path}.name")
        elif not both:
            yield Cause(INVALID, "Missing Data volume PVC or Storage", f"{path}.PVC.Storage")
        elif len(both) > 1:
            message = "Duplicate storage definition, both target storage and target pvc defined"
            yield Cause(INVALID, message, f"{path}.PVC.Storage")
        elif name not in used:
            message = f"DataVolumeTemplate entry {path} must be referenced in the VMI template's 'volumes' list"
            yield Cause(REQUIRED, message, path)


def _delicate(vm: Document, old: Document) -> Iterator[Cause]:
    status, new_spec, old_spec = vm.get("status") or {}, vm["spec"], old["spec"]
    snapshot, restore = status.get("snapshotInProgress"), status.get("restoreInProgress")
    if snapshot is not None:
        volumes = [spec["template"].get("spec", {}).get("volumes") or [] for spec in (new_spec, old_spec)]
        if volumes[0] != volumes[1]:
            message = f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes'
            yield Cause(NOT_SUPPORTED, message, "spec")
        elif not _same_running_state(new_spec, old_spec):
            message = f'Cannot update vm running state until snapshot "{snapshot}" completes'
            yield Cause(NOT_SUPPORTED, message, "spec")
    elif restore is not None and run_strategy(new_spec) != run_strategy(old_spec):
        yield Cause(NOT_SUPPORTED, f'Cannot update VM runStrategy until restore "{restore}" completes', "spec")


def _same_running_state(new: Document, old: Document) -> bool:
    """Return True if `running` and `runStrategy` are unchanged. An equivalent value is a change, as in KubeVirt."""
    for field in ("running", "runStrategy"):
        if new.get(field) is not None and old.get(field) is not None:
            return bool(new[field] == old[field])
    return False


def _selector(spec: Document, template: Document) -> Iterator[Cause]:
    """Yield a cause if the labels of the template do not match `matchLabels` or `matchExpressions`."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = parse_selector(msgspec.convert(spec.get("selector") or {}, LabelSelector))
    if not spec.get("selector") or isinstance(selector, FieldError) or not selector.matches(labels):
        yield Cause(INVALID, "selector does not match labels.", "spec.selector")


def _reserved_labels(document: Document, field: str) -> Iterator[Cause]:
    if _reserved(document):
        message = "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        yield Cause(NOT_SUPPORTED, message, f"{field}.labels")


def _reserved(document: Document) -> dict[str, str]:
    labels = (document.get("metadata") or {}).get("labels") or {}
    return {name: value for name, value in labels.items() if name in RESERVED_LABELS}


def _devices(spec: Document) -> Document:
    devices: Document = (spec.get("domain") or {}).get("devices") or {}
    return devices
