"""A takeover changes nothing: pools at rest stay at rest. After `vmherd cleanup`, users can delete pools and VMs.

If no user started an update, the update waits until a user agrees.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import FINALIZER, POOL_LABELS, REVISION, reference_to, uids, vm_template
from tests.controlplane.namespace import PoolNamespace, SetNamespace, new_pool_namespace
from tests.controlplane.programs import SHORT_LEASE, ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import RESTING, KubeVirtInstallation, vmherd
from tests.release import LEASE

pytestmark = pytest.mark.cluster

MARK = "vmherd.dev/takeover"
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}


@pytest.fixture(scope="module")
def taken_plane(kubevirt_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster whose KubeVirt has stopped its controllers for sets and pools. A simulator runs the VMs."""
    installation = KubeVirtInstallation(kubevirt_plane)
    installation.install(*RESTING)
    with simulator(kubevirt_plane):
        yield kubevirt_plane
    installation.uninstall()


@pytest.fixture
def pools(taken_plane: ControlPlane) -> Iterator[PoolNamespace]:
    with new_pool_namespace(taken_plane) as pools:
        yield pools
        pools.release()
        with contextlib.suppress(Rejected):  # a controller that stopped in order has released the lease
            Admin(taken_plane.kubeconfig).send("DELETE", LEASE)


def as_kubevirt_left_it(pools: PoolNamespace, written: dict[str, Any], **spec: Any) -> None:
    """Create a pool with two VMs as KubeVirt's controller does, and a revision with the spec `written`.

    The revision has the number 1, and the pool has generation 2. `spec` are further fields of the pool's spec.
    """
    pools.make(1, template=vm_template(disks=("root",)), finalizers=(FINALIZER,), **spec)
    pool = pools.scale(2)
    owner = reference_to(pool, block=True)
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "pool-1", "ownerReferences": [owner]},
        "revision": 1,
        "data": {**pool["spec"], "virtualMachineTemplate": written},
    }
    pools.revisions.make(revision)
    marks = {"labels": {**POOL_LABELS, REVISION: "pool-1"}, "ownerReferences": [owner], "finalizers": [FINALIZER]}
    for ordinal in (0, 1):
        machine = vm_template(disks=(f"root-{ordinal}",), vmi_labels={REVISION: "pool-1"})
        pools.make_vm(f"pool-{ordinal}", template=machine, **marks)
    pools.wait_for_ordinals(0, 1)


def spelled_by_go() -> dict[str, Any]:
    written = vm_template(disks=("root",))
    written["metadata"]["creationTimestamp"] = None
    written["spec"]["template"]["metadata"]["creationTimestamp"] = None
    written["spec"]["template"]["spec"]["architecture"] = ""
    written["spec"]["dataVolumeTemplates"][0]["spec"]["pvc"]["resources"]["requests"]["storage"] = "1024Mi"
    return written


def mark_of(pools: PoolNamespace) -> str:
    return str((pools.read()["metadata"].get("annotations") or {}).get(MARK, ""))


def test_a_takeover_of_a_pool_at_rest_changes_nothing(pools: PoolNamespace, tmp_path: Path) -> None:
    """The pool keeps disks, so its VMs need the finalizer that KubeVirt has added."""
    as_kubevirt_left_it(pools, spelled_by_go(), scaleInStrategy=KEEPS_DISKS)
    dry = vmherd(pools.plane.kubeconfig, "takeover", "--dry-run")
    assert f"virtualmachinepools {pools.namespace}/pool: nothing\n" in dry.stdout
    before = [uids(found) for found in (pools.vms(), pools.vmis(), pools.claims(), pools.revisions())]
    position = pools.plane.audit_position()
    with controller_process(pools.plane, tmp_path, "--mode", "takeover") as program:
        eventually(lambda: mark_of(pools) == "done", what="the pool is ours")
        assert program.stop() == 0
    written = pools.requests("create", "update", "patch", "delete", since=position)
    assert {each.resource for each in written} <= {"virtualmachinepools"}
    assert [uids(found) for found in (pools.vms(), pools.vmis(), pools.claims(), pools.revisions())] == before


def test_an_update_that_no_user_requested_is_held_until_it_is_allowed(pools: PoolNamespace, tmp_path: Path) -> None:
    other = vm_template(disks=("root",), memory="128M")
    as_kubevirt_left_it(pools, other)
    dry = vmherd(pools.plane.kubeconfig, "takeover", "--dry-run").stdout
    assert f"{pools.namespace}/pool: held: takeover: 2 virtual machines would be restarted" in dry
    assert "pool-1 differs in spec.template.spec.domain.resources.requests.memory" in dry
    before = uids(pools.vmis())
    with controller_process(pools.plane, tmp_path, "--mode", "takeover"):
        eventually(lambda: mark_of(pools).startswith("held "), what="the update is held")
        eventually(lambda: pools.told("TakeoverHeld")["pool"] == 1, what="an Event for the user")
        pools.scale(3)
        pools.wait_for_ordinals(0, 1, 2)
        assert {name: uid for name, uid in uids(pools.vmis()).items() if name in before} == before
        pools.change({"metadata": {"annotations": {MARK: "proceed"}}})
        eventually(lambda: not before.items() & uids(pools.vmis()).items(), what="both VMIs are started again")
        pools.wait_for_ordinals(0, 1, 2)
        assert pools.told("TakeoverHeld")["pool"] == 1


def test_in_a_takeover_no_status_is_written_twice(pools: PoolNamespace, tmp_path: Path) -> None:
    """The API server prunes the status fields that KubeVirt's definitions lack. So the controller must not write these
    fields.
    """
    with controller_process(pools.plane, tmp_path, "--mode", "takeover") as program:
        pools.sets.make(2)
        pools.make(1)
        eventually(lambda: pools.sets.status().get("readyReplicas") == 2, what="the set reports")
        eventually(lambda: pools.status().get("replicas") == 1, what="the pool reports")
        assert set(pools.sets.status()) <= {"replicas", "readyReplicas", "labelSelector", "conditions"}
        eventually(lambda: quiet(pools, program), what="passes without writes")


def quiet(pools: PoolNamespace, program: ControllerProcess) -> bool:
    """Change the set and the pool, and wait until both were reconciled. True if the reconciliations wrote nothing."""

    def passes(name: str) -> int:
        return len(program.lines(msg="reconciled", namespace=pools.namespace, name=name))

    before = {name: passes(name) for name in ("herd", "pool")}
    position = pools.plane.audit_position()
    # A new template would be stored in a revision.
    deadline = {"vmherd.dev/progress-deadline-seconds": str(600 + before["herd"])}
    pools.sets.change({"metadata": {"annotations": deadline}})
    pools.change({"spec": {"maxUnavailable": before["pool"] + 1}})
    eventually(lambda: all(passes(name) > count for name, count in before.items()), what="a pass for both owners")
    return not pools.requests("patch", "create", "update", "delete", since=position)


def test_a_pool_of_a_removed_controller_can_be_deleted_after_a_cleanup(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    pools, kubeconfig = idle_namespace.pools, idle_namespace.plane.kubeconfig
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE) as program:
        pools.make(2)
        eventually(lambda: len(pools.vms()) == 2, what="the pool has its VMs")
        refused = vmherd(kubeconfig, "cleanup")
        assert refused.returncode == 1
        assert "holds the lease vmherd-system/vmherd: uninstall it first" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert "would: " in vmherd(kubeconfig, "cleanup", "--dry-run").stdout
        program.kill()
    idle_namespace.kubectl("delete", "vmpool", "pool", "--wait=false")
    assert pools.exists()
    done = vmherd(kubeconfig, "cleanup")
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: not pools.exists() and not pools.vms(), what="the pool and its VMs go")
