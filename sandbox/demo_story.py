"""`vmherd demo --once`: what a newcomer would do, done and checked, each step within its time.

Every command is printed as it could be pasted, and run as it is printed.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sandbox.demo_account import (
    Course,
    Object,
    Progress,
    is_at_rest,
    is_ready,
    name_of,
    owned_by,
    revision_of,
    status_of,
    uid_of,
)
from sandbox.demo_view import POOL, View
from sandbox.demo_world import STEP_WITHIN_S, VMIS, DemoFailed, World, until
from sandbox.kubectl import run_kubectl

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
SET_EXAMPLE, SET_NAME = EXAMPLES / "replicaset-v1alpha3.yaml", "testreplicaset"
POOL_EXAMPLE, POOL_NAME = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml", "vm-pool-web"
POOL_LABEL = f"kubevirt.io/vmpool%3D{POOL_NAME}"
MOST_UNAVAILABLE = 1
"""What the example's maxUnavailable of 25% comes to for its 4 VMs."""

BROKEN = f"{POOL_NAME}-1"

READY_AFTER = {"metadata": {"annotations": {"sim.vmherd.dev/ready-after": "2s"}}}
FAIL = {"metadata": {"annotations": {"sim.vmherd.dev/behavior": "fail"}}}


def merge_patch(resource: str, name: str, change: Any) -> tuple[str, ...]:
    """kubectl's arguments for a merge patch."""
    return "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


UPDATE = merge_patch("vmpool", POOL_NAME, {"spec": {"virtualMachineTemplate": {"spec": {"template": READY_AFTER}}}})
"""Edits the template: from now on, VMs take two seconds to boot. That is a new revision, so all are restarted."""

BREAK = (merge_patch("vm", BROKEN, {"spec": {"template": FAIL}}), ("delete", "vmi", BROKEN))
"""Makes one VM fail whenever it is started, and has it started."""


def show_set(world: World) -> None:
    """A replica set: apply, scale out, scale in."""
    print(run_kubectl(world.kubeconfig, "apply", "-f", str(SET_EXAMPLE)), end="", flush=True)
    _wait_for_set(world, 3)
    _type(world, "get", "vmirs,vmi")
    _type(world, "describe", "vmirs", SET_NAME)
    for replicas in (5, 2):
        _type(world, "scale", "vmirs", SET_NAME, "--replicas", str(replicas))
        _wait_for_set(world, replicas)
    _type(world, "get", "vmirs,vmi")


def show_pool(world: World) -> None:
    """A pool: apply, a rolling update, a healing."""
    print()
    print(run_kubectl(world.kubeconfig, "apply", "-f", str(POOL_EXAMPLE)), end="", flush=True)
    took_s = until(lambda: _pool_is_at_rest(world.look()), f"all VMs of {POOL_NAME} ready")
    print(f"all VMs ready after {took_s:.1f}s")
    _type(world, "get", "vmpool,vm")
    _update(world)
    _heal(world)
    _type(world, "get", "vmpool,vm")
    _type(world, "describe", "vmpool", POOL_NAME)


def _type(world: World, *arguments: str) -> None:
    print(f"\n$ {shlex.join(('kubectl', *arguments))}")
    print(run_kubectl(world.kubeconfig, *arguments), end="", flush=True)


def _wait_for_set(world: World, replicas: int) -> None:
    """Return when the set and its VMIs show so many, all ready. Raises DemoFailed when they do not in time."""
    took_s = until(lambda: _set_shows(world.look(), replicas), f"{replicas} of {replicas} ready")
    print(f"{replicas} of {replicas} ready after {took_s:.1f}s", flush=True)


def _set_shows(view: View, replicas: int) -> bool:
    if len(view.sets) != 1 or not is_at_rest(view.sets[0]):
        return False
    return bool(view.sets[0]["spec"]["replicas"] == replicas == len(owned_by(view.sets[0], view.vmis)))


def _pool_is_at_rest(view: View) -> bool:
    return len(view.pools) == 1 and is_at_rest(view.pools[0])


def _update(world: World) -> None:
    """Change the template, and go along until the pool says that all of it is updated. Raises DemoFailed."""
    vmis, version = world.list(VMIS, POOL_LABEL)
    _type(world, *UPDATE)
    changes, most = follow_update(lambda after: world.changes_since(VMIS, POOL_LABEL, after), vmis, version)
    until(lambda: _pool_is_at_rest(world.look()), f"{POOL_NAME} says that it is updated")
    print(f"updated in {changes} changes, with never more than {most} of {len(vmis)} unavailable", flush=True)


def follow_update(
    changes_since: Callable[[str], Iterable[Object]],
    vmis: Sequence[Object],
    version: str,
    *,
    within_s: float = STEP_WITHIN_S,
) -> tuple[int, int]:
    """Print every step until all VMIs are of a newer revision and ready.

    `vmis` are those of before, all of one revision, as of `version`. No state of theirs is missed. Returns how many
    changes there were, and how many VMs were unavailable at most. Raises DemoFailed when those are too many, or when it
    takes too long.
    """
    course, outdated, total = Course.beginning(vmis), revision_of(vmis[0]), len(vmis)
    progress, changes, most = course.progress(outdated), 0, 0
    started = time.monotonic()
    while progress != Progress(updated=total, ready=total):
        if time.monotonic() - started > within_s:
            raise DemoFailed(f"not within {within_s:g}s: the update of {POOL_NAME}")
        for event in changes_since(version):
            course, version, changes = course.after(event), event["object"]["metadata"]["resourceVersion"], changes + 1
            if progress == (progress := course.progress(outdated)):
                continue
            print(f"updated {progress.updated} of {total}, ready {progress.ready} of {total}", flush=True)
            most = max(most, total - progress.ready)
            if most > MOST_UNAVAILABLE:
                raise DemoFailed(f"{most} VMs were unavailable at once, where maxUnavailable allows {MOST_UNAVAILABLE}")
    return changes, most


def _heal(world: World) -> None:
    """Have one VM fail, and wait until it has been replaced and all is well. Raises DemoFailed when that is not so."""
    before = uid_of(_find(world.look().vms, BROKEN))
    for arguments in BREAK:
        _type(world, *arguments)
    told = ""

    def is_back() -> bool:
        nonlocal told
        view = world.look()
        vm = _find(view.vms, BROKEN)
        line = f"{BROKEN} {uid_of(vm)}: {status_of(vm).get('printableStatus', '')}" if vm else f"{BROKEN} is gone"
        if line != told and not view.trouble:
            print(line, flush=True)
            told = line
        return bool(vm) and uid_of(vm) != before and is_ready(vm) and _pool_is_at_rest(view)

    took_s = until(is_back, f"{BROKEN} is replaced")
    healed = [event["message"] for event in world.look().events if _is_healing(event)]
    if not healed:
        raise DemoFailed(f"no Event tells of the healing of {BROKEN}")
    print(f"healed after {took_s:.1f}s; the Event says: {healed[-1]}", flush=True)


def _is_healing(event: dict[str, Any]) -> bool:
    message = event.get("message", "")
    return event["involvedObject"].get("kind") == POOL and BROKEN in message and "healing" in message


def _find(objects: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    """The object of that name, or {}."""
    return next((each for each in objects if name_of(each) == name), {})
