"""The rules for applying a template change to a VirtualMachine (P12): named lists, exclusive fields, whole objects.

KubeVirt rejects a VM with two sources of a volume, two types of a disk, or `running` and `runStrategy`. So a field that
the template changed replaces the others of its group. The VM keeps the firmware UUID that KubeVirt sets.
"""

from collections.abc import Mapping
from typing import Final

from controller.apimachinery.three_way_merge import MergeRules, NamedList
from controller.kubevirt.normal_form import VM_TEMPLATE, Fields, normal_form, strategy_of

POWER: Final = ("running", "runStrategy")
"""The two fields that control whether a VM runs. KubeVirt accepts only one of these fields in a VM."""

STARTING: Final = frozenset({"Always", "Once", "RerunOnFailure"})
"""The run strategies with which KubeVirt starts a VM."""

WHOLE: Final = frozenset({"instancetype", "preference", "source"})
"""Objects that are replaced as a whole: KubeVirt stores the revision of an instance type beside its name."""

DISK_KINDS: Final = frozenset({"disk", "lun", "cdrom", "floppy"})
BINDINGS: Final = frozenset(
    {"binding", "bridge", "macvtap", "masquerade", "passt", "passtBinding", "slirp", "sriov", "vdpa"}
)


def _is_source(field: str) -> bool:
    """Return True if the field is the source of a volume or network. Every field except `name` is a source."""
    return field != "name"


def _with_power(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    """Return the merged VM spec with only one of the fields `running` and `runStrategy`.

    The VM keeps its setting if those of the templates have the same meaning, or if a user may have made it to stop or
    start the VM: the old template has none, or is not known. Else it gets that of the new template.
    """
    vm_strategy, old_strategy, new_strategy = (strategy_of(spec) for spec in (current, old, new))
    is_set_by_user = vm_strategy is not None and old_strategy is None and not {vm_strategy, new_strategy} <= STARTING
    source = new if old_strategy != new_strategy and not is_set_by_user else current
    others = {name: value for name, value in merged.items() if name not in POWER}
    return others | {name: source[name] for name in POWER if name in source}


NAMED_LISTS: Final[Mapping[str, NamedList]] = {
    "disks": NamedList(is_choice=DISK_KINDS.__contains__),
    "volumes": NamedList(is_choice=_is_source),
    "interfaces": NamedList(is_choice=BINDINGS.__contains__),
    "networks": NamedList(is_choice=_is_source),
    "filesystems": NamedList(),
    "gpus": NamedList(),
    "hostDevices": NamedList(),
    "dataVolumeTemplates": NamedList(name=("metadata", "name")),
}

VM_RULES: Final = MergeRules(VM_TEMPLATE, normal_form, NAMED_LISTS, WHOLE, _with_power)
