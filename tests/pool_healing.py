"""Helpers for tests of healing: pools with autohealing, healing records, and plans for failing VMs."""

import json

from msgspec.structs import replace

from controller.kubevirt.annotations import HEALED, UNREADY
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.healing.heal import plan_healing
from controller.runtime.actions import Delete, Patch, Plan
from tests.builders import seconds_ago
from tests.pool_builders import Json, pool, situation_of, snapshot

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


def reasons(todo: Plan) -> list[str]:
    return [notice.reason for notice in todo.notices]
