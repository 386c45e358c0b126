"""Decides about the effect of a changed VM spec on a running VMI, as docs/sandbox.md describes. It is pure."""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt.normal_form import VMI_SPEC, is_same, value_at
from sandbox.step import Patch, patch_of
from sandbox.vmi_status import is_migratable
from sandbox.vmis import SimulatedVMI, Volume

Fields: TypeAlias = dict[str, Any]

OTHER_FIELD: Final = "a non-live-updatable field was changed in the template spec"
TOO_MANY_SOCKETS: Final = "CPU sockets updated in template spec to a value higher than what's available"
FEWER_SOCKETS: Final = "Reduction of CPU socket count requires a restart"
NOT_MIGRATABLE: Final = "memory updated in template spec. Memory-hotplug is only available for migratable VMs"
NO_HOTPLUG: Final = "memory updated in template spec. Memory-hotplug is not available for this VM configuration"
LESS_MEMORY: Final = "memory updated in template spec to a value lower than what the VM started with"
TOO_MUCH_MEMORY: Final = "memory updated in template spec to a value higher than what's available"

MAX_HOTPLUG_RATIO: Final = 4
"""KubeVirt's default maximum of CPU sockets and memory, as a multiple of the values at the start."""

SMALLEST_PLUGGABLE: Final = 1024**3
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations")


class Update(Struct, frozen=True):
    """The effect of a new VM spec on a running VMI.

    `restart_message` is that of the condition RestartRequired, or "". `patch` is the patch of the VMI. `failure` is the
    reason and the message of the condition Failure.
    """

    restart_message: str = ""
    patch: Patch | None = None
    failure: tuple[str, str] | None = None


def update_for(started: Fields, current: Fields, vmi: SimulatedVMI) -> Update:
    """The argument `started` is the VM's spec at the start, and `current` is the present spec."""
    if not _is_live_updatable(started, current, vmi):
        return Update(OTHER_FIELD)
    if vmi.is_terminating:
        return Update()
    spec = _template_spec(current)
    parts = (_volume_update, _cpu_update, _placement_update, _memory_update)
    return next(filter(None, (part(spec, vmi) for part in parts)), Update())


def _is_live_updatable(started: Fields, current: Fields, vmi: SimulatedVMI) -> bool:
    if any(started.get(name) != current.get(name) for name in ("instancetype", "preference")):
        return False
    old, new = _template_spec(started), _template_spec(current)
    plugged = _hotplugged(old) | _hotplugged(new)
    old, new = _without_volumes(old, plugged), _without_volumes(new, plugged)
    return is_same(_with_live_fields(old, new, vmi), new, VMI_SPEC)


def _with_live_fields(old: Fields, new: Fields, vmi: SimulatedVMI) -> Fields:
    result = {**old, **{name: new.get(name) for name in _PLACEMENT}}
    old_domain, new_domain = old.get("domain") or {}, new.get("domain") or {}
    domain = dict(old_domain)
    old_cpu, new_cpu = old_domain.get("cpu"), new_domain.get("cpu")
    if isinstance(old_cpu, dict) and isinstance(new_cpu, dict):
        domain["cpu"] = {**old_cpu, "sockets": new_cpu.get("sockets")}
    guest = value_at(new_domain, ("memory", "guest"))
    if guest is not None:
        domain["memory"] = {**(old_domain.get("memory") or {}), "guest": guest}
    uuid = value_at(new_domain, ("firmware", "uuid"))
    running = msgspec.json.decode(vmi.spec.domain)
    if uuid is not None and uuid == value_at(running, ("firmware", "uuid")):
        domain["firmware"] = {**(old_domain.get("firmware") or {}), "uuid": uuid}
    return result | {"domain": domain}


def _hotplugged(spec: Fields) -> set[str]:
    sources = ("dataVolume", "persistentVolumeClaim")
    volumes = spec.get("volumes") or ()
    return {each["name"] for each in volumes if any(value_at(each, (source, "hotpluggable")) for source in sources)}


def _without_volumes(spec: Fields, names: set[str]) -> Fields:
    if not names:
        return spec
    domain = spec.get("domain") or {}
    devices = domain.get("devices") or {}
    disks = [disk for disk in devices.get("disks") or () if disk.get("name") not in names or "cdrom" in disk]
    volumes = [volume for volume in spec["volumes"] or () if volume["name"] not in names] if "volumes" in spec else None
    return {**spec, "volumes": volumes, "domain": {**domain, "devices": {**devices, "disks": disks}}}


def _volume_update(spec: Fields, vmi: SimulatedVMI) -> Update | None:
    """KubeVirt plugs the volumes of `_hotplugged` in and out."""
    wanted = msgspec.convert(spec.get("volumes") or (), tuple[Volume, ...])
    if {(each.name, each.claim) for each in wanted} == {(each.name, each.claim) for each in vmi.volumes}:
        return None
    disks = value_at(spec, ("domain", "devices", "disks")) or []
    return Update(
        patch=patch_of(vmi.metadata, spec={"volumes": spec.get("volumes"), "domain": {"devices": {"disks": disks}}})
    )


def _cpu_update(spec: Fields, vmi: SimulatedVMI) -> Update | None:
    wanted, has = value_at(spec, ("domain", "cpu", "sockets")), vmi.domain.cpu
    if not isinstance(wanted, int) or has is None or wanted == (has.sockets or 0):
        return None
    change = vmi.condition("HotVCPUChange")
    if change is not None and change.status == "True":
        why = "Error encountered while handling CPU change request: another CPU hotplug is in progress"
        return Update(failure=("HotPlugCPUError", why))
    topology = vmi.status.current_cpu_topology
    at_boot = topology.sockets if topology is not None else has.sockets or 1
    if wanted > (has.max_sockets or MAX_HOTPLUG_RATIO * at_boot):
        return Update(TOO_MANY_SOCKETS)
    if wanted < (has.sockets or 0):
        return Update(FEWER_SOCKETS)
    return Update(patch=patch_of(vmi.metadata, spec={"domain": {"cpu": {"sockets": wanted}}}))


def _placement_update(spec: Fields, vmi: SimulatedVMI) -> Update | None:
    has = vmi.spec
    present = {"nodeSelector": has.node_selector, "affinity": has.affinity, "tolerations": has.tolerations}
    wanted = {name: spec.get(name) for name in _PLACEMENT}
    changes = merge_patch_for({k: v for k, v in present.items() if v}, {k: v for k, v in wanted.items() if v})
    return Update(patch=patch_of(vmi.metadata, spec=changes)) if changes else None


def _memory_update(spec: Fields, vmi: SimulatedVMI) -> Update | None:
    wanted: Any = value_at(spec, ("domain", "memory", "guest"))
    has, told = vmi.domain.memory, vmi.status.memory
    if wanted is None or has is None or has.guest is None or told is None or told.guest_current is None:
        return None
    new, now = parse_quantity(wanted), parse_quantity(has.guest)
    at_boot = parse_quantity(told.guest_at_boot or told.guest_current)
    if new is None or now is None or at_boot is None or new == now:
        return None
    if not is_migratable(vmi):
        return Update(NOT_MIGRATABLE)
    most = parse_quantity(has.max_guest) if has.max_guest is not None else None
    if most is None and at_boot >= SMALLEST_PLUGGABLE:
        most = at_boot * MAX_HOTPLUG_RATIO
    if most is None:
        return Update(NO_HOTPLUG)
    change = vmi.condition("HotMemoryChange")
    if change is not None and change.status == "True":
        why = "error encountered while handling memory hotplug requests: another memory hotplug is in progress"
        return Update(failure=("HotPlugMemoryError", why))
    if new < at_boot:
        return Update(LESS_MEMORY)
    if new > most:
        return Update(TOO_MUCH_MEMORY)
    return Update(patch=patch_of(vmi.metadata, spec={"domain": {"memory": {"guest": wanted}}}))


def merge_patch_for(old: Fields, new: Fields) -> Fields:
    patch: Fields = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_patch_for(before, value):
                patch[name] = inner
        elif before != value:
            patch[name] = value
    return patch


def _template_spec(vm_spec: Fields) -> Fields:
    spec = value_at(vm_spec, ("template", "spec"))
    return spec if isinstance(spec, dict) else {}
