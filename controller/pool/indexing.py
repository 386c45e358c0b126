"""From a template to the VM of one ordinal: names that must differ get the ordinal, everything else stays (P4, P5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from controller.kubevirt.markers import POOL_FINALIZER, REVISION_NAME
from controller.pool.naming import name_of
from controller.pool.template import Template
from informers.meta import ObjectMeta, OwnerReference
from informers.resource import Resource, T

Fields: TypeAlias = dict[str, object]

CLOUD_INIT = ("cloudInitNoCloud", "cloudInitConfigDrive")


def shape_of(template: Template, ordinal: int, revision: str) -> Fields:
    """What the template says about its VM of this ordinal: labels, annotations, spec. Everything in it is new."""
    labels = {**template.labels, REVISION_NAME: revision}
    return {
        "metadata": {"labels": labels, "annotations": dict(template.annotations)},
        "spec": _indexed_spec(template, ordinal, revision),
    }


def encode_shape(template: Template, ordinal: int, revision: str) -> bytes:
    return msgspec.json.encode(shape_of(template, ordinal, revision))


def encode_vm(
    template: Template, ordinal: int, revision: str, *, resource: Resource[T], pool: ObjectMeta, owner: OwnerReference
) -> bytes:
    """The whole VM to create, with its owner and our finalizer, in the pool's namespace."""
    shape = shape_of(template, ordinal, revision)
    metadata = _fields(shape["metadata"])
    metadata.update(
        name=name_of(pool.name, ordinal),
        namespace=pool.namespace,
        ownerReferences=[owner],
        finalizers=[POOL_FINALIZER],
    )
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **shape})


def _indexed_spec(template: Template, ordinal: int, revision: str) -> Fields:
    spec: Fields = msgspec.json.decode(template.spec)
    own_disks = set()
    for disk in _items(spec.get("dataVolumeTemplates")):
        metadata = _fields(disk.get("metadata"))
        own_disks.add(metadata.get("name"))
        _append(metadata, "name", ordinal)
    machine = _fields(spec.get("template"))
    if not isinstance(machine.get("metadata"), dict):
        machine["metadata"] = {}
    metadata = _fields(machine["metadata"])
    metadata["labels"] = {**_fields(metadata.get("labels")), REVISION_NAME: revision}
    for volume in _items(_fields(machine.get("spec")).get("volumes")):
        for holder, field in _references(volume, template):
            _append(holder, field, ordinal)
        for holder, field in _disk_references(volume):
            if holder.get(field) in own_disks:
                _append(holder, field, ordinal)
    return spec


def _disk_references(volume: Fields) -> Iterator[tuple[Fields, str]]:
    yield _fields(volume.get("dataVolume")), "name"
    yield _fields(volume.get("persistentVolumeClaim")), "claimName"


def _references(volume: Fields, template: Template) -> Iterator[tuple[Fields, str]]:
    """Where a volume names ConfigMaps and Secrets, as far as the pool wants them to differ."""
    sysprep = _fields(volume.get("sysprep"))
    if template.index_config_maps:
        yield _fields(volume.get("configMap")), "name"
        yield _fields(sysprep.get("configMap")), "name"
    if template.index_secrets:
        yield _fields(volume.get("secret")), "secretName"
        yield _fields(sysprep.get("secret")), "name"
        for source in CLOUD_INIT:
            cloud_init = _fields(volume.get(source))
            yield _fields(cloud_init.get("secretRef")), "name"
            yield _fields(cloud_init.get("networkDataSecretRef")), "name"


def _append(holder: Fields, field: str, ordinal: int) -> None:
    name = holder.get(field)
    if isinstance(name, str) and name:
        holder[field] = f"{name}-{ordinal}"


def _fields(value: object) -> Fields:
    """An object's fields, to be changed in place; those of nobody where it is no object."""
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Fields]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
