"""Changes that the executor computes from a fresh read and repeats after a conflict, mainly merges (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import DATA_VOLUMES, VMIS
from controller.runtime.executor import ATTEMPTS
from controller.runtime.plan import Done, Missing, Rejected, RemoveOwnerReference, ThreeWayMerge
from informers.errors import Conflict
from tests.controller.runtime.execution import (
    BUSY,
    IN_DOUBT,
    INVALID,
    UNREACHABLE,
    World,
    key,
    kinds,
)
from tests.controller.runtime.reworking import (
    OWN,
    disown,
    meddle,
    put_disk,
    put_vm,
    spec_of,
    three_way_merge,
    when,
)
from tests.fakes.requests import Fault, Garbled, Lost

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("make", [disown, lambda: three_way_merge("uid-101")], ids=["owner reference", "merge"])
async def test_a_change_is_given_up_after_four_conflicts(make: Callable[[], RemoveOwnerReference | ThreeWayMerge]):
    world = World()
    put_vm(world)
    put_disk(world, OWN)
    action = make()
    world.api.fault_for = when("patch", meddle(world, action.resource, action.key.name), times=99)
    outcome = await world.outcome_of(action)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Conflict)
    assert len(world.sent) == 2 * ATTEMPTS == 8
    assert world.settled


@pytest.mark.parametrize("make", [disown, lambda: three_way_merge("uid-101")], ids=["owner reference", "merge"])
@pytest.mark.parametrize("fault", [BUSY, INVALID, UNREACHABLE])
async def test_a_rejected_change_has_the_message_of_the_server(
    make: Callable[[], RemoveOwnerReference | ThreeWayMerge], fault: Fault
):
    world = World()
    put_vm(world)
    put_disk(world, OWN)
    world.fail(fault, verb="patch")
    assert await world.outcome_of(make()) == Rejected(make(), fault)
    assert len(world.sent) == 2
    assert world.settled


@pytest.mark.parametrize("make", [disown, lambda: three_way_merge("uid-101")], ids=["owner reference", "merge"])
@pytest.mark.parametrize("fault", [BUSY, UNREACHABLE, *IN_DOUBT])
async def test_a_change_is_rejected_if_the_read_fails_because_nothing_was_written(
    make: Callable[[], RemoveOwnerReference | ThreeWayMerge], fault: Fault
):
    world = World()
    put_vm(world)
    put_disk(world, OWN)
    world.fail(fault, verb="get")
    assert kinds([await world.outcome_of(make())]) == ["Rejected"]
    assert world.settled


# Template changes


async def test_p12_only_the_differences_between_the_templates_are_written():
    world = World()
    uid = put_vm(world, labels={"theirs": "1"})
    assert await world.outcome_of(three_way_merge(uid)) == Done(three_way_merge(uid), str(world.api.version))
    assert spec_of(world) == {"template": 2, "own": "x"}
    assert world.api.objects(VMIS)[0].metadata.labels == {"theirs": "1"}
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_p12_a_vm_that_is_up_to_date_is_not_written_but_awaited():
    world = World()
    uid = put_vm(world)
    world.api.change(VMIS, key("vm"), {"spec": {"template": 2}})
    assert await world.outcome_of(three_way_merge(uid)) == Done(three_way_merge(uid), str(world.api.version))
    assert world.sent == ["get vm"]
    assert not world.settled, "the cache shows an older one, and would ask for the same again"
    world.cache.catch_up()
    assert world.settled


async def test_p12_a_concurrent_change_by_another_writer_stays():
    world = World()
    uid = put_vm(world)
    world.api.fault_for = when("patch", lambda: world.api.change(VMIS, key("vm"), {"spec": {"own": "y"}}), times=2)
    assert kinds([await world.outcome_of(three_way_merge(uid))]) == ["Done"]
    assert spec_of(world) == {"template": 2, "own": "y"}


@pytest.mark.parametrize("moment", ["get", "patch"])
async def test_p12_another_vm_of_the_same_name_is_not_changed(moment: str):
    world = World()
    uid = put_vm(world)

    def replace() -> None:
        world.api.remove(VMIS, key("vm"))
        put_vm(world)

    world.api.fault_for = when(moment, replace)
    assert await world.outcome_of(three_way_merge(uid)) == Missing(three_way_merge(uid))
    assert spec_of(world) == {"template": 1, "own": "x"}


@pytest.mark.parametrize("moment", ["get", "patch"])
async def test_p12_a_vm_that_is_being_deleted_is_not_changed(moment: str):
    world = World()
    uid = put_vm(world, finalizers=["example.org/theirs"])
    world.api.fault_for = when(moment, lambda: world.api.remove(VMIS, key("vm")))
    assert await world.outcome_of(three_way_merge(uid)) == Missing(three_way_merge(uid))
    assert spec_of(world) == {"template": 1, "own": "x"}


@pytest.mark.parametrize("moment", ["get", "patch"])
async def test_p12_a_vm_that_does_not_exist_is_missing(moment: str):
    world = World()
    uid = put_vm(world)
    world.api.fault_for = when(moment, lambda: world.api.remove(VMIS, key("vm")))
    assert await world.outcome_of(three_way_merge(uid)) == Missing(three_way_merge(uid))
    assert world.settled


async def test_p12_a_vm_that_cannot_be_decoded_does_not_block_other_vms():
    world = World()
    uids = [put_vm(world, f"vm-{number:03}") for number in range(120)]
    actions = [three_way_merge(uid, f"vm-{number:03}") for number, uid in enumerate(uids)]
    actions[0] = replace(actions[0], new=b'{"x":' * 5000 + b"1" + b"}" * 5000)
    outcomes = await world.carry_out(actions)
    assert kinds(outcomes) == ["Rejected"] + ["Done"] * 119
    assert outcomes[0].message.startswith("default/vm-000 cannot be read")


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_p12_a_merge_whose_answer_is_lost_is_unresolved_until_the_server_is_asked(fault: Fault):
    world = World()
    uid = put_vm(world)
    world.fail(fault, verb="patch")
    assert kinds([await world.outcome_of(three_way_merge(uid))]) == ["Unknown"]
    assert world.unresolved == (three_way_merge(uid),)
    world.heal()
    world.cache.catch_up()
    assert not world.settled, "the cache cannot tell whose change it shows"
    assert await world.resolve() is None
    assert world.settled
    happened = spec_of(world) == {"template": 2, "own": "x"}
    assert happened is (fault is Lost.AFTER or isinstance(fault, Garbled))


async def test_p12_a_lost_merge_that_happened_waits_for_the_cache():
    world = World()
    uid = put_vm(world)
    world.fail(Lost.AFTER, verb="patch")
    await world.outcome_of(three_way_merge(uid))
    world.heal()
    assert await world.resolve() is None
    assert world.unresolved == ()
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_p12_a_lost_merge_of_a_deleted_vm_is_settled():
    world = World()
    uid = put_vm(world)
    world.fail(Lost.BEFORE, verb="patch")
    await world.outcome_of(three_way_merge(uid))
    world.heal()
    world.api.remove(VMIS, key("vm"))
    assert await world.resolve() is None
    assert world.settled


async def test_changes_are_counted_by_their_outcome():
    world = World()
    put_disk(world, OWN)
    await world.carry_out([disown(), disown("none"), three_way_merge(put_vm(world))])
    assert world.tally == {
        ("remove_owner_reference", "done"): 1,
        ("remove_owner_reference", "missing"): 1,
        ("three_way_merge", "done"): 1,
    }


@pytest.mark.parametrize("after_ms", range(1, 35, 4))
async def test_after_a_cancellation_between_read_and_write_nothing_is_sent(after_ms: int):
    world = World()
    put_disk(world, OWN)
    world.api.fault_for = when("patch", meddle(world, DATA_VOLUMES, "disk"), times=1)
    task = asyncio.create_task(world.outcome_of(disown()))
    await asyncio.sleep(after_ms / 1000)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sent = len(world.sent)
    await asyncio.sleep(10)
    assert len(world.sent) == sent
