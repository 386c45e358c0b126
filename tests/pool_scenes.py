"""Helpers for tests of updates, healing and outcomes of a pool.

Updates: the revision web-1 has the template with the image v1. The revision web-2 is the current revision, with the
image v2. Healing: pools with autohealing, healing records, and plans for failing VMs."""

import json
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from controller.kubevirt.annotations import HEALED, REVISION_NAME, UNREADY
from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.healing.heal import plan_healing
from controller.pool.members.snapshot import Snapshot
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, Patch, Plan, Restart, ThreeWayMerge
from informers.errors import Forbidden
from informers.meta import ObjectKey
from tests.builders import seconds_ago
from tests.pool_builders import LABELS, Json, pool, revision, situation_of, snapshot, vm_spec, vmi, vms

BEFORE = pool(spec=vm_spec(image="v1"))
ASCENDING: Json = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
DESCENDING: Json = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
OFFLINE: Json = {"proactive": {"statePreservation": "Offline"}}
"""The pool keeps the disks of the VMs that leave."""


def updated_pool(**changes: Any) -> Pool:
    return pool(**{"generation": 2, "spec": vm_spec(image="v2"), "updateStrategy": ASCENDING, **changes})


def limited_pool(most: int | str | None = 1, *, replicas: int = 4, **changes: Any) -> Pool:
    """A pool of four VMs, of which one may be unavailable."""
    return updated_pool(replicas=replicas, maxUnavailable=most, **changes)


def old_vms(owner: Pool, *ordinals: int, **changes: Any) -> tuple[VirtualMachine, ...]:
    return vms(owner, *ordinals, **{"revision": "web-1", "spec": vm_spec(image="v1"), **changes})


def new_vms(owner: Pool, *ordinals: int, strategy: str = "Always", **changes: Any) -> tuple[VirtualMachine, ...]:
    """VMs with the current template in their spec."""
    spec = vm_spec(image="v2", labels={**LABELS, REVISION_NAME: "web-2"}, run_strategy=strategy)
    return vms(owner, *ordinals, **{"revision": "web-2", "spec": spec, **changes})


def old_vmis(machines: Iterable[VirtualMachine], **changes: Any) -> list[VirtualMachineInstance]:
    return [vmi(each, revision="web-1", **changes) for each in machines]


def during_update(
    owner: Pool, machines: Iterable[VirtualMachine], *, before: Pool = BEFORE, current: bool = True, **more: Any
) -> Snapshot:
    """A snapshot with the revision web-1 of the pool `before`. With `current`, it also has the revision web-2."""
    kept = [revision(before, "web-1", number=1), *([revision(owner, "web-2", number=2)] if current else [])]
    return snapshot(owner, machines, revisions=kept, **more)


def changed_pool(**fields: Any) -> tuple[Pool, list[ControllerRevision]]:
    """A pool with a new image in its template, and its two revisions."""
    before, now = pool(**fields), pool(spec=vm_spec(image="v2"), generation=2, **fields)
    return now, [revision(before, number=1), revision(now, number=2)]


def merged(todo: Plan) -> list[str]:
    """The VMs that get the current template."""
    return [each.key.name for each in todo.actions if isinstance(each, ThreeWayMerge)]


def restarted(todo: Plan) -> list[str]:
    """The VMs whose VMI is deleted or restarted."""
    found = [each for each in todo.actions if isinstance(each, Delete | Restart)]
    return [each.key.name for each in found if isinstance(each, Restart) or each.resource is VMIS]


def deleted(todo: Plan) -> list[str]:
    """The VMs that are deleted or restarted."""
    return [each.key.name for each in todo.actions if isinstance(each, Delete | Restart)]


def deleted_vms(todo: Plan) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS]


FAILING: Json = {"ready": False, "failures": 3}
"""A VM with so many failed starts that the pool heals the VM at once."""

STUCK: Json = {"ready": False, "printable": "ImagePullBackOff"}
"""A VM in a broken state. It is healed after the minimum failing time."""


def healing_pool(*, healed: Json | None = None, annotations: Json | None = None, **changes: object) -> Pool:
    """A pool of ten VMs.

    A VM is healed after three failures or five minutes. `healed` are the pool's healing records.
    """
    all_annotations = {**(annotations or {}), **({HEALED: json.dumps(healed)} if healed is not None else {})}
    healing = {"startUpFailureThreshold": 3, "minFailingToStartDuration": "5m"}
    return pool(**{"replicas": 10, "autohealing": healing, "annotations": all_annotations or None, **changes})


def entry(uid: str = "another", count: int = 1, seconds: float = 60.0) -> list[object]:
    """A healing record. `seconds` is its age. The default UID belongs to no VM, so the record is of a VM that was
    replaced.
    """
    return [uid, count, at(seconds)]


def at(seconds: float) -> str:
    """The time `seconds` ago, as in JSON."""
    return seconds_ago(seconds).isoformat().replace("+00:00", "Z")


def announce(owner: Pool, *machines: VirtualMachine, **more: object) -> Plan:
    """The healing part of the first plan for these VMs. This plan announces the deletions of VMs."""
    seen = snapshot(owner, machines, **more)
    return plan_healing(situation_of(seen)).plan


def heal(owner: Pool, *machines: VirtualMachine, **more: object) -> Plan:
    """The healing part of a plan for these VMs. The deletions of the VMs were announced 3 seconds before."""
    first = announce(owner, *machines, **more)
    return announce(announced(owner, record_of(first)), *machines, **more) if is_announced(first) else first


def announced(owner: Pool, records: Json) -> Pool:
    """The pool with these healing records, as if they were announced earlier. A record with the current time is made 3
    seconds older.
    """
    aged = {ordinal: [*others, at(3) if when == at(0) else when] for ordinal, (*others, when) in records.items()}
    return annotated(owner, HEALED, aged)


def announced_for(owner: Pool, *machines: VirtualMachine) -> Pool:
    """The pool after the deletions of these VMs were announced. The announcement is 3 seconds old."""
    return annotated(owner, HEALED, {ordinal_of(each): [each.metadata.uid, 1, at(3)] for each in machines})


def noted(owner: Pool, machine: VirtualMachine, seconds: float) -> Pool:
    """The pool with an annotation. The annotation says that this VM became unready `seconds` ago."""
    return annotated(owner, UNREADY, {ordinal_of(machine): [machine.metadata.uid, at(seconds)]})


def annotated(owner: Pool, annotation: str, value: Json) -> Pool:
    annotations = {**(owner.metadata.annotations or {}), annotation: json.dumps(value)}
    return replace(owner, metadata=replace(owner.metadata, annotations=annotations))


def ordinal_of(machine: VirtualMachine) -> str:
    return machine.metadata.name.rpartition("-")[2]


def is_announced(todo: Plan) -> bool:
    return any(isinstance(each, Patch) and each.is_note for each in todo.actions)


def healed(todo: Plan) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete)]


def record_of(todo: Plan) -> Json:
    [patch] = [each for each in todo.actions if isinstance(each, Patch) and each.is_note]
    return json.loads(json.loads(patch.body)["metadata"]["annotations"][HEALED])


KEY = ObjectKey("default", "vm-pool-cirros-0")
CREATE = Create(resource=VMS, key=KEY, body=b"{}", owner_uid="uid-of-the-pool", why="2 of 3 VMs exist")
QUOTA = Forbidden("exceeded quota: 3 of 3", code=403)


def status_of(owner, *machines, outcomes=(), **circumstances) -> PoolStatus:
    return next_status(snapshot(owner, machines, **circumstances), outcomes)
