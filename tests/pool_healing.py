"""Pools with autohealing, their records of healings, and the healing part of a plan."""

from __future__ import annotations

import json

from controller.kubevirt.annotations import HEALED
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.heal import plan_healing
from controller.runtime.plan import Delete, Patch, Plan
from tests.builders import seconds_ago
from tests.pool_api import Json
from tests.pool_builders import intent_of, pool, snapshot
from tests.pool_worlds import BROKEN, World

FAILING: Json = {"ready": False, "failures": 3}
"""The status of a VM with enough failed starts for a healing in any of these pools."""

STUCK: Json = {"ready": False, "printable": "ImagePullBackOff"}

SOON: Json = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "0s"}


def healing_pool(*, healed: Json | None = None, annotations: Json | None = None, **changes: object) -> Pool:
    """A pool of ten that heals after three failures or five minutes. `healed` is its record of healings."""
    marks = {**(annotations or {}), **({HEALED: json.dumps(healed)} if healed is not None else {})}
    healing = {"startUpFailureThreshold": 3, "minFailingToStartDuration": "5m"}
    return pool(**{"replicas": 10, "autohealing": healing, "annotations": marks or None, **changes})


def entry(uid: str = "another", count: int = 1, seconds: float = 60.0) -> list[object]:
    """The record of a healing that many seconds ago. No VM has this UID, so the VM was recreated."""
    return [uid, count, at(seconds)]


def at(seconds: float) -> str:
    """The timestamp of that many seconds ago, as on the wire."""
    return seconds_ago(seconds).isoformat().replace("+00:00", "Z")


def heal(owner: Pool, *machines: VirtualMachine, **more: object) -> Plan:
    seen = snapshot(owner, machines, **more)
    return plan_healing(seen, intent_of(owner), seen.members)


def healed(todo: Plan) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete)]


def record_of(todo: Plan) -> Json:
    """The record of healings that the plan writes."""
    [patch] = [each for each in todo.actions if isinstance(each, Patch)]
    return json.loads(json.loads(patch.body)["metadata"]["annotations"][HEALED])


def reasons(todo: Plan) -> list[str]:
    return [notice.reason for notice in todo.notices]


def break_one(world: World, name: str) -> None:
    """From now on this VM does not come up."""
    world.vms[name]["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"] = BROKEN
    world.delete("virtualmachineinstances", name)
