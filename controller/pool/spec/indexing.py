"""Creation of a VM from the template: names that must differ between VMs get the ordinal as a suffix (P4, P5).

All other parts of the template reach the VM unchanged, byte for byte. A value of an unexpected type stays unchanged
too. The API server then validates the value.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

from controller.apimachinery.raw_json import NULL, Fields, change_at, change_each, fields_of, text_of
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.normal_form import Path, value_at
from controller.kubevirt.resources import VMS
from controller.pool.spec.naming import name_of
from controller.pool.spec.template import CONFIG_MAPS, SECRETS, SYSPREP_CONFIG_MAPS, SYSPREP_SECRETS, Template
from informers.meta import NO_LABELS, ObjectMeta

Change: TypeAlias = Callable[[bytes], bytes]

DISKS: Final[tuple[Path, ...]] = (("dataVolume", "name"), ("persistentVolumeClaim", "claimName"))
"""The paths at which a volume of a VMI template refers to a disk."""


def encode_shape(template: Template, ordinal: int, revision: str) -> bytes:
    """Return the labels, the annotations and the spec that the template defines for the VM of this ordinal."""
    metadata = {"labels": {**template.labels, REVISION_NAME: revision}, "annotations": template.annotations}
    return msgspec.json.encode({"metadata": metadata, "spec": Raw(_indexed_spec(template, ordinal, revision))})


def encode_disks(template: Template, ordinal: int) -> bytes:
    """Return only the disks of the shape, and the volumes with these disks. A merge from them to the shape leaves the
    disks of the VM as they are, for example those of a VirtualMachineRestore, whose names are others.
    """
    spec, own = msgspec.json.decode(_indexed_spec(template, ordinal, "")), own_disks(template, ordinal)
    found = value_at(spec, ("template", "spec", "volumes"))
    volumes = found if isinstance(found, list) else []
    kept = [each for each in volumes if any(value_at(each, path) in own for path in DISKS)]
    disks = {"dataVolumeTemplates": spec.get("dataVolumeTemplates"), "template": {"spec": {"volumes": kept}}}
    return msgspec.json.encode({"spec": disks})


def encode_vm(
    template: Template,
    ordinal: int,
    revision: str,
    pool: ObjectMeta,
    ownership: Mapping[str, object],
    *,
    machine_labels: Mapping[str, str] = NO_LABELS,
) -> bytes:
    """Return the request body that creates a VM of this pool. `ownership` are its ownerReferences and finalizers, and
    the annotations of a marked VM. `machine_labels` are other labels of its VMI template.
    """
    metadata: dict[str, object] = {
        "name": name_of(pool.name, ordinal),
        "namespace": pool.namespace,
        "labels": {**template.labels, REVISION_NAME: revision},
        "annotations": template.annotations,
        **ownership,
    }
    spec = Raw(_indexed_spec(template, ordinal, revision, machine_labels))
    body = {"apiVersion": VMS.api_version, "kind": VMS.kind, "metadata": metadata, "spec": spec}
    return msgspec.json.encode(body)


def own_disks(template: Template, ordinal: int) -> tuple[str, ...]:
    """Return the names of the disks that the dataVolumeTemplates create for the VM of this ordinal."""
    return tuple(f"{name}-{ordinal}" for name in template.disks if name)


def _indexed_spec(
    template: Template, ordinal: int, revision: str, machine_labels: Mapping[str, str] = NO_LABELS
) -> bytes:
    own = template.disks.keys()
    indexed = partial(_with_ordinal, ordinal=ordinal)
    config_maps = (*CONFIG_MAPS, *(SYSPREP_CONFIG_MAPS if template.index_sysprep else ()))
    secrets = (*SECRETS, *(SYSPREP_SECRETS if template.index_sysprep else ()))
    paths = (*(config_maps if template.index_config_maps else ()), *(secrets if template.index_secrets else ()))
    changes = [*((path, partial(_if_own, own, indexed)) for path in DISKS), *((path, indexed) for path in paths)]

    def disk_of_ordinal(disk: Fields) -> Fields:
        return _change_in(disk, ("metadata", "name"), indexed)

    def volume_of_ordinal(volume: Fields) -> Fields:
        for path, change in changes:
            volume = _change_in(volume, path, change)
        return volume

    labels = {REVISION_NAME: revision, **machine_labels}
    spec = change_at(template.spec, ("dataVolumeTemplates",), lambda disks: change_each(disks, disk_of_ordinal))
    spec = change_at(spec, ("template", "spec", "volumes"), lambda volumes: change_each(volumes, volume_of_ordinal))
    return change_at(spec, ("template",), lambda vmi_template: _with_labels(vmi_template, labels))


def _change_in(fields: Fields, path: Path, change: Change) -> Fields:
    first, *rest = path
    return {**fields, first: Raw(change_at(bytes(fields[first]), tuple(rest), change))} if first in fields else fields


def _if_own(own: Collection[str], change: Change, name: bytes) -> bytes:
    return change(name) if text_of(name) in own else name


def _with_ordinal(name: bytes, *, ordinal: int) -> bytes:
    text = text_of(name)
    return msgspec.json.encode(f"{text}-{ordinal}") if text else name


def _with_labels(vmi_template: bytes, added: Mapping[str, str]) -> bytes:
    """A template whose metadata or labels have a wrong type is not changed."""
    fields = fields_of(vmi_template)
    metadata = _object_at(fields, "metadata")
    labels = _object_at(metadata, "labels")
    if fields is None or metadata is None or labels is None:
        return vmi_template
    return msgspec.json.encode({**fields, "metadata": {**metadata, "labels": {**labels, **added}}})


def _object_at(fields: Fields | None, name: str) -> Fields | None:
    """Return the object in the field `name`, which may be absent or null, or None if the value is not an object."""
    value = fields.get(name, NULL) if fields is not None else Raw()
    return {} if value == NULL else fields_of(value)
