"""`vmherd cleanup` after the controller has stopped. Users can then delete pools and VMs."""

from pathlib import Path

import pytest

from tests.controlplane.documents import FINALIZER, HOLD, finalizers_of
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.integration.idle_plane import SHORT_LEASE
from tests.integration.kubevirt_installation import vmherd

pytestmark = pytest.mark.cluster

VANISHED = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "name": "vanished",
    "uid": "00000000-0000-0000-0000-000000000000",
    "controller": True,
}


def make_vm(pools: PoolNamespace, name: str, **metadata: object) -> None:
    spec = {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}}
    pools.kubectl.apply(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": pools.namespace, "finalizers": [HOLD, FINALIZER], **metadata},
            "spec": spec,
        }
    )


def held(pools: PoolNamespace) -> dict[str, list[str]]:
    return {name: finalizers_of(vm) for name, vm in pools.vms().items()}


def test_cleanup_removes_our_finalizers_and_changes_nothing_else(idle_namespace: SetNamespace) -> None:
    pools, kubeconfig = idle_namespace.pools, idle_namespace.plane.kubeconfig
    pools.make(0, finalizers=(HOLD, FINALIZER))
    make_vm(pools, "stray")
    make_vm(pools, "left-behind", ownerReferences=[VANISHED])
    make_vm(pools, "other", ownerReferences=[{**VANISHED, "apiVersion": "pool.other.dev/v1"}])
    flags = ("--watch-namespaces", idle_namespace.namespace)
    dry = vmherd(kubeconfig, "cleanup", "--dry-run", *flags)
    assert (dry.returncode, dry.stderr, dry.stdout.count("would: ")) == (0, "", 3)
    assert all(finalizers == [HOLD, FINALIZER] for finalizers in held(pools).values())
    done = vmherd(kubeconfig, "cleanup", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("3 objects cleaned up")
    assert finalizers_of(pools.read()) == [HOLD]
    assert {name: fs for name, fs in held(pools).items() if name != "left-behind"} == {
        "stray": [HOLD],
        "other": [HOLD, FINALIZER],
    }
    again = vmherd(kubeconfig, "cleanup", *flags)
    assert again.stdout.startswith("0 objects cleaned up")


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
