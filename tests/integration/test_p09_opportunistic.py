"""P9: pools that never delete, and VMs that their users delete, under every strategy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.herd import eventually, stays
from tests.integration.ranch import Ranch, uids, vm_template

pytestmark = pytest.mark.cluster

STRATEGIES: dict[str, dict[str, Any]] = {
    "opportunistic": {"opportunistic": {}},
    "unmanaged": {"unmanaged": {}},
    "proactive": {"proactive": {}},
}
NEVER_DELETES = ("opportunistic", "unmanaged")


def make_pools(ranch: Ranch, *names: str, replicas: int) -> dict[str, str]:
    """A pool of each strategy, named by it. The UIDs of their VMs, when all are there."""
    for name in names:
        ranch.make_pool(replicas, name=name, template=vm_template(), scaleInStrategy=STRATEGIES[name])
    return uids(ranch.wait_for_vms(*(f"{name}-{ordinal}" for name in names for ordinal in range(replicas))))


def test_p9_the_pool_never_deletes_by_itself_and_a_vm_that_its_user_deletes_is_let_go_for_good(ranch: Ranch) -> None:
    before = make_pools(ranch, *NEVER_DELETES, replicas=3)
    for name in NEVER_DELETES:
        ranch.scale(1, name=name)
    eventually(lambda: {status.get("observedGeneration") for status in ranch.pool_statuses().values()} == {2})
    stays(lambda: uids(ranch.vms()) == before, what="all stay")
    assert [ranch.pool_status(name)["replicas"] for name in NEVER_DELETES] == [3, 3]
    ranch.kubectl("delete", "vm", "opportunistic-1", "unmanaged-1", "--timeout=10s")
    left = {name: uid for name, uid in before.items() if not name.endswith("-1")}
    stays(lambda: uids(ranch.vms()) == left, for_s=0.7, what="too many are left, so nobody comes")
    ranch.kubectl("delete", "vm", "opportunistic-0", "unmanaged-0", "--timeout=10s")
    left = {name: uid for name, uid in before.items() if name.endswith("-2")}
    stays(lambda: uids(ranch.vms()) == left, for_s=0.7, what="now the count fits")
    ranch.kubectl("delete", "vm", "opportunistic-2", "unmanaged-2", "--timeout=10s")
    eventually(lambda: ranch.vms().keys() == {"opportunistic-0", "unmanaged-0"}, what="the pools were short")
    assert ranch.vms_deleted() == {}


def test_p9_a_vm_that_its_user_deletes_comes_back_under_its_name_under_every_strategy(ranch: Ranch) -> None:
    before = make_pools(ranch, *STRATEGIES, replicas=3)
    deleted = [f"{name}-1" for name in STRATEGIES]
    ranch.kubectl("delete", "vm", *deleted, "--wait=false")
    eventually(lambda: not set(uids(ranch.vms()).values()) & {before[name] for name in deleted}, what="all are let go")
    after = uids(ranch.wait_for_vms(*before))
    assert {name for name in before if after[name] != before[name]} == set(deleted)
    assert ranch.vms_created() == {name: 2 if name in deleted else 1 for name in before}
    assert ranch.vms_deleted() == {}


def test_p9_a_vm_that_its_user_deletes_in_the_foreground_comes_back_as_well(ranch: Ranch) -> None:
    ranch.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=STRATEGIES["opportunistic"])
    before = uids(ranch.wait_for_ordinals(0, 1))
    disks = uids(ranch.data_volumes())
    ranch.delete_vm("pool-0", foreground=True)
    eventually(lambda: uids(ranch.vms()).get("pool-0", before["pool-0"]) != before["pool-0"])
    ranch.wait_for_ordinals(0, 1)
    after = uids(ranch.data_volumes())
    assert (after["root-0"] == disks["root-0"], after["root-1"] == disks["root-1"]) == (False, True)


def test_p9_vms_of_paused_pools_can_be_deleted_and_come_back_on_resume(ranch: Ranch) -> None:
    before = make_pools(ranch, *STRATEGIES, replicas=2)
    deleted = [f"{name}-0" for name in STRATEGIES]
    for name in STRATEGIES:
        ranch.change_pool({"spec": {"paused": True}}, name=name)
    eventually(lambda: all(ranch.pool_condition("ReplicaPaused", name=name) for name in STRATEGIES))
    ranch.kubectl("delete", "vm", *deleted, "--timeout=10s")
    stays(lambda: ranch.vms().keys() == before.keys() - set(deleted), for_s=0.7, what="they are missing")
    for name in STRATEGIES:
        ranch.change_pool({"spec": {"paused": False}}, name=name)
    after = uids(ranch.wait_for_vms(*before))
    assert {name for name in before if after[name] != before[name]} == set(deleted)
