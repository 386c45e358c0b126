"""Helpers for tests of updates: a pool with a new template, its VMs before and after the update, and their steps.

The revision web-1 has the template with the image v1. The revision web-2 is the current revision, with the image v2.
"""

from collections.abc import Iterable
from typing import Any

from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.snapshot import Snapshot
from controller.runtime.actions import Delete, Plan, Restart, ThreeWayMerge
from tests.pool_builders import LABELS, Json, pool, revision, snapshot, vm_spec, vmi, vms

BEFORE = pool(spec=vm_spec(image="v1"))
ASCENDING: Json = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}


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
    is_restart = (
        isinstance(each, Restart) or (isinstance(each, Delete) and each.resource is VMIS) for each in todo.actions
    )
    return [each.key.name for each, found in zip(todo.actions, is_restart, strict=True) if found]


def deleted(todo: Plan) -> list[str]:
    """The VMs that are deleted or restarted."""
    return [each.key.name for each in todo.actions if isinstance(each, Delete | Restart)]


def deleted_vms(todo: Plan) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS]
