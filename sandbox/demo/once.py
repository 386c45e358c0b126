"""This module runs the steps of `vmherd demo --once`, such as a scale, an update and a healing of the example objects.

The command `vmherd demo --once` fails if a step does not finish within its time limit. Most commands are printed, so
that the user can copy them into a terminal.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controller.kinds import POOLS, REPLICA_SETS
from sandbox.demo.cluster import STEP_TIMEOUT_S, VMIS, DemoCluster, DemoFailed, until
from sandbox.demo.experiments import (
    BAD_IMAGE,
    BROKEN,
    DETACHED,
    EXAMPLE_MAX_UNAVAILABLE,
    FAIL,
    POOL,
    POOL_EXAMPLE,
    POOL_NAME,
    POOL_SIZE,
    SET,
    SET_EXAMPLE,
    SET_NAME,
    SET_SIZE,
    UPDATE,
    Command,
    detach_command,
    scale_command,
)
from sandbox.demo.runner import as_process, environment, one_line
from sandbox.demo.status import (
    Object,
    controller_of,
    is_complete,
    is_ready,
    name_of,
    owned_by,
    revision_of,
    status_of,
    uid_of,
)
from sandbox.demo.tables import View

POOL_LABEL = f"kubevirt.io/vmpool%3D{POOL_NAME}"
PULLING_FAILED = ("ErrImagePull", "ImagePullBackOff")
UNDO: Command = ("kubectl", "vmherd", "rollout", "undo", POOL)


def run_once(cluster: DemoCluster) -> None:
    """Run all steps and print their results. Raises DemoFailed."""
    for number, (heading, step) in enumerate(STEPS, start=1):
        print(f"\n=== Step {number} of {len(STEPS)}: {heading} ===", flush=True)
        step(cluster)


def _create_set(cluster: DemoCluster) -> None:
    _show(cluster, "kubectl", "apply", "-f", str(SET_EXAMPLE))
    _wait_for_set(cluster, SET_SIZE)
    _show(cluster, "kubectl", "get", "vmirs,vmi")
    _show(cluster, "kubectl", "describe", "vmirs", SET_NAME)


def _scale_set(cluster: DemoCluster) -> None:
    for replicas in (SET_SIZE + 2, SET_SIZE - 1):
        _show(cluster, *scale_command("vmirs", SET_NAME, replicas))
        _wait_for_set(cluster, replicas)
    _show(cluster, "kubectl", "get", "vmirs,vmi")


def _create_pool(cluster: DemoCluster) -> None:
    _show(cluster, "kubectl", "apply", "-f", str(POOL_EXAMPLE))
    took_s = until(lambda: _pool_is_complete(cluster.view()), f"all VMs of {POOL_NAME} ready")
    print(f"all VMs ready after {took_s:.1f}s")
    _show(cluster, "kubectl", "get", "vmpool,vm")


def _show(cluster: DemoCluster, *command: str) -> None:
    """Print a command and its output. Raises DemoFailed if the command fails."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run(
        as_process(command),
        env=environment(cluster.kubeconfig),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"{shlex.join(command)}: {one_line(done.stderr) or one_line(done.stdout)}")
    print(done.stdout + done.stderr, end="", flush=True)


def _wait_for_set(cluster: DemoCluster, replicas: int) -> None:
    """Wait until the replica set has this number of replicas and all replicas are ready.

    Raises DemoFailed after the time limit.
    """
    took_s = until(lambda: _set_shows(cluster.view(), replicas), f"{replicas} of {replicas} ready")
    print(f"{replicas} of {replicas} ready after {took_s:.1f}s", flush=True)


def _set_shows(view: View, replicas: int) -> bool:
    sets = view.of(REPLICA_SETS)
    if len(sets) != 1 or not is_complete(sets[0]):
        return False
    return bool(sets[0]["spec"]["replicas"] == replicas == len(owned_by(sets[0], view.vmis)))


def _pool_is_complete(view: View) -> bool:
    pools = view.of(POOLS)
    return len(pools) == 1 and is_complete(pools[0])


def _update(cluster: DemoCluster) -> None:
    """Change the pool's template and wait until the pool's status shows a complete update. Raises DemoFailed."""
    vmis, version = cluster.list(VMIS, POOL_LABEL)
    _show(cluster, *UPDATE)
    changes, peak = follow_update(lambda after: cluster.changes_since(VMIS, POOL_LABEL, after), vmis, version)
    until(lambda: _pool_is_complete(cluster.view()), f"the status of {POOL_NAME} shows a complete update")
    print(f"updated in {changes} changes, at most {peak} of {len(vmis)} unavailable", flush=True)


def follow_update(
    changes_since: Callable[[str], Iterable[Object]],
    vmis: Sequence[Object],
    version: str,
    *,
    within_s: float = STEP_TIMEOUT_S,
) -> tuple[int, int]:
    """Print the progress of an update until all VMIs are ready and have a newer revision.

    `vmis` are the VMIs before the update, read at resource version `version`. All these VMIs have the same revision.
    `changes_since` returns the watch events after a resource version, so no change is missed. Return the number of
    watch events and the highest number of unavailable VMs. Raises DemoFailed if too many VMs are unavailable, or after
    `within_s` seconds.
    """
    observed, outdated, total = {name_of(vmi): vmi for vmi in vmis}, revision_of(vmis[0]), len(vmis)
    progress, changes, peak = _progress(observed.values(), outdated), 0, 0
    started = time.monotonic()
    while progress != (total, total):
        if time.monotonic() - started > within_s:
            raise DemoFailed(f"not finished within {within_s:g}s: the update of {POOL_NAME}")
        for event in changes_since(version):
            vmi, changes = event["object"], changes + 1
            observed[name_of(vmi)] = vmi
            if event["type"] == "DELETED":
                del observed[name_of(vmi)]
            version = vmi["metadata"]["resourceVersion"]
            if progress == (progress := _progress(observed.values(), outdated)):
                continue
            updated, ready = progress
            print(f"updated {updated} of {total}, ready {ready} of {total}", flush=True)
            peak = max(peak, total - ready)
            if peak > EXAMPLE_MAX_UNAVAILABLE:
                raise DemoFailed(
                    f"{peak} VMs were unavailable at once, but maxUnavailable allows {EXAMPLE_MAX_UNAVAILABLE}"
                )
    return changes, peak


def _progress(vmis: Iterable[Object], outdated: str) -> tuple[int, int]:
    """Return the number of ready VMIs that no longer have the revision `outdated`, and the number of ready VMIs."""
    ready = [vmi for vmi in vmis if is_ready(vmi)]
    return sum(revision_of(vmi) != outdated for vmi in ready), len(ready)


def _heal(cluster: DemoCluster) -> None:
    """Make one VM fail, and wait until the VM is replaced and the pool is complete again. Raises DemoFailed."""
    before = uid_of(_find(cluster.view().vms, BROKEN))
    for command in FAIL:
        _show(cluster, *command)
    last_line = ""

    def is_back() -> bool:
        nonlocal last_line
        view = cluster.view()
        vm = _find(view.vms, BROKEN)
        line = (
            f"{BROKEN} {uid_of(vm)}: {status_of(vm).get('printableStatus', '')}" if vm else f"{BROKEN} no longer exists"
        )
        if line != last_line and not view.error:
            print(line, flush=True)
            last_line = line
        return bool(vm) and uid_of(vm) != before and is_ready(vm) and _pool_is_complete(view)

    took_s = until(is_back, f"{BROKEN} replaced and ready")
    healed = [event["message"] for event in cluster.view().events if _is_healing(event)]
    if not healed:
        raise DemoFailed(f"no Event reports the healing of {BROKEN}")
    print(f"healed after {took_s:.1f}s; Event: {healed[-1]}", flush=True)


def _detach(cluster: DemoCluster) -> None:
    """Detach one VM, and wait until the pool is complete without the VM. Raises DemoFailed."""
    _show(cluster, *detach_command(DETACHED))

    def is_replaced() -> bool:
        view = cluster.view()
        vm = _find(view.vms, DETACHED)
        stays = bool(vm) and controller_of(vm) is None and is_ready(vm)
        return stays and _pool_is_complete(view) and len(view.vms) == POOL_SIZE + 1

    until(is_replaced, f"{DETACHED} detached and replaced")
    _show(cluster, "kubectl", "get", "vmpool,vm")


def _bad_image(cluster: DemoCluster) -> None:
    """Give the pool a template that cannot start. Raises DemoFailed if too many VMs are unavailable."""
    _show(cluster, *BAD_IMAGE)

    def has_stopped() -> bool:
        return any(status_of(vm).get("printableStatus") in PULLING_FAILED for vm in cluster.view().vms)

    until(has_stopped, "a VM reports that its image cannot be pulled")
    _show(cluster, "kubectl", "vmherd", "tree", POOL)
    _show(cluster, "kubectl", "vmherd", "why", POOL)
    [pool] = cluster.view().of(POOLS)
    ready = status_of(pool).get("readyReplicas", 0)
    if ready < POOL_SIZE - EXAMPLE_MAX_UNAVAILABLE:
        raise DemoFailed(f"{ready} of {POOL_SIZE} VMs are ready, but maxUnavailable allows {EXAMPLE_MAX_UNAVAILABLE}")
    print(f"the update waits: {ready} of {POOL_SIZE} VMs are ready", flush=True)


def _undo(cluster: DemoCluster) -> None:
    """Return to the template before, and wait until all VMs are ready. Raises DemoFailed."""
    _show(cluster, *UNDO)
    took_s = until(lambda: _pool_is_complete(cluster.view()), f"all VMs of {POOL_NAME} have the template before")
    print(f"all VMs ready after {took_s:.1f}s", flush=True)
    _show(cluster, "kubectl", "describe", "vmpool", POOL_NAME)


def _plugin(cluster: DemoCluster) -> None:
    for verb in ("tree", "why"):
        _show(cluster, "kubectl", "vmherd", verb, POOL, SET)


STEPS: Sequence[tuple[str, Callable[[DemoCluster], None]]] = (
    (f"create a replica set of {SET_SIZE} VMIs", _create_set),
    ("scale the replica set out and in", _scale_set),
    (f"create a pool of {POOL_SIZE} VMs", _create_pool),
    ("update the pool, one VM at a time", _update),
    ("break a VM: the pool heals it", _heal),
    ("detach a VM: it stays, and another VM takes its place", _detach),
    ("a bad image: the update stops at the first VM", _bad_image),
    ("undo: the pool returns to the template before", _undo),
    ("what the plugin shows", _plugin),
)
"""The steps, each with its heading."""


def _is_healing(event: dict[str, Any]) -> bool:
    message = event.get("message", "")
    return event["involvedObject"].get("kind") == POOLS.kind and BROKEN in message and "healing" in message


def _find(objects: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    """Return the object with this name, or {} if there is no such object."""
    return next((each for each in objects if name_of(each) == name), {})
