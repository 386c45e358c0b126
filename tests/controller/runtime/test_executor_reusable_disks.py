"""A name is used again only after the disks of the earlier VM are gone or have no owner (P3, P10)."""

from __future__ import annotations

import msgspec
import pytest

from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.runtime.plan import Create, Done, Plan, Postponed
from controller.runtime.result import POSTPONED_S, After, result_of
from tests.controller.runtime.executor_changes import put_disk
from tests.controller.runtime.executor_setup import OWNER_UID, ExecutorSetup, document, key

pytestmark = pytest.mark.looptime

OLD_VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-0", "uid": "old", "controller": True}


def create(name: str = "vm-0", *disks: str) -> Create:
    reusable_disks = tuple((resource, key(disk)) for disk in disks for resource in (DATA_VOLUMES, PVCS))
    body = msgspec.json.encode(document(name))
    return Create(
        resource=VMS, key=key(name), body=body, owner_uid=OWNER_UID, why="missing", reusable_disks=reusable_disks
    )


async def test_p3_a_create_waits_while_an_earlier_vm_of_the_same_name_owns_a_disk():
    setup = ExecutorSetup()
    put_disk(setup, OLD_VM)
    action = create("vm-0", "gone", "disk")
    assert await setup.outcome_of(action) == Postponed(action)
    assert setup.server.find(VMS, key("vm-0")) is None
    setup.server.remove(DATA_VOLUMES, key("disk"))
    assert isinstance(await setup.outcome_of(action), Done)


async def test_p3_a_create_waits_for_a_claim_that_an_earlier_vm_owns_without_a_data_volume():
    setup = ExecutorSetup()
    owner = {**OLD_VM, "controller": False}
    claim = {"metadata": {"name": "disk", "namespace": "default", "ownerReferences": [owner]}}
    setup.server.put(PVCS, claim)
    action = create("vm-0", "disk")
    assert await setup.outcome_of(action) == Postponed(action)
    setup.server.remove(PVCS, key("disk"))
    assert isinstance(await setup.outcome_of(action), Done)


async def test_p10_a_preserved_disk_is_reused():
    setup = ExecutorSetup()
    put_disk(setup)
    assert isinstance(await setup.outcome_of(create("vm-0", "disk")), Done)


@pytest.mark.parametrize(
    "owner",
    [{**OLD_VM, "name": "vm-1"}, {**OLD_VM, "kind": "Other"}],
    ids=["another VM", "another kind"],
)
async def test_p3_a_create_does_not_wait_for_a_disk_of_another_owner(owner: dict[str, object]):
    setup = ExecutorSetup()
    put_disk(setup, owner)
    assert isinstance(await setup.outcome_of(create("vm-0", "disk")), Done)


async def test_p3_a_create_waits_for_a_disk_that_is_being_deleted():
    setup = ExecutorSetup()
    setup.server.put(DATA_VOLUMES, {"metadata": {"name": "disk", "namespace": "default", "finalizers": ["cdi"]}})
    await setup.server.delete(DATA_VOLUMES, key("disk"))
    assert isinstance(await setup.outcome_of(create("vm-0", "disk")), Postponed)


async def test_p3_a_postponed_create_does_not_delay_other_creates():
    setup = ExecutorSetup()
    put_disk(setup, OLD_VM)
    actions = (create("vm-0", "disk"), *(create(f"vm-{number}") for number in range(1, 5)))
    outcomes = await setup.carry_out(actions, [create("vm-9")])
    assert [type(outcome) for outcome in outcomes] == [Postponed, *[Done] * 5]


async def test_p4_a_create_without_disks_needs_no_extra_request():
    setup = ExecutorSetup()
    await setup.outcome_of(create())
    assert [request.verb for request in setup.server.requests] == ["create"]


def test_a_postponed_create_is_retried_soon():
    outcomes = (Postponed(create()), Done(create("vm-1")))
    assert result_of(Plan(), outcomes, settled=True) == After(POSTPONED_S)
    assert result_of(Plan(requeue_after_s=0.1), outcomes, settled=True) == After(0.1)
    assert result_of(Plan(requeue_after_s=60), outcomes, settled=True) == After(POSTPONED_S)
