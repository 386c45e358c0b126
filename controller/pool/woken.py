"""Ordinary VMs of a pool that still have the mark of a standby: they were woken, or a user has started them (P32). A VM
that a backup has restored without its mark gets the one of a woken VM.

A woken VM serves as soon as its template and its VMI have the label of the service. It keeps the time of its wake until
it is ready, and until no request to pause it can come any more. Such a request may have been sent before the wake.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.kubevirt.annotations import IN_SERVICE, STANDBY_STATE, SUBSTITUTE, is_to_be_paused
from controller.kubevirt.resources import UNPAUSE, VMI_REQUESTS, VMIS, VMS
from controller.kubevirt.standby import (
    LATE,
    WOKEN,
    has_standby_mark,
    has_strange_mark,
    is_resting,
    is_to_unpause,
    is_woken,
    note_of,
    was_paused,
    woken_at,
)
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, template_labels_of
from controller.pool.health import is_fully_ready
from controller.pool.members.machine import Machine, is_hidden
from controller.pool.members.situation import Situation
from controller.pool.substitutes import is_substitute
from controller.replicas.draining import is_draining
from controller.replicas.notes import merge_patch, wake_at
from controller.runtime.actions import Patch, Pause, Plan, stage_of
from controller.runtime.members.groups import by_name


def plan_ordinary(situation: Situation) -> Plan:
    """Plan to remove the marks of VMs that are ordinary members again. A VM that a user has started or unpaused counts
    as woken. A woken VM keeps the time until it is ready, and until no request to pause it can come.

    The template gets its label of the service first, and then the VMI, because KubeVirt may copy the one to the other.
    """
    now = situation.now

    def late_until(machine: Machine) -> datetime | None:
        woken = woken_at(machine.metadata)
        return woken + LATE if woken is not None and was_paused(machine.vm, machine.vmi) else None

    def has_old_mark(machine: Machine) -> bool:
        is_up = is_fully_ready(machine) or not machine.should_run
        is_done = is_up and (late_until(machine) or now) <= now
        is_over = is_woken(machine.metadata) and (is_done or _is_hidden(machine))
        is_wrong = has_strange_mark(machine.metadata) or (woken_at(machine.metadata) or now) > now + LATE
        return is_over or is_wrong or has_standby_mark(machine.metadata) or situation.is_left_out(machine)

    ours = (situation.members + situation.claimed).where(lambda each: not is_deleting(each.vm))
    paused = ours.where(lambda each: is_to_unpause(each.vm, each.vmi))
    requests = [request(each.vmi, UNPAUSE, "it is no standby any more") for each in paused if each.vmi is not None]
    members = situation.members.where(lambda each: not is_deleting(each.vm))
    marked = members.where(has_old_mark).without({each.metadata.uid for each in paused})
    short = situation.target.substitutes - len(members.where(is_substitute)) if marked else 0
    woken = [each for each in by_name(marked) if is_resting(each.metadata) and is_to_be_paused(each.metadata)]
    substitutes = {each.metadata.uid for each in woken[: max(short, 0)]}
    patches = [_ordinary(situation, each, each.metadata.uid in substitutes) for each in by_name(marked)]
    times = [late_until(each) for each in members.where(lambda each: is_woken(each.metadata))]
    waits = wake_at((at for at in times if at is not None and at > now), now)
    return replace(waits, stages=stage_of((*requests, *patches)))


def _ordinary(situation: Situation, machine: Machine, substitutes: bool) -> Patch:
    why, vmi, label = "it is no standby any more", machine.vmi, in_service(machine)
    if is_resting(machine.metadata) or is_to_be_paused(machine.metadata) or situation.is_left_out(machine):
        return patch_of(machine, woken_marks(situation, machine, substitutes), label, why)
    if label:
        return patch_of(machine, {}, label, why)
    if vmi is None or not _is_hidden(machine):
        return patch_of(machine, {STANDBY_STATE: None}, {}, why)
    changed = {"resourceVersion": vmi.metadata.resource_version, "labels": {IN_SERVICE: "true"}}
    return merge_patch(VMIS, vmi.metadata, changed, why)


def _is_hidden(machine: Machine) -> bool:
    """Return True if the VMI is out of service, and no drain is the reason."""
    return is_hidden(machine) and not is_draining(machine.metadata)


def in_service(machine: Machine) -> dict[str, Any]:
    if template_labels_of(machine.vm).get(IN_SERVICE) != "false":
        return {}
    return {"template": {"metadata": {"labels": {IN_SERVICE: "true"}}}}


def woken_marks(situation: Situation, machine: Machine, is_substitute: bool) -> dict[str, str | None]:
    note = note_of(f"{WOKEN}{time_text(situation.now)}", machine.metadata.name)
    return {**note, **({SUBSTITUTE: "true"} if is_substitute else {})}


def patch_of(machine: Machine, marks: dict[str, str | None], spec: dict[str, Any], why: str) -> Patch:
    meta = machine.metadata
    changed = {"resourceVersion": meta.resource_version, "annotations": marks}
    return merge_patch(VMS, meta, changed, why, more={"spec": spec} if spec else {})


def request(vmi: VirtualMachineInstance, subresource: str, why: str) -> Pause:
    meta = vmi.metadata
    return Pause(resource=VMIS, key=meta.key, uid=meta.uid, requests=VMI_REQUESTS, subresource=subresource, why=why)
