"""The rules for applying a template change to a VirtualMachine (P12). The rules name three things: the lists whose
elements are identified by a name, the fields that exclude each other, and the objects that are always replaced as a
whole.

These fields exclude each other: the sources of a volume, the types of a disk, and `running` and `runStrategy`. KubeVirt
rejects a VM that has two fields of such a group. So if the template changed one field of a group, the other fields of
the group are removed. KubeVirt sets a firmware UUID in each VM. The VM keeps this UUID even if the new template has no
firmware any more. If the new template spells a value in another way, the VM is not changed (`normal_form`).
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
"""The names of the fields whose objects are replaced as a whole. The fields inside such an object depend on each other.
For example, KubeVirt stores the revision of an instance type beside the name of the instance type. As long as the
object contains a revision, KubeVirt uses this revision and ignores a newer one. So a new name must replace the stored
revision too.
"""

DISK_KINDS: Final = frozenset({"disk", "lun", "cdrom", "floppy"})
"""The fields for the type of a disk. They exclude each other."""

BINDINGS: Final = frozenset(
    {"binding", "bridge", "macvtap", "masquerade", "passt", "passtBinding", "slirp", "sriov", "vdpa"}
)
"""The fields for the binding of a network interface. They exclude each other."""


def _is_source(field: str) -> bool:
    """Return True if the field is the source of a volume or network. Every field except `name` is a source."""
    return field != "name"


def _with_power(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    """Return the merged VM spec with only one of the fields `running` and `runStrategy`.

    If the settings of the old and the new template have the same meaning, the VM keeps its current setting. If the old
    template has no setting, or is not known, a user may have made the current setting, to stop or to start the VM. The
    VM keeps this setting, too. In all other cases, the VM gets the setting of the new template.
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
