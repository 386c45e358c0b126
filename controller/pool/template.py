"""The template of a pool's VMs: `virtualMachineTemplate` and `nameGeneration` in parsed form, with digests.

Templates with the same meaning have the same digests, even if the templates are written differently (see
`normal_form`). A template has three digests, because a change of each part needs a different update step (P13).
`digest` covers the whole template. `machine` covers the VMI template, the instance type and the preference. `disks`
covers the names and specs of the dataVolumeTemplates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.normal_form import (
    DISKS,
    TEMPLATE_LIMIT,
    UNKNOWN,
    VM_SPEC,
    VMI_TEMPLATE,
    Fields,
    differences,
    encoded,
    normal_form,
    too_large,
)
from controller.kubevirt.pool_types import NameGeneration, PoolSpec
from controller.kubevirt.vmi_types import TemplateMeta

REMEMBERED: Final = 512
"""The number of remembered templates. Each reconciliation needs the templates of the pool and of its revisions."""

REMEMBERED_SIZE: Final = 16 * 1024
"""The maximum size, in bytes, of a remembered template."""


class Template(Struct, frozen=True, kw_only=True):
    """A valid template.

    `machine_labels` are the labels of the VMI template. `spec` is the VM spec in JSON. The spec is an object, and its
    field `template` is an object too. `index_sysprep` is True if the ordinal is added to a name that a `sysprep` volume
    refers to.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    machine_labels: Mapping[str, str]
    spec: bytes
    index_config_maps: bool
    index_secrets: bool
    index_sysprep: bool
    digest: str
    machine: str
    disks: str


def parse_template(spec: PoolSpec, *, index_sysprep: bool = False) -> Template | FieldError:
    """Parse the template of a pool spec and return a Template, or the first error (P1).

    `index_sysprep` is True if the pool or the revision has the annotation `INDEX_SYSPREP`.
    """
    wire = spec.virtual_machine_template
    if wire is None:
        return FieldError("spec.virtualMachineTemplate is missing")
    meta = wire.metadata or TemplateMeta()
    labels, annotations = meta.labels or {}, meta.annotations or {}
    if not labels:
        return FieldError("spec.virtualMachineTemplate.metadata.labels is empty: the labels must match spec.selector")
    machine_spec = bytes(wire.spec)
    if len(machine_spec) > TEMPLATE_LIMIT:
        return FieldError(too_large("spec.virtualMachineTemplate.spec", len(machine_spec)))
    texts = (tuple(labels.items()), tuple(annotations.items()))
    size = len(machine_spec) + sum(len(name) + len(value) for items in texts for name, value in items)
    parse = _parse_remembered if size <= REMEMBERED_SIZE else _parse
    return parse(machine_spec, *texts, _index_rules(spec), index_sysprep)


def _parse(
    machine_spec: bytes,
    label_items: tuple[tuple[str, str], ...],
    annotation_items: tuple[tuple[str, str], ...],
    index_rules: tuple[bool, bool],
    index_sysprep: bool,
) -> Template | FieldError:
    labels, annotations = dict(label_items), dict(annotation_items)
    try:
        fields = msgspec.json.decode(machine_spec)
        if not isinstance(fields, dict):
            return FieldError("spec.virtualMachineTemplate.spec is missing: it must be a VirtualMachine spec")
        if not isinstance(fields.get("template"), dict):
            return FieldError("spec.virtualMachineTemplate.spec.template is missing: it must be a VMI template")
        config_maps, secrets = index_rules
        sysprep = index_sysprep and _has_indexed_sysprep(fields, config_maps=config_maps, secrets=secrets)
        # Templates without indexed `sysprep` references keep the digests of earlier versions of vmherd.
        rules = (config_maps, secrets, *(("sysprep",) if sysprep else ()))
        return Template(
            labels=labels,
            annotations=annotations,
            machine_labels=_machine_labels(fields),
            spec=machine_spec,
            index_config_maps=config_maps,
            index_secrets=secrets,
            index_sysprep=sysprep,
            digest=_digest(labels, annotations, normal_form(fields, VM_SPEC), *rules),
            machine=_digest(_parts_of_vmi(fields), *rules),
            disks=_digest(_names_and_specs(fields)),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FieldError("spec.virtualMachineTemplate.spec is missing: it must be a VirtualMachine spec")


_parse_remembered = lru_cache(REMEMBERED)(_parse)


def describe_difference(old: Template, new: Template, *, most: int = 3) -> str:
    """Compare two templates. Return the paths of the fields that differ in meaning. The argument `most` is the maximum
    number of paths.

    The result is "" if all fields have the same meaning.
    """
    before, after = (
        {
            "metadata": {"labels": dict(each.labels), "annotations": dict(each.annotations)},
            "spec": normal_form(msgspec.json.decode(each.spec), VM_SPEC),
            "indexes": [each.index_config_maps, each.index_secrets, each.index_sysprep],
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
    """Return the parts of a VM spec that affect a VMI, in normal form.

    The run strategy, the dataVolumeTemplates and `updateVolumesStrategy` are left out.
    """
    parts = {name: vm_spec.get(name) for name in ("instancetype", "preference")}
    return [
        normal_form(vm_spec["template"], VMI_TEMPLATE),
        *(normal_form(each, VM_SPEC.field(name)) for name, each in parts.items()),
    ]


def _index_rules(spec: PoolSpec) -> tuple[bool, bool]:
    """Return two flags: whether references to ConfigMaps get the ordinal, and whether references to Secrets get it
    (P5).

    KubeVirt has renamed the fields of these flags. Both the old and the new names are accepted.
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


def _machine_labels(vm_spec: Fields) -> Mapping[str, str]:
    template = vm_spec["template"]
    metadata = template.get("metadata") if isinstance(template, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def _has_indexed_sysprep(vm_spec: Fields, *, config_maps: bool, secrets: bool) -> bool:
    """Return True if a `sysprep` volume refers to a ConfigMap or a Secret whose name gets the ordinal as a suffix."""
    template = vm_spec["template"]
    machine = template.get("spec") if isinstance(template, dict) else None
    volumes = machine.get("volumes") if isinstance(machine, dict) else None
    sources = [each.get("sysprep") for each in volumes if isinstance(each, dict)] if isinstance(volumes, list) else []
    return any(
        isinstance(source, dict) and ((config_maps and source.get("configMap")) or (secrets and source.get("secret")))
        for source in sources
    )


def _digest(*content: object) -> str:
    return blake2b(encoded(content), digest_size=16).hexdigest()
