"""`vmherd demo --once`: the first steps of a new user, each run and checked within a time limit.

Every command is printed exactly as it is run, so that it can be pasted into a terminal.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

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
from sandbox.demo_view import POOL, View
from sandbox.kubectl import run_kubectl

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
SET_EXAMPLE, SET_NAME = EXAMPLES / "replicaset-v1alpha3.yaml", "testreplicaset"
POOL_EXAMPLE, POOL_NAME = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml", "vm-pool-web"
POOL_LABEL = f"kubevirt.io/vmpool%3D{POOL_NAME}"
EXAMPLE_MAX_UNAVAILABLE = 1
"""The example's maxUnavailable is 25%. With its 4 VMs, that is one VM."""

BROKEN = f"{POOL_NAME}-1"

READY_AFTER = {"metadata": {"annotations": {"sim.vmherd.dev/ready-after": "2s"}}}
FAIL = {"metadata": {"annotations": {"sim.vmherd.dev/behavior": "fail"}}}


def merge_patch(resource: str, name: str, change: Any) -> tuple[str, ...]:
    """kubectl's arguments for a merge patch."""
    return "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


UPDATE = merge_patch("vmpool", POOL_NAME, {"spec": {"virtualMachineTemplate": {"spec": {"template": READY_AFTER}}}})
"""Changes the pool's template: VMs now take two seconds to boot. That creates a new revision, so all VMs are restarted.
"""

BREAK = (merge_patch("vm", BROKEN, {"spec": {"template": FAIL}}), ("delete", "vmi", BROKEN))
"""Makes one VM fail at every start, and deletes its VMI so that it is started."""


def show_set(cluster: DemoCluster) -> None:
    """Show a replica set: apply it, scale it out, scale it in."""
    print(run_kubectl(cluster.kubeconfig, "apply", "-f", str(SET_EXAMPLE)), end="", flush=True)
    _wait_for_set(cluster, 3)
    _run_and_print(cluster, "get", "vmirs,vmi")
    _run_and_print(cluster, "describe", "vmirs", SET_NAME)
    for replicas in (5, 2):
        _run_and_print(cluster, "scale", "vmirs", SET_NAME, "--replicas", str(replicas))
        _wait_for_set(cluster, replicas)
    _run_and_print(cluster, "get", "vmirs,vmi")


def show_pool(cluster: DemoCluster) -> None:
    """Show a pool: apply it, update it step by step, have one VM healed."""
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
    """Wait until the set has this number of replicas, all ready. Raises DemoFailed after the time limit."""
    took_s = until(lambda: _set_shows(cluster.view(), replicas), f"{replicas} of {replicas} ready")
    print(f"{replicas} of {replicas} ready after {took_s:.1f}s", flush=True)


def _set_shows(view: View, replicas: int) -> bool:
    if len(view.sets) != 1 or not is_complete(view.sets[0]):
        return False
    return bool(view.sets[0]["spec"]["replicas"] == replicas == len(owned_by(view.sets[0], view.vmis)))


def _pool_is_complete(view: View) -> bool:
    return len(view.pools) == 1 and is_complete(view.pools[0])


def _update(cluster: DemoCluster) -> None:
    """Change the template and wait until the pool's status shows a complete update. Raises DemoFailed."""
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
    """Print every step of an update until all VMIs are ready and from a newer revision.

    `vmis` are the VMIs before the update, all from one revision, as of resource version `version`. The watch continues
    from there, so no state is missed. Returns the number of changes and the highest number of unavailable VMs. Raises
    DemoFailed if too many VMs are unavailable at once, or after `within_s` seconds.
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
    """Make one VM fail, and wait until it is replaced and the pool is complete again. Raises DemoFailed."""
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
    return event["involvedObject"].get("kind") == POOL and BROKEN in message and "healing" in message


def _find(objects: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    """The object with this name, or {}."""
    return next((each for each in objects if name_of(each) == name), {})
