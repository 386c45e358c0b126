"""Delete requests for members: an object that has left its owner is not deleted (G3)."""

from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS, VMS
from controller.runtime.actions import Delete, Member, Missing, Restart, SuccessorRefused
from controller.runtime.execute.deletes import ATTEMPTS, Found, Judge, is_freed_by_delete
from informers.errors import ApiError, Conflict
from informers.objects import read_meta
from tests.controller.runtime.executor_setup import (
    FINALIZER,
    OWNER_UID,
    ExecutorSetup,
    document,
    key,
    kinds,
    meddle,
    reference,
    when,
)
from tests.controller.runtime.refusals import BUSY, INVALID, QUOTA_FULL, UNREACHABLE
from tests.fakes.requests import Request, refusal

pytestmark = pytest.mark.looptime


def with_member(*, finalizers: tuple[str, ...] = ()) -> tuple[ExecutorSetup, Delete]:
    """A member, and the action that deletes it. The delete names the version that the cache shows."""
    setup = ExecutorSetup()
    made = setup.server.put(VMIS, document("vm", finalizers=list(finalizers)))["metadata"]
    setup.cache.catch_up()
    version, uid = made["resourceVersion"], made["uid"]
    return setup, Delete(resource=VMIS, key=key("vm"), uid=uid, version=version, owner_uid=OWNER_UID, why="surplus")


async def test_g3_a_member_that_has_changed_is_read_and_deleted():
    setup, delete = with_member()
    meddle(setup, VMIS, "vm")()
    assert kinds([await setup.outcome_of(delete)]) == ["Done"]
    assert (setup.sent, setup.names) == (["delete vm", "get vm", "delete vm"], [])


@pytest.mark.parametrize("owners", [[], [reference("other", controller=True)]])
async def test_g3_an_object_that_has_left_its_owner_is_not_deleted(owners: list[dict[str, object]]):
    setup, delete = with_member()
    setup.server.change(VMIS, key("vm"), {"metadata": {"ownerReferences": owners}})
    assert await setup.outcome_of(delete) == Missing(delete)
    assert setup.names == ["vm"]
    assert not setup.settled, "the next plan waits until the cache shows that the object has left"
    setup.cache.catch_up()
    assert setup.settled


@pytest.mark.parametrize("finalizers", [[], ["other"]])
async def test_p10_a_vm_that_has_lost_the_finalizer_which_keeps_its_disks_is_not_deleted(finalizers: list[str]):
    setup, delete = with_member(finalizers=(FINALIZER,))
    delete = replace(delete, finalizer=FINALIZER)
    setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": finalizers}})
    assert kinds([await setup.outcome_of(delete)]) == ["Rejected"]
    assert "deletionTimestamp" not in setup.server.document(VMIS, key("vm"))["metadata"]


async def test_g3_an_object_that_leaves_between_the_read_and_the_second_delete_is_not_deleted():
    setup, delete = with_member()
    meddle(setup, VMIS, "vm")()
    deletes = 0

    def fault_for(request: Request) -> None:
        nonlocal deletes
        deletes += request.verb == "delete"
        if deletes == 2:
            setup.server.change(VMIS, key("vm"), {"metadata": {"ownerReferences": []}})

    setup.server.fault_for = fault_for
    assert await setup.outcome_of(delete) == Missing(delete)
    assert setup.names == ["vm"]


async def test_a_member_that_changes_all_the_time_is_rejected_after_some_attempts():
    setup, delete = with_member()
    setup.server.fault_for = when("delete", meddle(setup, VMIS, "vm"), times=100)
    assert kinds([await setup.outcome_of(delete)]) == ["Rejected"]
    assert setup.sent.count("delete vm") == ATTEMPTS


async def test_a_failed_read_after_a_conflict_leaves_no_doubt_about_the_delete():
    setup, delete = with_member()
    meddle(setup, VMIS, "vm")()
    setup.fail(UNREACHABLE, verb="get")
    assert kinds([await setup.outcome_of(delete)]) == ["Rejected"]
    assert setup.unresolved == ()


def with_vm() -> tuple[ExecutorSetup, Delete]:
    """A VM of a pool with its VMI, and the action that restarts the VM: it deletes the VMI."""
    setup = ExecutorSetup()
    vm = setup.server.put(VMS, document("vm"))["metadata"]
    made = setup.server.put(VMIS, document("vm", owner_uid=vm["uid"]))["metadata"]
    setup.cache.catch_up()
    member = Member(resource=VMS, key=key("vm"), uid=vm["uid"], owner_uid=OWNER_UID)
    return setup, Delete(
        resource=VMIS,
        key=key("vm"),
        uid=made["uid"],
        version=made["resourceVersion"],
        owner_uid=vm["uid"],
        why="its template is older",
        member=member,
    )


@pytest.mark.parametrize("change", ["detached", "replaced", "deleted"])
async def test_g3_the_vmi_of_a_vm_that_has_left_its_pool_is_not_deleted_and_the_key_is_settled(change: str):
    setup, delete = with_vm()
    if change == "detached":
        setup.server.change(VMS, key("vm"), {"metadata": {"ownerReferences": []}})
    else:
        setup.server.remove(VMS, key("vm"))
    if change == "replaced":
        setup.server.put(VMS, document("vm"))
    outcome = await setup.rejected(delete)
    assert isinstance(outcome.error, Conflict)
    assert setup.names == ["vm"]
    assert setup.settled


async def test_g3_no_vmi_is_deleted_if_its_vm_cannot_be_read():
    setup, delete = with_vm()
    setup.fail(UNREACHABLE, verb="get")
    assert kinds([await setup.outcome_of(delete)]) == ["Rejected"]
    assert setup.sent == ["get vm"]


def kept_back(action: Delete | Restart, found: Found, now: datetime) -> str:
    """The obstacle of the tests: an annotation of the object or of its VM."""
    texts = [(read_meta(answer).annotations or {}).get("keep", "") for answer in found.values()]
    return next(filter(None, texts), "")


async def test_p20_a_member_that_has_changed_is_judged_again():
    setup, delete = with_member()
    setup.executor = setup.new_executor(Judge((), kept_back))
    setup.server.change(VMIS, key("vm"), {"metadata": {"annotations": {"keep": "it is protected"}}})
    outcome = await setup.rejected(delete)
    assert outcome.message == "default/vm is not deleted now: it is protected"
    assert setup.names == ["vm"]


async def test_p20_the_vm_is_judged_before_its_vmi_is_deleted():
    setup, delete = with_vm()
    setup.executor = setup.new_executor(Judge((VMS,), kept_back))
    setup.server.change(VMS, key("vm"), {"metadata": {"annotations": {"keep": "a snapshot is in progress"}}})
    assert kinds([await setup.outcome_of(delete)]) == ["Rejected"]
    assert setup.sent == ["get vm"]


def with_successor() -> tuple[ExecutorSetup, Delete]:
    setup, delete = with_member()
    return setup, replace(delete, successor=msgspec.json.encode(document("vm")))


@pytest.mark.parametrize(
    ("made", "sent"),
    [(with_member, "delete vm"), (with_vm, "get vm, delete vm"), (with_successor, "create vm, delete vm")],
    ids=["one request for a member", "the VM of a VMI is read first", "a successor is tried first"],
)
async def test_g3_p20_a_member_that_has_not_changed_is_deleted(
    made: Callable[[], tuple[ExecutorSetup, Delete]], sent: str
):
    setup, delete = made()
    assert kinds([await setup.outcome_of(delete)]) == ["Done"]
    assert ", ".join(setup.sent) == sent


@pytest.mark.parametrize("error", [QUOTA_FULL, INVALID, BUSY, UNREACHABLE, refusal(500, "InternalError", "webhook")])
async def test_p20_an_object_whose_successor_cannot_be_created_stays(error: ApiError):
    setup, delete = with_successor()
    setup.fail(error, verb="create")
    outcome = await setup.outcome_of(delete)
    assert isinstance(outcome, SuccessorRefused)
    assert outcome.message == f"the successor of vm would be refused: {error}"
    assert setup.names == ["vm"]
    assert setup.settled


async def test_p20_a_replacement_is_judged_by_the_other_objects_of_the_same_name_too():
    setup, delete = with_successor()
    setup.executor = setup.new_executor(Judge((VMS,), kept_back))
    setup.server.put(VMS, document("vm", annotations={"keep": "it is paused"}))
    outcome = await setup.rejected(delete)
    assert outcome.message == "default/vm is not deleted now: it is paused"
    assert setup.sent == ["create vm", "get vm", "get vm"]


async def test_p20_after_one_refused_successor_no_other_is_tried():
    setup, delete = with_successor()
    setup.server.fault_for = lambda request: INVALID if request.verb == "create" else None
    await setup.carry_out([delete, *(replace(delete, key=key(f"vm-{number}")) for number in range(5))])
    assert setup.sent == ["create vm"]


@pytest.mark.parametrize(
    ("used", "limited", "accepted"),
    [("5", "5", True), ("6", "5", False), ("5,pods=9", "5,pods=1", True), ("1Gi", "1Gi", False)],
)
def test_p20_a_full_quota_has_room_for_the_successor_unless_it_is_exceeded(used: str, limited: str, accepted: bool):
    name = "count/virtualmachines.kubevirt.io"
    amounts = f"requested: {name}=1, used: {name}={used}, limited: {name}={limited}"
    assert is_freed_by_delete(f'virtualmachines "vm" is forbidden: exceeded quota: few, {amounts}') is accepted


def test_p20_another_refusal_is_not_freed_by_the_delete():
    assert not is_freed_by_delete("denied by policy: exceeded quota")
