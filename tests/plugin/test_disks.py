"""What `rollout undo`, `plan` and `why` say before the disks of a pool are deleted or expanded."""

import os
import pty
import sys

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import DATA_VOLUMES, VMIS, VMS
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Shell
from tests.plugin.scenes import pool_with_other_disks_before

WEB = "virtualmachinepool.pool.kubevirt.io/web"
DISKS = "data-0, data-1, data-2"
LOST = f'the rollback of vmpool "web" deletes 3 VMs with the disks {DISKS}; the VMs are created again with new disks'


def storage(cluster: Cluster) -> dict[str, object]:
    spec = cluster.document(POOL, "web")["spec"]["virtualMachineTemplate"]["spec"]
    found: dict[str, object] = spec["dataVolumeTemplates"][0]["spec"]["storage"]
    return found


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_an_undo_that_deletes_disks_asks(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
):
    pool_with_other_disks_before(cluster, storage_class="slow")
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, answer.encode())
        found, out, err = shell("rollout undo vmpool/web")
    os.close(keyboard)
    assert found == code
    assert err.startswith(f"Warning: {LOST}\nContinue? [y/N] ")
    assert (storage(cluster)["storageClassName"] == "slow") is (code == 0)
    assert out == (f"{WEB} rolled back\n" if code == 0 else "")


def pool_that_waits_for_a_disk(cluster: Cluster, status: object) -> None:
    """CDI has not filled the disk of web-1. A DataVolume without a status is one that the user may not read."""
    spec = pool_builders.vm_spec(disks=["data"])
    pool = pool_builders.pool(replicas=2, spec=spec)
    waits = pool_builders.vm("web-1", owner=pool, ready=False, ready_for_s=120, printable="Provisioning")
    vms = [*pool_builders.vms(pool, 0), replace(waits, spec=pool_builders.vms(pool, 1)[0].spec)]
    cluster.put_pool(pool, vms, [pool_builders.vmi(vms[0])])
    if status:
        cluster.server.put(DATA_VOLUMES, {"metadata": {"name": "data-1", "namespace": "default"}, "status": status})
    else:
        cluster.forbidden = {"datavolumes"}


NO_CLONE = "The clone doesn't meet the validation requirements: target resources requests storage size is smaller"
PENDING = {"type": "Bound", "status": "False", "reason": "Pending", "message": "PVC data-1 Pending"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (
            {"conditions": [{**PENDING, "reason": "CloneValidationFailed", "message": NO_CLONE}]},
            f"disk data-1: {NO_CLONE}",
        ),
        ({"phase": "PendingPopulation", "progress": "N/A"}, "disk data-1: PendingPopulation"),
        (
            {"phase": "ImportInProgress", "progress": "34.10%", "conditions": [PENDING]},
            "disk data-1: ImportInProgress, 34.10%, PVC data-1 Pending",
        ),
        ({"phase": "Succeeded", "progress": "100.0%"}, "not ready"),
        ({"phase": ""}, "disk data-1: no phase yet"),
        ({}, "not ready"),
    ],
)
def test_why_tells_what_cdi_says_of_the_disk_that_a_vm_waits_for(
    cluster: Cluster, shell: Shell, status: dict[str, object], told: str
):
    pool_that_waits_for_a_disk(cluster, status)
    assert f"  cause    web-1: Provisioning since 2m ({told})\n" in shell.output("why vmpool/web")


@pytest.mark.parametrize(("updated", "advice"), [((), True), (("web-1",), True), (("web-0", "web-1"), False)])
def test_an_undo_is_advised_only_while_most_vms_have_the_template_before(
    cluster: Cluster, shell: Shell, updated: tuple[str, ...], advice: bool
):
    """After an undo, one VM is held on its way back. Another undo would hold the others."""
    states.POOLS["keeps-disks"](cluster)
    for name in updated:
        label = {"metadata": {"labels": {"kubevirt.io/vm-pool-revision-name": "web-2"}}}
        for resource in (VMS, VMIS):
            cluster.server.change(resource, ObjectKey("default", name), label)
    told = shell.output("why vmpool/web -n default")
    assert "  try      kubectl annotate --overwrite vmpool/web " in told
    assert "most-disruptive-action=recreate -n default  # deletes the disks\n" in told
    assert ("kubectl vmherd rollout undo vmpool/web -n default\n" in told) is advice
