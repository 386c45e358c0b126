"""Why the disks of a VM are not filled. Only the DataVolumes say it: KubeVirt's VM says that it has no VMI."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.kubevirt.resources import DATA_VOLUMES
from controller.kubevirt.vms import disk_names_of
from controller.pool.members.snapshot import Snapshot
from informers.errors import Forbidden, NotFound
from plugin.connection import Session
from plugin.views.situation import Situation

FILLING = frozenset({"Provisioning", "WaitingForVolumeBinding", "DataVolumeError"})
ASKED = 3
"""At most so many VMs are looked at, as one answer names no more."""


async def with_disk_problems(session: Session, situation: Situation, snapshot: Any) -> Situation:
    """Return the situation of a pool in which the VMs that wait for disks say what CDI says of these disks."""
    waiting = [each.name for each in situation.members if each.problem and each.status in FILLING][:ASKED]
    if not waiting or not isinstance(snapshot, Snapshot):
        return situation
    problems = {
        each.vm.metadata.name: await _problem(session, situation.identity.namespace, disk_names_of(each.vm))
        for each in snapshot.members
        if each.vm.metadata.name in waiting
    }
    members = (replace(each, problem=problems.get(each.name) or each.problem) for each in situation.members)
    return replace(situation, members=tuple(members))


async def _problem(session: Session, namespace: str, disks: tuple[str, ...]) -> str:
    for name in disks:
        try:
            answer = await session.request("GET", DATA_VOLUMES.path(namespace, name))
        except (Forbidden, NotFound):  # the disk is a claim without a DataVolume, or not made yet
            continue
        status = msgspec.json.decode(answer).get("status") or {}
        if status.get("phase") != "Succeeded":
            return f"disk {name}: {told_by(status)}"
    return ""


def told_by(status: Mapping[str, Any]) -> str:
    """Return the phase of a DataVolume, its progress, and the first message of a condition that is not met."""
    unmet = (each for each in status.get("conditions") or () if each.get("status") == "False")
    message = next((text for each in unmet if (text := each.get("message"))), "")
    progress = status.get("progress", "")
    return (
        ", ".join(filter(None, (status.get("phase"), progress if "%" in progress else "", message))) or "no phase yet"
    )
