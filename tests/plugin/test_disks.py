"""What `rollout undo`, `plan` and `why` say before the disks of a pool are deleted or expanded."""

from __future__ import annotations

import json
import os
import pty
import sys

import pytest

from controller.kubevirt.annotations import MOST_DISRUPTIVE
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Shell

WEB = "virtualmachinepool.pool.kubevirt.io/web"
KEY = ObjectKey("default", "web")
DISKS = "data-0, data-1, data-2"
LOST = f'the rollback of vmpool "web" deletes 3 VMs with the disks {DISKS}; the VMs are created again with new disks'
OFFLINE = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}


def put_pool(cluster: Cluster, *, size: str = "1Gi", storage_class: str = "fast", **fields: object) -> None:
    """A pool of three VMs with the newest of two templates. The older one has disks of this size and class."""
    old = pool_builders.vm_spec(disks=["data"], size=size, storage_class=storage_class, image="v0")
    new = pool_builders.vm_spec(disks=["data"])
    past = pool_builders.pool(generation=1, spec=old)
    owner = pool_builders.pool(generation=2, spec=new, **fields)
    vms = pool_builders.vms(owner, 0, 1, 2, revision="web-2")
    revisions = [pool_builders.revision(past, "web-1", number=1), pool_builders.revision(owner, "web-2", number=2)]
    cluster.put_pool(owner, vms, [pool_builders.vmi(vm) for vm in vms], revisions)


def storage(cluster: Cluster) -> dict[str, object]:
    spec = cluster.document(POOL, "web")["spec"]["virtualMachineTemplate"]["spec"]
    found: dict[str, object] = spec["dataVolumeTemplates"][0]["spec"]["storage"]
    return found


@pytest.mark.parametrize("past", [{"storage_class": "slow"}, {"size": "500Mi"}])
def test_without_a_terminal_an_undo_that_deletes_disks_needs_yes(cluster: Cluster, shell: Shell, past: dict[str, str]):
    put_pool(cluster, **past)
    before = storage(cluster)
    line = "rollout undo vmpool/web"
    if "size" in past:
        # A disk cannot become smaller. Without the annotation, the update waits, and nothing is deleted.
        cluster.server.change(POOL, KEY, {"metadata": {"annotations": {MOST_DISRUPTIVE: "recreate"}}})
    assert shell.error(line) == f"error: {LOST}; --yes allows this"
    assert storage(cluster) == before
    code, out, err = shell(f"{line} --yes")
    assert (code, out, err) == (0, f"{WEB} rolled back\n", f"Warning: {LOST}\n")
    assert storage(cluster) != before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_an_undo_that_deletes_disks_asks(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
):
    put_pool(cluster, storage_class="slow")
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


@pytest.mark.parametrize("fields", [{"storage_class": "slow", **OFFLINE}, {"size": "500Mi"}, {"size": "1024Mi"}])
def test_an_undo_that_deletes_no_disk_does_not_ask(cluster: Cluster, shell: Shell, fields: dict[str, object]):
    put_pool(cluster, **fields)
    assert shell.output("rollout undo vmpool/web") == f"{WEB} rolled back\n"


def test_an_undo_before_the_first_vm_has_new_disks_does_not_ask(cluster: Cluster, shell: Shell):
    states.pool_with_new_disks(cluster)
    assert shell.output("rollout undo vmpool/web") == f"{WEB} rolled back\n"


def test_a_dry_run_of_an_undo_warns_and_asks_nothing(cluster: Cluster, shell: Shell):
    put_pool(cluster, storage_class="slow")
    code, out, err = shell("rollout undo vmpool/web --dry-run=client")
    assert (code, out, err) == (0, f"{WEB} rolled back (dry run)\n", f"Warning: {LOST}\n")


def test_without_permission_to_read_vms_an_undo_with_other_disks_needs_yes(cluster: Cluster, shell: Shell):
    put_pool(cluster, storage_class="slow")
    cluster.forbidden = {"virtualmachines"}
    error = shell.error("rollout undo vmpool/web")
    assert error.startswith('error: the rollback of vmpool "web" deletes VMs of the pool with their disks;')
    assert shell("rollout undo vmpool/web -y")[0] == 0


@pytest.mark.parametrize(
    ("state", "fate"),
    [
        (states.pool_new_disks, "deleted with its disks data-{}"),
        (states.pool_growing_disks, "disk data-{} grows to 2Gi"),
        (states.pool_keeps_disks, "held: its disks would be deleted (data-{}), and statePreservation keeps the disks"),
        (states.pool_protected_from_new_disks, "held: it is protected by vmherd.dev/protect"),
    ],
)
def test_the_plan_has_the_fate_of_each_disk(cluster: Cluster, shell: Shell, state: states.State, fate: str):
    state(cluster)
    found = shell.output("plan vmpool/web").splitlines()[-3:]
    for number, line in enumerate(sorted(found)):
        assert line.startswith(f"{WEB}: vm/web-{number}: {fate.format(number)}")
    disks = json.loads(shell.output("plan vmpool/web -o json"))["disks"]
    assert [f"{WEB}: {each}" for each in disks] == found


def test_the_plan_of_a_large_pool_lists_ten_vms(cluster: Cluster, shell: Shell):
    states.pool_with_new_disks(cluster, replicas=12)
    assert shell.output("plan vmpool/web").splitlines()[-1] == f"{WEB}: and 2 more VMs"
