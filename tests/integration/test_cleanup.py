"""`vmherd cleanup` after the controller: nothing of ours keeps anybody from deleting pools and VMs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster import Kubectl
from tests.integration.beside import vmherd
from tests.integration.herd import Place, eventually, herd
from tests.integration.ranch import FINALIZER, HOLD, Ranch, finalizers_of
from tests.integration.vacant import SHORT_LEASE

pytestmark = pytest.mark.cluster

VANISHED = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "name": "vanished",
    "uid": "00000000-0000-0000-0000-000000000000",
    "controller": True,
}


def make_vm(ranch: Ranch, name: str, **metadata: object) -> None:
    spec = {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}}
    ranch.kubectl.apply(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": ranch.namespace, "finalizers": [HOLD, FINALIZER], **metadata},
            "spec": spec,
        }
    )


def held(ranch: Ranch) -> dict[str, list[str]]:
    return {name: finalizers_of(vm) for name, vm in ranch.vms().items()}


def test_all_that_our_finalizer_holds_is_let_go_and_nothing_else_happens(vacant: Place) -> None:
    ranch, kubeconfig = Ranch(vacant.plane, vacant.namespace), vacant.plane.kubeconfig
    ranch.make_pool(0, finalizers=(HOLD, FINALIZER))
    make_vm(ranch, "stray")
    make_vm(ranch, "left-behind", ownerReferences=[VANISHED])
    make_vm(ranch, "other", ownerReferences=[{**VANISHED, "apiVersion": "pool.other.dev/v1"}])
    flags = ("--watch-namespaces", vacant.namespace)
    dry = vmherd(kubeconfig, "cleanup", "--dry-run", *flags)
    assert (dry.returncode, dry.stderr, dry.stdout.count("would: ")) == (0, "", 3)
    assert all(finalizers == [HOLD, FINALIZER] for finalizers in held(ranch).values())
    done = vmherd(kubeconfig, "cleanup", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("3 objects cleaned up")
    assert finalizers_of(ranch.pool()) == [HOLD]
    assert {name: fs for name, fs in held(ranch).items() if name != "left-behind"} == {
        "stray": [HOLD],
        "other": [HOLD, FINALIZER],
    }
    again = vmherd(kubeconfig, "cleanup", *flags)
    assert again.stdout.startswith("0 objects cleaned up")


def test_a_pool_that_the_controller_made_can_be_deleted_after_it(vacant: Place, tmp_path: Path) -> None:
    ranch, kubeconfig = Ranch(vacant.plane, vacant.namespace), vacant.plane.kubeconfig
    with herd(vacant.plane, tmp_path, *SHORT_LEASE) as program:
        ranch.make_pool(2)
        eventually(lambda: len(ranch.vms()) == 2, what="the pool has its VMs")
        refused = vmherd(kubeconfig, "cleanup")
        assert refused.returncode == 1
        assert "holds the lease vmherd-system/vmherd: uninstall it first" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert "would: " in vmherd(kubeconfig, "cleanup", "--dry-run").stdout
        program.kill()
    vacant.kubectl("delete", "vmpool", "pool", "--wait=false")
    assert ranch.pool_exists()
    done = vmherd(kubeconfig, "cleanup")
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: not ranch.pool_exists() and not ranch.vms(), what="the pool and its VMs go")


def test_a_pool_that_is_to_keep_its_disks_is_left_to_the_controller_unless_forced(vacant: Place) -> None:
    ranch, kubeconfig = Ranch(vacant.plane, vacant.namespace), vacant.plane.kubeconfig
    offline = {"proactive": {"statePreservation": "Offline"}}
    pool = ranch.make_pool(0, finalizers=(HOLD, FINALIZER), scaleInStrategy=offline)
    make_vm(ranch, "pool-0", ownerReferences=[{**VANISHED, "name": "pool", "uid": pool["metadata"]["uid"]}])
    vacant.kubectl("delete", "vmpool", "pool", "--wait=false")
    flags = ("--watch-namespaces", vacant.namespace)
    refused = vmherd(kubeconfig, "cleanup", *flags)
    assert (refused.returncode, finalizers_of(ranch.pool())) == (1, [HOLD, FINALIZER])
    assert f"not cleaned up: {vacant.namespace}/pool" in refused.stderr
    assert vmherd(kubeconfig, "cleanup", "--force", *flags).returncode == 0
    assert (finalizers_of(ranch.pool()), held(ranch)) == ([HOLD], {"pool-0": [HOLD]})


def test_who_may_not_clean_up_gets_one_line(vacant: Place, tmp_path: Path) -> None:
    nobody = vacant.plane.write_kubeconfig(tmp_path / "kubeconfig", "nobody")
    for flags in ((), ("--force",)):
        done = vmherd(nobody, "cleanup", *flags)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "forbidden" in done.stderr


def test_a_lease_that_nobody_renews_is_waited_out(vacant: Place) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "vmherd", "namespace": vacant.namespace},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 2, "renewTime": "2036-01-01T00:00:00.000000Z"},
    }
    Kubectl(vacant.plane.kubeconfig)("create", "-f", "-", stdin=json.dumps(lease))
    done = vmherd(vacant.plane.kubeconfig, "cleanup", "--watch-namespaces", vacant.namespace)
    assert (done.returncode, done.stderr) == (0, "")
