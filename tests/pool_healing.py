"""Pools that heal, what is written of it, and what a plan does about it."""

from __future__ import annotations

import json

from controller.kubevirt.annotations import HEALED
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.heal import plan_healing
from controller.runtime.plan import Delete, Patch, Plan
from tests.builders import seconds_ago
from tests.fakes.kubevirt import BROKEN
from tests.pool_builders import Json, intent_of, pool, snapshot
from tests.pool_simulation import PoolSimulation

FAILING: Json = {"ready": False, "failures": 3}
"""A VM that has failed to start often enough for any of these pools."""

STUCK: Json = {"ready": False, "printable": "ImagePullBackOff"}

SOON: Json = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "0s"}


def healing_pool(*, healed: Json | None = None, annotations: Json | None = None, **changes: object) -> Pool:
    """A pool of ten that heals after three failures or five minutes. `healed` is its record."""
    marks = {**(annotations or {}), **({HEALED: json.dumps(healed)} if healed is not None else {})}
    healing = {"startUpFailureThreshold": 3, "minFailingToStartDuration": "5m"}
    return pool(**{"replicas": 10, "autohealing": healing, "annotations": marks or None, **changes})


def entry(uid: str = "another", count: int = 1, seconds: float = 60.0) -> list[object]:
    """What is written of a healing, that many seconds ago. As nobody has this UID, the VM was made anew."""
    return [uid, count, at(seconds)]


def at(seconds: float) -> str:
    """That many seconds ago, as on the wire."""
    return seconds_ago(seconds).isoformat().replace("+00:00", "Z")


def heal(owner: Pool, *machines: VirtualMachine, **more: object) -> Plan:
    seen = snapshot(owner, machines, **more)
    return plan_healing(seen, intent_of(owner), seen.members)


def healed(todo: Plan) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete)]


def record_of(todo: Plan) -> Json:
    """What the plan writes of it."""
    [patch] = [each for each in todo.actions if isinstance(each, Patch)]
    return json.loads(json.loads(patch.body)["metadata"]["annotations"][HEALED])


def reasons(todo: Plan) -> list[str]:
    return [notice.reason for notice in todo.notices]


def break_one(simulation: PoolSimulation, name: str) -> None:
    """From now on this VM does not come up."""
    root, *disks = simulation.vms[name]["spec"]["template"]["spec"]["volumes"]
    volumes = [{**root, "containerDisk": {"image": BROKEN}}, *disks]
    simulation.edit_vm(name, spec={"template": {"spec": {"volumes": volumes}}})
    simulation.server.remove(VMIS, simulation.key(name))
