"""How a VirtualMachine is brought from one template to the next (P12): its named lists, choices and atomic objects.

Where KubeVirt takes one of several fields (the source of a volume, the kind of a disk, `running` or `runStrategy`), a
choice that the template changed displaces any other: KubeVirt rejects a VM with two of them. A firmware that the
template no longer mentions keeps the UUID that KubeVirt gave it. Two spellings of one meaning are no difference
(`normal_form`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.apimachinery.three_way_merge import MergeRules, NamedList
from controller.kubevirt.normal_form import VM_TEMPLATE, Fields, is_same, strategy_of

POWER: Final = ("running", "runStrategy")
"""Two ways to say whether a VM is to run, of which KubeVirt takes one."""

WHOLE: Final = frozenset({"instancetype", "preference", "source"})
"""Objects whose fields mean something only together. KubeVirt notes the revision of the instance type that it found
beside the name that it looked for, and uses that revision for as long as it stands there.
"""

DISK_KINDS: Final = frozenset({"disk", "lun", "cdrom", "floppy"})
BINDINGS: Final = frozenset(
    {"binding", "bridge", "macvtap", "masquerade", "passt", "passtBinding", "slirp", "sriov", "vdpa"}
)


def _is_source(field: str) -> bool:
    """A volume or network has a name, and beside it one field: the source."""
    return field != "name"


def _with_power(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    """The VM's spec with one setting for whether it runs. The VM keeps its setting if the template's means the same as
    before, or if the template's old setting is unknown: no VM is started for that.
    """
    said, was, wanted = (strategy_of(spec) for spec in (current, old, new))
    is_theirs = said not in (None, was) and was is None
    source = new if was != wanted and not is_theirs else current
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
