"""Changes that KubeVirt makes to a running VMI, so that its VM needs no restart.

With `vmRolloutStrategy: LiveUpdate`, KubeVirt gives the fields of `LIVE_FIELDS` to the running VMI, and ends a change
of CPUs or memory with a live migration. It sets the condition `RestartRequired` if a VM needs a restart, or if the
change fails, with the generation that it has seen in `status.desiredGeneration` (`observedGeneration` is that of the
start). The proposed condition `VMIInSync` (VEP 376), with an own `observedGeneration`, tells the difference, so it
counts where it exists.
"""

import re
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition, find_true
from controller.kubevirt import vmis
from controller.kubevirt.delicate import delicate_reason_of_vmi
from controller.kubevirt.normal_form import (
    VM_SPEC,
    VMI_SPEC,
    GoType,
    Json,
    Path,
    differences,
    encoded,
    normal_form,
    value_at,
)
from controller.kubevirt.vm_types import FAILURE, IN_SYNC, RESTART_REQUIRED, VirtualMachine
from controller.kubevirt.vmi_types import (
    CPU_CHANGE,
    LIVE_MIGRATABLE,
    MEMORY_CHANGE,
    MIGRATION_REQUIRED,
    VOLUMES_CHANGE,
    VirtualMachineInstance,
    VMIStatus,
)

SIZES: Final = (("domain", "cpu", "sockets"), ("domain", "memory", "guest"))
"""The paths in the spec of a VMI that KubeVirt changes with a live migration."""

PLACEMENT: Final = (("nodeSelector",), ("affinity",), ("tolerations",))
"""The paths in the spec of a VMI that KubeVirt changes at once. docs/live-changes.md has what it does with others."""

LIVE_FIELDS: Final = (*SIZES, *PLACEMENT)

DEVICES: Final = (("volumes",), ("networks",), ("domain", "devices", "disks"), ("domain", "devices", "interfaces"))
"""The paths in the spec of a VMI whose lists KubeVirt changes in part, at once or with a live migration."""

_RESTARTS: Final = re.compile(
    r"template\.(metadata\b|spec\.(domain\.(cpu|resources)\b|evictionStrategy|hostname|priorityClassName|readinessProbe"
    r"|terminationGracePeriodSeconds|topologySpreadConstraints|volumes\[\d+\]\.(containerDisk|cloudInitNoCloud)\.))"
)
"""Fields that needed a restart with each setting of the recording. No running VMI gets `template.metadata`."""

NO_METHOD: Final = "the KubeVirt object does not have LiveMigrate in its workloadUpdateMethods"

_MIGRATIONS: Final = (CPU_CHANGE, MEMORY_CHANGE, VOLUMES_CHANGE, MIGRATION_REQUIRED)
"""The conditions of a VMI that wait for a live migration."""

_PARTS_OF_VMI: Final = ("template", "instancetype", "preference")

_STATUS_OF: Final = {
    ("domain", "cpu", "sockets"): ("currentCPUTopology", "sockets"),
    ("domain", "memory", "guest"): ("memory", "guestRequested"),
}
"""Where the status of a VMI has the value that the guest has now."""


class RolloutSettings(Struct, frozen=True):
    """What the KubeVirt object says about changes of VMs that run: KubeVirt `changes` the running VMI where it can,
    `migrates` it if that needs a live migration, and `evicts` VMs that it does not migrate. From 1.9 on, it `judges`:
    it makes the changes of `DEVICES` that it can, or asks for a restart, with the strategy `Stage` too.
    """

    changes: bool = False
    migrates: bool = False
    judges: bool = False
    evicts: bool = False


class Change(Enum):
    """What a new VM spec is for a running VMI: nothing new, fields of `PLACEMENT`, `SIZES` too, fields for which
    KubeVirt's verdict tells if they need a restart, or fields that need one.
    """

    NONE = auto()
    PLACEMENT = auto()
    SIZE = auto()
    OPEN = auto()
    OTHER = auto()


class Verdict(Enum):
    """What KubeVirt has done with the present spec of a VM that runs.

    With UNSEEN, KubeVirt has not seen the spec, or says that it failed to apply it. With RESTART, the spec needs a
    restart. With CHANGING, a live change of the VMI has not ended. With APPLIED, the VMI has the spec.
    """

    UNSEEN = auto()
    RESTART = auto()
    CHANGING = auto()
    APPLIED = auto()


def verdict_of(vm: VirtualMachine, vmi: VirtualMachineInstance) -> Verdict:
    """Return what KubeVirt has done with the VM's spec. `vmi` is the running VMI of the VM."""
    if not is_seen(vm):
        return Verdict.UNSEEN
    if restart_required(vm) is not None:
        return Verdict.RESTART
    return Verdict.CHANGING if is_changing(vmi) else Verdict.APPLIED


def asks_for_restart(vm: VirtualMachine) -> bool:
    return is_seen(vm) and restart_required(vm) is not None


def is_seen(vm: VirtualMachine) -> bool:
    """Return True if KubeVirt has seen the present spec of the VM, and does not say that it failed to apply it."""
    status, generation = vm.status, vm.metadata.generation
    if status is None or status.desired_generation != generation:
        return False
    synced = find_condition(status.conditions, IN_SYNC)
    return synced is None or (synced.status == "True" and synced.observed_generation in (None, generation))


def restart_required(vm: VirtualMachine) -> Condition | None:
    return find_true(vm.status.conditions if vm.status is not None else None, RESTART_REQUIRED)


def why_unfinished(vm: VirtualMachine, vmi: VirtualMachineInstance) -> str:
    if verdict_of(vm, vmi) is not Verdict.CHANGING:
        told = vm.status.conditions if vm.status is not None else None
        synced = find_condition(told, IN_SYNC)
        failure = synced if synced is not None and synced.status == "False" else find_true(told, FAILURE)
        why = f": {failure.message or failure.reason}" if failure is not None else ""
        return f"KubeVirt has not applied its new spec yet{why}"
    return delicate_reason_of_vmi(vmi) or "it waits for a live migration"


def change_between(old: Json, new: Json) -> Change:
    """Compare two VM specs. The run strategy and the dataVolumeTemplates are no part of a VMI."""
    paths = [each for each in differences(old, new, VM_SPEC) if each.startswith(_PARTS_OF_VMI)]
    if not paths:
        return Change.NONE
    if all(_is_in(each, PLACEMENT) for each in paths):
        return Change.PLACEMENT
    others = [each for each in paths if not _is_in(each, LIVE_FIELDS)]
    if not others:
        return Change.SIZE
    return Change.OTHER if any(map(_RESTARTS.match, others)) else Change.OPEN


def why_not(change: Change, rollout: RolloutSettings, vmi: VirtualMachineInstance) -> str:
    """Return the reason why KubeVirt does not end this change of the running VMI, or ""."""
    if change is not Change.SIZE and not (change is Change.OPEN and needs_migration(vmi)):
        return ""
    if not rollout.migrates:
        return NO_METHOD
    blocked = find_condition(vmi.status.conditions if vmi.status is not None else None, LIVE_MIGRATABLE)
    return f"it cannot migrate: {blocked.message or blocked.reason}" if blocked is not None else ""


def unapplied(vm: bytes, vmi: bytes) -> str:
    """Return what the running VMI does not have of its VM's template yet, or "". Both are the objects on the server.

    Only fields that KubeVirt can change are compared. KubeVirt and an instance type add values. KubeVirt takes an
    interface with `state: absent` out of the VMI.
    """
    template = value_at(_decoded(vm), ("spec", "template", "spec"))
    found = _decoded(vmi)
    spec, status = value_at(found, ("spec",)), value_at(found, ("status",))
    interfaces = value_at(template, DEVICES[-1])
    devices = interfaces if isinstance(interfaces, list) else []
    absent = {value_at(each, ("name",)) for each in devices if value_at(each, ("state",)) == "absent"}
    for path in (*LIVE_FIELDS, *DEVICES):
        has = normal_form(value_at(spec, path), _type_of(path))
        wanted = normal_form(value_at(template, path), _type_of(path))
        shown = normal_form(value_at(status, _STATUS_OF[path]), _type_of(path)) if path in _STATUS_OF else None
        if isinstance(wanted, list):
            wanted = [each for each in wanted if value_at(each, ("name",)) not in absent] or None
        if not _covers(has, wanted) or (shown is not None and not _covers(shown, has if wanted is None else wanted)):
            return f"the running instance does not have {'.'.join(path)} of its template yet"
    return ""


def _covers(value: Json, wanted: Json) -> bool:
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(_covers(value.get(name), each) for name, each in wanted.items())
    if isinstance(value, list) and isinstance(wanted, list):
        present, named = {*map(encoded, value)}, {value_at(each, ("name",)): each for each in value}
        missing = [(value_at(each, ("name",)), each) for each in wanted if encoded(each) not in present]
        return all(name is not None and _covers(named.get(name), each) for name, each in missing)
    return wanted is None or encoded(value) == encoded(wanted)


def _is_in(path: str, parents: tuple[Path, ...]) -> bool:
    heads = [f"template.spec.{'.'.join(each)}" for each in parents]
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in heads)


def is_changing(vmi: VirtualMachineInstance) -> bool:
    """Return True if KubeVirt plugs volumes of the VMI, or if the VMI migrates, or has to."""
    status = vmi.status or VMIStatus()
    waits = status.volume_status or find_condition(status.conditions, MIGRATION_REQUIRED)
    return bool(waits) or vmis.is_migrating(vmi) or needs_migration(vmi)


def migrations_of(vmi: VirtualMachineInstance) -> tuple[tuple[str, str | None], ...]:
    """Return the states of the conditions that say whether the VMI needs a migration, and whether it can migrate."""
    conditions = (vmi.status.conditions if vmi.status is not None else None) or ()
    return tuple([(each.type, each.status) for each in conditions if each.type in (*_MIGRATIONS, LIVE_MIGRATABLE)])


def needs_migration(vmi: VirtualMachineInstance) -> bool:
    return any(type_ in _MIGRATIONS and status == "True" for type_, status in migrations_of(vmi))


def _type_of(path: Path) -> GoType:
    type_ = VMI_SPEC
    for name in path:
        type_ = type_.field(name)
    return type_


def _decoded(document: bytes) -> Json:
    return msgspec.json.decode(document)
