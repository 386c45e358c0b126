"""This module names the example objects of the demo, and the changes that the demo makes to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

Command: TypeAlias = tuple[str, ...]
"""A command as a user types it: the program and its arguments."""

EXAMPLES: Final = Path(__file__).parent.parent.parent / "manifests" / "examples"
SET_EXAMPLE: Final = EXAMPLES / "replicaset-v1alpha3.yaml"
POOL_EXAMPLE: Final = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml"
SET_NAME, SET_SIZE = "testreplicaset", 3
POOL_NAME, POOL_SIZE = "vm-pool-web", 4
SET, POOL = f"vmirs/{SET_NAME}", f"vmpool/{POOL_NAME}"

EXAMPLE_MAX_UNAVAILABLE: Final = 1
"""The maximum number of unavailable VMs of the example pool. This pool has 4 VMs, and its maxUnavailable is 25%."""

BROKEN: Final = f"{POOL_NAME}-1"
"""The VM that the demo breaks."""

READY_AFTER, BEHAVIOR = "sim.vmherd.dev/ready-after", "sim.vmherd.dev/behavior"


def merge_patch(resource: str, name: str, change: Any) -> Command:
    """Return the kubectl command that changes an object with a merge patch."""
    return "kubectl", "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


def pool_template(annotations: Any) -> dict[str, Any]:
    """Return the change that gives the template of a pool's VMIs these annotations."""
    return {"spec": {"virtualMachineTemplate": {"spec": {"template": {"metadata": {"annotations": annotations}}}}}}


def changed_vm(name: str, annotations: Any) -> tuple[Command, ...]:
    """Return the commands that give one VM these annotations, and start the VM again with them."""
    change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    return merge_patch("vm", name, change), ("kubectl", "delete", "vmi", name, "--ignore-not-found")


UPDATE: Final = merge_patch("vmpool", POOL_NAME, pool_template({READY_AFTER: "2s"}))
"""The command that changes the pool's template.

With the new template, each VM needs two seconds to boot. The pool restarts all VMs.
"""

BAD_IMAGE: Final = merge_patch("vmpool", POOL_NAME, pool_template({BEHAVIOR: "image-error"}))
"""The command that gives the pool's template an image that cannot be pulled."""

FAIL: Final = changed_vm(BROKEN, {BEHAVIOR: "fail"})
"""The two commands that make one VM fail at every start."""
