"""A quota for VMIs, which the API server enforces by its status, without a quota controller to fill that in."""

from __future__ import annotations

import json

from tests.integration.herd import Place, eventually

QUOTA = "count/virtualmachineinstances.kubevirt.io"


def allow(place: Place, number: int) -> None:
    """Let the namespace have so many VMIs; return when that is in force."""
    hard = {QUOTA: str(number)}
    place.kubectl.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    )
    status = json.dumps({"status": {"hard": hard, "used": {QUOTA: str(len(place.vmis()))}}})
    place.kubectl("patch", "resourcequota", "few", "--subresource=status", "--type=merge", "-p", status)
    if len(place.vmis()) >= number:
        eventually(lambda: not has_room(place), what="the quota is in force")


def has_room(place: Place) -> bool:
    done = place.kubectl("create", "--dry-run=server", "-f", "-", stdin=PROBE, check=False)
    return done.returncode == 0


PROBE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "probe"},
    "spec": {"domain": {}},
}
