"""A name is used again only after the disks of the earlier VM are gone or have no owner (P3, P10)."""

from __future__ import annotations

import msgspec
import pytest

from controller.kubevirt.resources import DATA_VOLUMES, VMS
from controller.runtime.plan import Create, Done, Plan, Postponed
from controller.runtime.result import POSTPONED_S, After, result_of
from tests.controller.runtime.execution import OWNER_UID, World, document, key
from tests.controller.runtime.reworking import put_disk

pytestmark = pytest.mark.looptime

OLD_VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-0", "uid": "old", "controller": True}


def create(name: str = "vm-0", *disks: str) -> Create:
    reusable_disks = tuple((DATA_VOLUMES, key(disk)) for disk in disks)
    body = msgspec.json.encode(document(name))
    return Create(
        resource=VMS, key=key(name), body=body, owner_uid=OWNER_UID, why="missing", reusable_disks=reusable_disks
    )


async def test_p3_a_create_waits_while_an_earlier_vm_of_the_same_name_owns_a_disk():
    world = World()
    put_disk(world, OLD_VM)
    action = create("vm-0", "gone", "disk")
    assert await world.outcome_of(action) == Postponed(action)
    assert world.api.find(VMS, key("vm-0")) is None
    world.api.remove(DATA_VOLUMES, key("disk"))
    assert isinstance(await world.outcome_of(action), Done)


async def test_p10_a_preserved_disk_is_reused():
    world = World()
    put_disk(world)
    assert isinstance(await world.outcome_of(create("vm-0", "disk")), Done)


@pytest.mark.parametrize(
    "owner",
    [{**OLD_VM, "name": "vm-1"}, {**OLD_VM, "kind": "Other"}, {**OLD_VM, "controller": False}],
    ids=["another VM", "another kind", "no controller"],
)
async def test_p3_a_create_does_not_wait_for_a_disk_of_another_owner(owner: dict[str, object]):
    world = World()
    put_disk(world, owner)
    assert isinstance(await world.outcome_of(create("vm-0", "disk")), Done)


async def test_p3_a_create_waits_for_a_disk_that_is_being_deleted():
    world = World()
    world.api.put(DATA_VOLUMES, {"metadata": {"name": "disk", "namespace": "default", "finalizers": ["cdi"]}})
    await world.api.delete(DATA_VOLUMES, key("disk"))
    assert isinstance(await world.outcome_of(create("vm-0", "disk")), Postponed)


async def test_p3_a_postponed_create_does_not_delay_other_creates():
    world = World()
    put_disk(world, OLD_VM)
    actions = (create("vm-0", "disk"), *(create(f"vm-{number}") for number in range(1, 5)))
    outcomes = await world.carry_out(actions, [create("vm-9")])
    assert [type(outcome) for outcome in outcomes] == [Postponed, *[Done] * 5]


async def test_p4_a_create_without_disks_needs_no_extra_request():
    world = World()
    await world.outcome_of(create())
    assert [request.verb for request in world.api.requests] == ["create"]


def test_a_postponed_create_is_retried_soon():
    outcomes = (Postponed(create()), Done(create("vm-1")))
    assert result_of(Plan(), outcomes, settled=True) == After(POSTPONED_S)
    assert result_of(Plan(requeue_after_s=0.1), outcomes, settled=True) == After(0.1)
    assert result_of(Plan(requeue_after_s=60), outcomes, settled=True) == After(POSTPONED_S)
