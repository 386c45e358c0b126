"""The rules for applying a template change to a VirtualMachine (P12): named lists, exclusive fields, and objects that
are replaced as a whole.

In some objects KubeVirt accepts only one of several fields: the source of a volume, the type of a disk, `running` or
`runStrategy`. KubeVirt rejects a VM with two of these fields. So if the template changed such a field, the other ones
are removed from the VM. A firmware that the new template does not contain keeps the UUID that KubeVirt has set. Two
spellings of the same value are not a change (`normal_form`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.apimachinery.three_way_merge import MergeRules, NamedList
from controller.kubevirt.normal_form import VM_TEMPLATE, Fields, is_same, strategy_of

POWER: Final = ("running", "runStrategy")
"""The two fields that control whether a VM runs. KubeVirt accepts only one of them."""

WHOLE: Final = frozenset({"instancetype", "preference", "source"})
"""Objects that are replaced as a whole, because their fields depend on each other. For example, KubeVirt resolves the
name of an instance type to a revision and stores the revision beside the name. It then uses that revision as long as it
is stored there.
"""

DISK_KINDS: Final = frozenset({"disk", "lun", "cdrom", "floppy"})
BINDINGS: Final = frozenset(
    {"binding", "bridge", "macvtap", "masquerade", "passt", "passtBinding", "slirp", "sriov", "vdpa"}
)


def _is_source(field: str) -> bool:
    """True if the field is the source of a volume or network: every field except `name`."""
    return field != "name"


def _with_power(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    """The merged VM spec with only one of `running` and `runStrategy`. The VM keeps its own setting if the template's
    setting has the same meaning as before. The VM also keeps its own setting if the old template has none: such a
    change must not start a VM.
    """
    vm_strategy, old_strategy, new_strategy = (strategy_of(spec) for spec in (current, old, new))
    is_set_by_user = vm_strategy not in (None, old_strategy) and old_strategy is None
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

VM_RULES: Final = MergeRules(type=VM_TEMPLATE, is_same=is_same, named_lists=NAMED_LISTS, whole=WHOLE, spec=_with_power)
