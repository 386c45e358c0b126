"""The template of a pool's VMs: `virtualMachineTemplate` and `nameGeneration` in parsed form, with digests.

Templates with the same meaning have the same digests, even if the templates are written differently (see
`normal_form`). A template has three digests, because P13 depends on which part of the template changed. `digest` covers
the whole template. `machine` covers the parts that reach a VMI: the VMI template, the instance type and the preference.
`disks` covers the names and specs of the dataVolumeTemplates.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.normal_form import (
    DISKS,
    UNKNOWN,
    VM_SPEC,
    VMI_TEMPLATE,
    Fields,
    differences,
    encoded,
    normal_form,
)
from controller.kubevirt.pool_types import NameGeneration, PoolSpec
from controller.kubevirt.vmi_types import TemplateMeta


class Template(Struct, frozen=True, kw_only=True):
    """A valid template.

    `spec` is the VM spec in JSON. The spec is an object, and its field `template` is an object too.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: bytes
    index_config_maps: bool
    index_secrets: bool
    digest: str
    machine: str
    disks: str


def parse_template(spec: PoolSpec) -> Template | FieldError:
    """Parse the template of a present or past pool spec and return a Template, or the first error (P1)."""
    wire = spec.virtual_machine_template
    if wire is None:
        return FieldError("spec.virtualMachineTemplate is missing")
    meta = wire.metadata or TemplateMeta()
    labels, annotations = meta.labels or {}, meta.annotations or {}
    if not labels:
        return FieldError("spec.virtualMachineTemplate.metadata.labels is empty: the labels must match spec.selector")
    machine_spec = bytes(wire.spec)
    try:
        fields = msgspec.json.decode(machine_spec)
        if not isinstance(fields, dict):
            return FieldError("spec.virtualMachineTemplate.spec is missing: it must be a VirtualMachine spec")
        if not isinstance(fields.get("template"), dict):
            return FieldError("spec.virtualMachineTemplate.spec.template is missing: it must be a VMI template")
        config_maps, secrets = _index_rules(spec)
        return Template(
            labels=labels,
            annotations=annotations,
            spec=machine_spec,
            index_config_maps=config_maps,
            index_secrets=secrets,
            digest=_digest(labels, annotations, normal_form(fields, VM_SPEC), config_maps, secrets),
            machine=_digest(_parts_of_vmi(fields), config_maps, secrets),
            disks=_digest(_names_and_specs(fields)),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FieldError("spec.virtualMachineTemplate.spec is missing: it must be a VirtualMachine spec")


def describe_difference(old: Template, new: Template, *, most: int = 3) -> str:
    """Return the paths of the first `most` fields whose meaning differs between two templates.

    The result is "" if the meaning of no field differs.
    """
    before, after = (
        {
            "metadata": {"labels": dict(each.labels), "annotations": dict(each.annotations)},
            "spec": normal_form(msgspec.json.decode(each.spec), VM_SPEC),
            "indexes": [each.index_config_maps, each.index_secrets],
        }
        for each in (old, new)
    )
    paths = list(islice(differences(before, after, UNKNOWN), most + 1))
    return ", ".join(paths[:most]) + (" and more" if len(paths) > most else "")


def _names_and_specs(vm_spec: Fields) -> list[tuple[object, object]]:
    """Return the name and the spec of each dataVolumeTemplate. KubeVirt creates a DataVolume from these two fields
    only.
    """
    disks = normal_form(vm_spec.get("dataVolumeTemplates"), DISKS)
    if not isinstance(disks, list):
        return []
    named = [disk if isinstance(disk, dict) else {} for disk in disks]
    return [((disk.get("metadata") or {}).get("name"), disk.get("spec")) for disk in named]


def _parts_of_vmi(vm_spec: Fields) -> list[object]:
    """Return the parts of a VM spec from which KubeVirt makes a VMI, in normal form.

    The run strategy, the dataVolumeTemplates and `updateVolumesStrategy` are no such parts.
    """
    parts = {name: vm_spec.get(name) for name in ("instancetype", "preference")}
    return [
        normal_form(vm_spec["template"], VMI_TEMPLATE),
        *(normal_form(each, VM_SPEC.field(name)) for name, each in parts.items()),
    ]


def _index_rules(spec: PoolSpec) -> tuple[bool, bool]:
    """Return two flags: whether references to ConfigMaps and whether references to Secrets get the ordinal (P5).

    The old names and the new names of the fields are read.
    """
    names = spec.name_generation or NameGeneration()
    config_maps = (
        names.append_index_to_config_map_refs
        or names.append_postfix_to_config_map_references
        or spec.append_postfix_to_config_map_references
    )
    secrets = (
        names.append_index_to_secret_refs
        or names.append_postfix_to_secret_references
        or spec.append_postfix_to_secret_references
    )
    return bool(config_maps), bool(secrets)


def _digest(*content: object) -> str:
    return blake2b(encoded(content), digest_size=16).hexdigest()
