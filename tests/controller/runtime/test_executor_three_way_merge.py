"""Patches that the executor computes from a fresh read, for example three-way merges. After a conflict, the executor
reads and patches again (P12).
"""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Done, Missing, Rejected, RemoveOwnerReference, ThreeWayMerge
from controller.runtime.execute.read_and_patch import ATTEMPTS
from informers.errors import Conflict
from tests.controller.runtime.executor_changes import (
    OWN,
    disown,
    meddle,
    put_disk,
    put_vm,
    reference,
    spec_of,
    three_way_merge,
    when,
)
from tests.controller.runtime.executor_setup import OWNER_UID, key, kinds
from tests.controller.runtime.refusals import BUSY, IN_DOUBT, INVALID, UNREACHABLE
from tests.fakes.requests import Fault, Garbled, Lost

pytestmark = pytest.mark.looptime


each_change = pytest.mark.parametrize(
    "make", [disown, lambda: three_way_merge("uid-101")], ids=["owner reference", "merge"]
)


@each_change
async def test_a_change_is_given_up_after_four_conflicts(
    setup, make: Callable[[], RemoveOwnerReference | ThreeWayMerge]
):
    put_vm(setup)
    put_disk(setup, OWN)
    action = make()
    setup.server.fault_for = when("patch", meddle(setup, action.resource, action.key.name), times=99)
    outcome = await setup.outcome_of(action)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Conflict)
    assert len(setup.sent) == 2 * ATTEMPTS == 8
    assert setup.settled


@each_change
@pytest.mark.parametrize("fault", [BUSY, INVALID, UNREACHABLE])
async def test_a_rejected_change_has_the_message_of_the_server(
    setup, make: Callable[[], RemoveOwnerReference | ThreeWayMerge], fault: Fault
):
    put_vm(setup)
    put_disk(setup, OWN)
    setup.fail(fault, verb="patch")
    assert await setup.outcome_of(make()) == Rejected(make(), fault)
    assert len(setup.sent) == 2
    assert setup.settled


@each_change
@pytest.mark.parametrize("fault", [BUSY, UNREACHABLE, *IN_DOUBT])
async def test_a_change_is_rejected_if_the_read_fails_because_nothing_was_written(
    setup, make: Callable[[], RemoveOwnerReference | ThreeWayMerge], fault: Fault
):
    put_vm(setup)
    put_disk(setup, OWN)
    setup.fail(fault, verb="get")
    assert kinds([await setup.outcome_of(make())]) == ["Rejected"]
    assert setup.settled


# Template changes


async def test_p12_only_the_differences_between_the_templates_are_written(setup):
    uid = put_vm(setup, labels={"theirs": "1"})
    assert await setup.outcome_of(three_way_merge(uid)) == Done(three_way_merge(uid), str(setup.server.version))
    assert spec_of(setup) == {"template": 2, "own": "x"}
    assert setup.server.objects(VMIS)[0].metadata.labels == {"theirs": "1"}
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_p12_a_vm_that_is_up_to_date_is_not_written_but_awaited(setup):
    uid = put_vm(setup)
    setup.server.change(VMIS, key("vm"), {"spec": {"template": 2}})
    assert await setup.outcome_of(three_way_merge(uid)) == Done(three_way_merge(uid), str(setup.server.version))
    assert setup.sent == ["get vm"]
    assert not setup.settled, "the cache shows an older one, and would ask for the same again"
    setup.cache.catch_up()
    assert setup.settled


async def test_p12_a_concurrent_change_by_another_writer_stays(setup):
    uid = put_vm(setup)
    setup.server.fault_for = when(
        "patch", lambda: setup.server.change(VMIS, key("vm"), {"spec": {"own": "y"}}), times=2
    )
    assert kinds([await setup.outcome_of(three_way_merge(uid))]) == ["Done"]
    assert spec_of(setup) == {"template": 2, "own": "y"}


@pytest.mark.parametrize("moment", ["get", "patch"])
@pytest.mark.parametrize("change", ["deleted", "being deleted", "replaced"])
async def test_p12_a_vm_that_is_gone_or_being_deleted_is_missing_and_another_of_its_name_is_not_changed(
    setup, change: str, moment: str
):
    uid = put_vm(setup, finalizers=["example.org/theirs"] if change == "being deleted" else [])

    def happen() -> None:
        setup.server.remove(VMIS, key("vm"))
        if change == "replaced":
            put_vm(setup)

    setup.server.fault_for = when(moment, happen)
    assert await setup.outcome_of(three_way_merge(uid)) == Missing(three_way_merge(uid))
    assert setup.settled
    assert change == "deleted" or spec_of(setup) == {"template": 1, "own": "x"}


@pytest.mark.parametrize(
    "owners", [None, [reference("other", controller=True)]], ids=["no controller", "another controller"]
)
async def test_p12_a_vm_that_a_user_detached_since_the_plan_is_not_changed(
    setup, owners: list[dict[str, object]] | None
):
    action = replace(three_way_merge(put_vm(setup)), owner_uid=OWNER_UID)
    setup.server.change(VMIS, key("vm"), {"metadata": {"ownerReferences": owners}})
    assert await setup.outcome_of(action) == Missing(action)
    assert spec_of(setup) == {"template": 1, "own": "x"}


async def test_p12_a_vm_that_cannot_be_decoded_does_not_block_other_vms(setup):
    uids = [put_vm(setup, f"vm-{number:03}") for number in range(120)]
    actions = [three_way_merge(uid, f"vm-{number:03}") for number, uid in enumerate(uids)]
    actions[0] = replace(actions[0], new=b'{"x":' * 5000 + b"1" + b"}" * 5000)
    outcomes = await setup.carry_out(actions)
    assert kinds(outcomes) == ["Rejected"] + ["Done"] * 119
    assert outcomes[0].message.startswith("default/vm-000 cannot be read")


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_p12_a_merge_whose_answer_is_lost_is_unresolved_until_the_server_is_asked(setup, fault: Fault):
    uid = put_vm(setup)
    setup.fail(fault, verb="patch")
    assert kinds([await setup.outcome_of(three_way_merge(uid))]) == ["Unknown"]
    assert setup.unresolved == (three_way_merge(uid),)
    setup.heal()
    setup.cache.catch_up()
    assert not setup.settled, "the cache cannot tell whose change it shows"
    assert await setup.resolve() is None
    assert setup.settled
    happened = spec_of(setup) == {"template": 2, "own": "x"}
    assert happened is (fault is Lost.AFTER or isinstance(fault, Garbled))


async def test_p12_a_lost_merge_that_happened_waits_for_the_cache(setup):
    uid = put_vm(setup)
    setup.fail(Lost.AFTER, verb="patch")
    await setup.outcome_of(three_way_merge(uid))
    setup.heal()
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_changes_are_counted_by_their_outcome(setup):
    put_disk(setup, OWN)
    await setup.carry_out([disown(), disown("none"), three_way_merge(put_vm(setup))])
    assert setup.tally == {
        ("remove_owner_reference", "done"): 1,
        ("remove_owner_reference", "missing"): 1,
        ("three_way_merge", "done"): 1,
    }
