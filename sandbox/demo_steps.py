"""This module runs the steps of `vmherd demo --once`: it creates, scales, updates and heals the example objects.

The command `vmherd demo --once` fails if a step does not finish within its time limit. Most kubectl commands are
printed, so that the user can copy them into a terminal.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from controller.kinds import POOLS, REPLICA_SETS
from sandbox.demo_cluster import STEP_TIMEOUT_S, VMIS, DemoCluster, DemoFailed, until
from sandbox.demo_status import (
    Object,
    ObservedVMIs,
    Progress,
    is_complete,
    is_ready,
    name_of,
    owned_by,
    revision_of,
    status_of,
    uid_of,
)
from sandbox.demo_view import View
from sandbox.kubectl import run_kubectl

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
SET_EXAMPLE, SET_NAME = EXAMPLES / "replicaset-v1alpha3.yaml", "testreplicaset"
POOL_EXAMPLE, POOL_NAME = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml", "vm-pool-web"
POOL_LABEL = f"kubevirt.io/vmpool%3D{POOL_NAME}"
EXAMPLE_MAX_UNAVAILABLE = 1
"""The maximum number of unavailable VMs of the example pool. This pool has 4 VMs, and its maxUnavailable is 25%."""

BROKEN = f"{POOL_NAME}-1"

READY_AFTER = {"metadata": {"annotations": {"sim.vmherd.dev/ready-after": "2s"}}}
FAIL = {"metadata": {"annotations": {"sim.vmherd.dev/behavior": "fail"}}}


def merge_patch(resource: str, name: str, change: Any) -> tuple[str, ...]:
    """Return the arguments of the kubectl command that changes an object with a merge patch."""
    return "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


UPDATE = merge_patch("vmpool", POOL_NAME, {"spec": {"virtualMachineTemplate": {"spec": {"template": READY_AFTER}}}})
"""The kubectl arguments that change the pool's template.

With the new template, each VM needs two seconds to boot. The pool restarts all VMs.
"""

BREAK = (merge_patch("vm", BROKEN, {"spec": {"template": FAIL}}), ("delete", "vmi", BROKEN))
"""The arguments of two kubectl commands: make one VM fail at every start, then delete its VMI to restart the VM."""


def show_set(cluster: DemoCluster) -> None:
    """Apply a replica set, scale the replica set out and in, and print the results. Raises DemoFailed."""
    print(run_kubectl(cluster.kubeconfig, "apply", "-f", str(SET_EXAMPLE)), end="", flush=True)
    _wait_for_set(cluster, 3)
    _run_and_print(cluster, "get", "vmirs,vmi")
    _run_and_print(cluster, "describe", "vmirs", SET_NAME)
    for replicas in (5, 2):
        _run_and_print(cluster, "scale", "vmirs", SET_NAME, "--replicas", str(replicas))
        _wait_for_set(cluster, replicas)
    _run_and_print(cluster, "get", "vmirs,vmi")


def show_pool(cluster: DemoCluster) -> None:
    """Apply a pool, update the pool, let the pool heal one VM, and print the results. Raises DemoFailed."""
    print()
    print(run_kubectl(cluster.kubeconfig, "apply", "-f", str(POOL_EXAMPLE)), end="", flush=True)
    took_s = until(lambda: _pool_is_complete(cluster.view()), f"all VMs of {POOL_NAME} ready")
    print(f"all VMs ready after {took_s:.1f}s")
    _run_and_print(cluster, "get", "vmpool,vm")
    _update(cluster)
    _heal(cluster)
    _run_and_print(cluster, "get", "vmpool,vm")
    _run_and_print(cluster, "describe", "vmpool", POOL_NAME)


def _run_and_print(cluster: DemoCluster, *arguments: str) -> None:
    print(f"\n$ {shlex.join(('kubectl', *arguments))}")
    print(run_kubectl(cluster.kubeconfig, *arguments), end="", flush=True)


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
    _run_and_print(cluster, *UPDATE)
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
    observed, outdated, total = ObservedVMIs.listed(vmis), revision_of(vmis[0]), len(vmis)
    progress, changes, peak = observed.progress(outdated), 0, 0
    started = time.monotonic()
    while progress != Progress(updated=total, ready=total):
        if time.monotonic() - started > within_s:
            raise DemoFailed(f"not finished within {within_s:g}s: the update of {POOL_NAME}")
        for event in changes_since(version):
            observed, changes = observed.after(event), changes + 1
            version = event["object"]["metadata"]["resourceVersion"]
            if progress == (progress := observed.progress(outdated)):
                continue
            print(f"updated {progress.updated} of {total}, ready {progress.ready} of {total}", flush=True)
            peak = max(peak, total - progress.ready)
            if peak > EXAMPLE_MAX_UNAVAILABLE:
                raise DemoFailed(
                    f"{peak} VMs were unavailable at once, but maxUnavailable allows {EXAMPLE_MAX_UNAVAILABLE}"
                )
    return changes, peak


def _heal(cluster: DemoCluster) -> None:
    """Make one VM fail, and wait until the VM is replaced and the pool is complete again. Raises DemoFailed."""
    before = uid_of(_find(cluster.view().vms, BROKEN))
    for arguments in BREAK:
        _run_and_print(cluster, *arguments)
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


def _is_healing(event: dict[str, Any]) -> bool:
    message = event.get("message", "")
    return event["involvedObject"].get("kind") == POOLS.kind and BROKEN in message and "healing" in message


def _find(objects: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    """Return the object with this name, or {} if there is no such object."""
    return next((each for each in objects if name_of(each) == name), {})
