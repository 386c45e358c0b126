"""The template of a pool's VMs: `virtualMachineTemplate` and `nameGeneration` in parsed form, with digests.

Templates with the same meaning have the same digests, even if the templates are written differently (see
`normal_form`). A template has several digests, because a change of each part needs a different update step (P13).
`digest` covers the whole template. `machine` covers the VMI template, the instance type and the preference. `disks` has
a digest of each dataVolumeTemplate without its size. The sizes are in `disk_sizes`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt import limits
from controller.kubevirt.limits import decode_spec, read_template
from controller.kubevirt.live_updates import Change, change_between
from controller.kubevirt.normal_form import (
    DISKS,
    UNKNOWN,
    VM_SPEC,
    VM_TEMPLATE,
    VMI_TEMPLATE,
    Fields,
    Json,
    Path,
    encoded,
    first_differences,
    normal_form,
    strategy_of,
    value_at,
    without,
)
from controller.kubevirt.pool_types import NameGeneration, PoolSpec
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from informers.memo import Memo

FIELD: Final = "spec.virtualMachineTemplate"

# The paths at which a volume of a VMI template refers to a ConfigMap or a Secret (P5).
CONFIG_MAPS: Final[tuple[Path, ...]] = (("configMap", "name"),)
SECRETS: Final[tuple[Path, ...]] = (
    ("secret", "secretName"),
    ("cloudInitNoCloud", "secretRef", "name"),
    ("cloudInitNoCloud", "networkDataSecretRef", "name"),
    ("cloudInitConfigDrive", "secretRef", "name"),
    ("cloudInitConfigDrive", "networkDataSecretRef", "name"),
)
SYSPREP_CONFIG_MAPS: Final[tuple[Path, ...]] = (("sysprep", "configMap", "name"),)
SYSPREP_SECRETS: Final[tuple[Path, ...]] = (("sysprep", "secret", "name"),)
"""The controller adds the ordinal at the `SYSPREP` paths only if the pool has the annotation `INDEX_SYSPREP`."""


class Template(limits.Template, frozen=True, kw_only=True):
    """A valid template.

    `machine_labels` are the labels of the VMI template. `spec` is the VM spec in JSON. The spec is an object, and its
    field `template` is an object too. `index_sysprep` is True if the ordinal is added to a name that a `sysprep` volume
    refers to.
    """

    machine_labels: Mapping[str, str]
    index_config_maps: bool
    index_secrets: bool
    index_sysprep: bool
    digest: str
    machine: str
    disks: Mapping[str, str]
    disk_sizes: Mapping[str, str]
    stops: bool
    """True if KubeVirt stops a running VM that gets this template."""


class DiskChange(Enum):
    """The difference between the dataVolumeTemplates of two templates.

    A claim that is larger than the template asks for is no difference. With LARGER, only sizes differ, and disks are
    larger. With NAMES, disks are added or removed. With OTHER, a disk has changed in another way.
    """

    NONE = auto()
    LARGER = auto()
    NAMES = auto()
    OTHER = auto()


def disk_change(past: Template, current: Template) -> DiskChange:
    """Compare the dataVolumeTemplates of two templates (P21)."""
    if past.disks == current.disks and past.disk_sizes == current.disk_sizes:
        return DiskChange.NONE
    common = past.disks.keys() & current.disks.keys()
    if any(past.disks[name] != current.disks[name] for name in common):
        return DiskChange.OTHER
    if past.disks.keys() != current.disks.keys():
        return DiskChange.NAMES
    return DiskChange.LARGER if larger_disks(past, current) else DiskChange.NONE


def machine_change(past: Template, current: Template) -> Change:
    """Compare what a VMI gets of two templates."""
    if past.machine == current.machine:
        return Change.NONE
    return _change_between(past.spec, current.spec) if _rules(past) == _rules(current) else Change.OTHER


@lru_cache(maxsize=256)
def _change_between(old: bytes, new: bytes) -> Change:
    return change_between(msgspec.json.decode(old), msgspec.json.decode(new))


def _rules(template: Template) -> tuple[bool, ...]:
    return template.index_config_maps, template.index_secrets, template.index_sysprep


def larger_disks(past: Template, current: Template) -> Mapping[str, str]:
    """Return the new sizes of the disks that are larger in the current template, by name of the dataVolumeTemplate."""
    before = past.disk_sizes
    # Most sizes have the same text. To parse a quantity is slow.
    return {
        name: size
        for name, size in current.disk_sizes.items()
        if size != before.get(name, size) and _bytes(size) > _bytes(before[name])
    }


def parse_template(spec: PoolSpec, *, index_sysprep: bool = False) -> Template | FieldError:
    """Return the template of a pool spec, or the first error (P1). `index_sysprep` is True if the pool or the revision
    has the annotation `INDEX_SYSPREP`.
    """
    return read_template(spec.virtual_machine_template, FIELD, _remembered, *_index_rules(spec), index_sysprep)


def _parse(wire: VMITemplate, config_maps: bool, secrets: bool, index_sysprep: bool) -> Template | FieldError:
    decoded = decode_spec(wire, FIELD, VM_TEMPLATE, "VirtualMachine")
    if isinstance(decoded, FieldError):
        return decoded
    fields, error = decoded
    if not isinstance(fields.get("template"), dict):
        return FieldError(f"{FIELD}.spec.template is missing: it must be a VMI template")
    meta = wire.metadata or TemplateMeta()
    # A flag without a reference that gets the ordinal changes no VM, so it must not change the digests.
    volumes = value_at(fields, ("template", "spec", "volumes"))
    in_sysprep = [index_sysprep and _refer(volumes, paths) for paths in (SYSPREP_CONFIG_MAPS, SYSPREP_SECRETS)]
    sysprep = (config_maps and in_sysprep[0]) or (secrets and in_sysprep[1])
    config_maps = config_maps and (in_sysprep[0] or _refer(volumes, CONFIG_MAPS))
    secrets = secrets and (in_sysprep[1] or _refer(volumes, SECRETS))
    disks, sizes = _disks_of(fields)
    labels = value_at(fields, ("template", "metadata", "labels"))
    # Templates without indexed `sysprep` references keep the digests of earlier versions of vmherd.
    rules = (config_maps, secrets, *(("sysprep",) if sysprep else ()))
    return Template(
        machine_labels=labels if isinstance(labels, dict) else {},
        index_config_maps=config_maps,
        index_secrets=secrets,
        index_sysprep=sysprep,
        digest=_digest(meta.labels or {}, meta.annotations or {}, normal_form(fields, VM_SPEC), *rules),
        machine=_digest(_parts_of_vmi(fields), *rules),
        disks=disks,
        disk_sizes=sizes,
        stops=strategy_of(fields) == "Halted",
        error=error,
    )


_remembered: Final = Memo(_parse)


def _refer(volumes: Json, paths: tuple[Path, ...]) -> bool:
    return isinstance(volumes, list) and any(value_at(volume, path) for volume in volumes for path in paths)


def describe_difference(old: Template, new: Template) -> str:
    """Return the first paths of the fields that differ in meaning, or ""."""
    before, after = (
        {
            "metadata": {"labels": dict(each.labels), "annotations": dict(each.annotations)},
            "spec": normal_form(msgspec.json.decode(each.spec), VM_SPEC),
            "indexes": [*_rules(each)],
        }
        for each in (old, new)
    )
    return first_differences(before, after, UNKNOWN)


def _disks_of(vm_spec: Fields) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return a digest of each dataVolumeTemplate without its size, and the sizes. The keys are the names. KubeVirt
    creates a DataVolume from the name and the spec only.
    """
    written = vm_spec.get("dataVolumeTemplates")
    split = [_split_size(disk) for disk in written] if isinstance(written, list) else []
    sizes = {name: size for disk, size in split if size and (name := _name_of(disk))}
    disks = normal_form([disk for disk, _ in split], DISKS)
    named = [disk if isinstance(disk, dict) else {} for disk in disks] if isinstance(disks, list) else []
    return {(name := _name_of(disk)): _digest(disk.get("spec"), name in sizes) for disk in named}, sizes


def _split_size(disk: Json) -> tuple[Json, str]:
    """Return the dataVolumeTemplate without its size, and the size. The size is "" if it cannot be parsed."""
    for source in ("storage", "pvc"):
        path = ("spec", source, "resources", "requests", "storage")
        size = value_at(disk, path)
        if isinstance(size, str) and _name_of(disk) and parse_quantity(size) is not None:
            return without(disk, path), size
    return disk, ""


def _name_of(disk: Json) -> str:
    name = value_at(disk, ("metadata", "name"))
    return name if isinstance(name, str) else ""


def _bytes(size: str) -> Fraction:
    return parse_quantity(size) or Fraction()


def _parts_of_vmi(vm_spec: Fields) -> list[object]:
    """Return the parts of a VM spec that affect a VMI, in normal form."""
    others = (normal_form(vm_spec.get(name), VM_SPEC.field(name)) for name in ("instancetype", "preference"))
    return [normal_form(vm_spec["template"], VMI_TEMPLATE), *others]


def _index_rules(spec: PoolSpec) -> tuple[bool, bool]:
    """Return whether references to ConfigMaps get the ordinal, and whether references to Secrets get it (P5). KubeVirt
    has renamed the fields, and both names are accepted.
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
