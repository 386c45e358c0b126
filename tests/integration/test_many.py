"""R4, R12, P18: hundreds of VMs. Each is created and deleted once, and their Events cost few requests."""

from typing import Any

import pytest

from tests.controlplane.documents import vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

HALTED: dict[str, Any] = {"template": vm_template(runStrategy="Halted")}
COMBINED = "(combined from similar events)"


def assert_created_with_few_events(owner: Namespace, number: int) -> None:
    """Check that each member was created once, and that the controller combined the Events about it."""
    owner.settle(events=True)
    assert owner.answers("create") == {(name, 201): 1 for name in owner.all_of(owner.members)()}
    assert owner.answers("create").total() == number
    assert 10 <= len(owner.requests(resource="events")) <= 36
    described = owner.kubectl("describe", owner.resource, owner.name).stdout
    assert COMBINED in described[described.index("Events:") :]


def test_r4_r12_each_of_three_hundred_vmis_is_created_once_with_at_most_a_few_dozen_event_requests(
    sets: Namespace,
) -> None:
    sets.make(300)
    eventually(lambda: sets.status().get("replicas") == 300, within_s=60, what="all VMIs exist")
    assert_created_with_few_events(sets, 300)


def wait_until_stopped(pools: PoolNamespace) -> None:
    """Wait until KubeVirt has written the status of all stopped VMs. It writes no more to them."""

    def are_stopped() -> bool:
        return {(vm.get("status") or {}).get("printableStatus") for vm in pools.vms().values()} == {"Stopped"}

    eventually(are_stopped, within_s=20, what="KubeVirt writes no more to the VMs")


def test_p18_a_large_pool_creates_and_deletes_each_vm_once_with_at_most_a_few_dozen_event_requests(
    pools: PoolNamespace,
) -> None:
    pools.make(200, **HALTED)
    eventually(lambda: pools.status().get("replicas") == 200, within_s=60, what="all VMs exist")
    assert_created_with_few_events(pools, 200)
    # A VM that changes after the controller has seen it needs a second delete.
    wait_until_stopped(pools)
    pools.settle()
    pools.scale(20)
    eventually(lambda: pools.status().get("replicas") == 20, within_s=60, what="twenty VMs are left")
    assert pools.answers("delete").total() == len(pools.deleted()) == 180
