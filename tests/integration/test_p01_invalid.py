"""P1: invalid pools, stored under a definition without validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace
from tests.integration.controller_process import ControllerProcess, eventually, owner_uid, quiet_down, stays
from tests.integration.pool_namespace import FINALIZER, POOL_LABELS, PoolNamespace, finalizers_of, uids, vm_template
from tests.integration.unchecked import GROUP, unchecked_controller
from tests.manifests.documents import POOLS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def unchecked(pool_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """A controller for pools of a test's API group. The CRD of this group has no validation."""
    directory = tmp_path_factory.mktemp("unchecked")
    with unchecked_controller(pool_plane, directory, POOLS, "--pool-group", has_finalizers=True) as program:
        yield program


@pytest.fixture
def pools(pool_plane: ControlPlane, unchecked: ControllerProcess) -> Iterator[PoolNamespace]:
    assert unchecked.working
    with new_namespace(pool_plane) as name:
        pools = PoolNamespace(pool_plane, name, pool_group=GROUP)
        yield pools
        pools.delete_pools()


def scale_in(**policy: Any) -> dict[str, Any]:
    return {"scaleInStrategy": {"proactive": {"selectionPolicy": policy}}}


FLAWS: dict[str, dict[str, Any]] = {
    "no-template": {"virtualMachineTemplate": None},
    "no-spec": {"virtualMachineTemplate": {"metadata": {"labels": POOL_LABELS}}},
    "no-vmi-template": {"virtualMachineTemplate": {"metadata": {"labels": POOL_LABELS}, "spec": {"running": True}}},
    "no-labels": {"virtualMachineTemplate": {"spec": vm_template()["spec"]}},
    "other-labels": {"selector": {"matchLabels": {"app": "other"}}},
    "no-selector": {"selector": None},
    "empty-selector": {"selector": {}},
    "unknown-operator": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
    "none-available": {"maxUnavailable": "0%"},
    "two-strategies": {"updateStrategy": {"unmanaged": {}, "opportunistic": {}}},
    "two-strategies-in": {"scaleInStrategy": {"unmanaged": {}, "proactive": {}}},
    "unknown-sort-policy": scale_in(sortPolicy="Prettiest"),
    "unknown-preservation": {"scaleInStrategy": {"opportunistic": {"statePreservation": "Maybe"}}},
    "bad-scale-in-selector": scale_in(selectors={"labelSelector": {"matchExpressions": [{"key": "a"}]}}),
    "bad-threshold": {"autohealing": {"startUpFailureThreshold": 0}},
    "bad-duration": {"autohealing": {"minFailingToStartDuration": "a while"}},
}


def test_p1_an_invalid_pool_changes_nothing_and_is_reported_once_for_each_generation(
    pools: PoolNamespace, unchecked: ControllerProcess
) -> None:
    orphan = pools.make_vm("orphan", labels={"app": "other"}, template=vm_template(running=False))
    for name, flaw in FLAWS.items():
        pools.make_pool(name=name, **flaw)

    def statuses(field: str) -> dict[str, Any]:
        return {name: status.get(field) for name, status in pools.pool_statuses().items()}

    once, twice = dict.fromkeys(FLAWS, 1), dict.fromkeys(FLAWS, 2)
    eventually(lambda: pools.told("InvalidSpec") == once, what="an Event for each pool")
    eventually(lambda: statuses("observedGeneration") == once)
    passes = quiet_down(pools, unchecked)
    stays(lambda: pools.told("InvalidSpec") == once, for_s=1.0)
    assert unchecked.passes(pools.namespace) <= passes + len(FLAWS), "at most one further pass for each pool"
    for name in FLAWS:
        pools.change_pool({"spec": {"paused": False}}, name=name)
    eventually(lambda: pools.told("InvalidSpec") == twice, what="an Event for the next generation")
    eventually(lambda: statuses("observedGeneration") == twice)
    assert statuses("printableStatus") == dict.fromkeys(FLAWS, "Degraded")
    assert not any(finalizers_of(pools.pool(name)) for name in FLAWS)
    assert list(pools.vms()) == ["orphan"]
    assert pools.vm("orphan")["metadata"]["uid"] == orphan["metadata"]["uid"]
    assert FINALIZER not in finalizers_of(pools.vm("orphan"))
    assert not pools.revisions()
    assert not pools.requests("create", "delete")


def test_p1_a_pool_that_becomes_invalid_keeps_its_vms_unchanged_but_releases_vms_that_users_delete(
    pools: PoolNamespace,
) -> None:
    pool = pools.make_pool(3)
    before = uids(pools.wait_for_ordinals(0, 1, 2))
    pools.change_pool({"spec": {"selector": {"matchLabels": {"app": "other"}}, "replicas": 1}})
    eventually(lambda: pools.told("InvalidSpec")["pool"] == 1)
    pools.kubectl("delete", "vm", "pool-1", "--timeout=60s")
    eventually(lambda: pools.pool_status()["replicas"] == 2, what="the status follows")
    pools.change_pool({"spec": {"replicas": 5}})
    eventually(lambda: pools.told("InvalidSpec")["pool"] == 2)
    stays(lambda: pools.vms().keys() == {"pool-0", "pool-2"}, for_s=0.7, what="the same VMs")
    assert {owner_uid(vm) for vm in pools.vms().values()} == {pool["metadata"]["uid"]}, "no VM is released"
    assert pools.vms_deleted() == {}
    pools.change_pool({"spec": {"selector": {"matchLabels": POOL_LABELS}, "replicas": 3}})
    after = uids(pools.wait_for_ordinals(0, 1, 2))
    assert after["pool-0"] == before["pool-0"], "a pool that is mended goes on with the VMs that it has"
    pools.wait_ready(3)


def test_p1_an_invalid_pool_can_be_deleted_and_releases_its_vms(pools: PoolNamespace) -> None:
    pools.make_pool(2, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    pools.wait_for_ordinals(0, 1)
    pools.change_pool({"spec": {"selector": None}})
    eventually(lambda: pools.told("InvalidSpec")["pool"] == 1)
    pools.kubectl("delete", f"virtualmachinepools.{GROUP}", "pool", "--timeout=60s")
    held = [name for name, vm in pools.vms().items() if FINALIZER in finalizers_of(vm)]
    assert held == [], "the garbage collector can have them, as soon as it knows the group"


def test_p1_a_vm_that_the_server_refuses_as_invalid_is_a_failure_and_no_hot_loop(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(labels={"bad key!": "x"}))
    condition = eventually(lambda: pools.pool_condition("ReplicaFailure"), what="the failure is in the status")
    assert condition["reason"] == "FailedScaleOut"
    assert "bad key!" in condition["message"]
    stays(lambda: len(pools.requests("create")) < 15, for_s=1.0, what="a few tries, with backoff")
    assert not pools.vms()
