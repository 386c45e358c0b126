"""The executor requests restarts through a subresource."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import PVCS, RESTART, VM_REQUESTS, VMIS, VMS
from controller.pool.rules import JUDGE
from controller.runtime.actions import Member, Patch, Plan, Rejected, Restart, Unknown, Unserved, waiting
from controller.runtime.result import UNSERVED_S, After, Retry, facts_of, result_of
from informers.objects import PatchType
from tests.controller.runtime.executor_setup import OWNER_UID, ExecutorSetup, document, key, kinds
from tests.fakes.requests import Document, Fault, Lost, Request, refusal

pytestmark = pytest.mark.looptime

DOWN = refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
ABSENT = refusal(404, "NotFound", "the server could not find the requested resource")
UNDERWAY = refusal(500, "InternalError", "unable to complete request: stop/start already underway")


class RestartSetup(ExecutorSetup):
    """An executor, and a server with a VM that runs. If a restart is requested, the server records the request in the
    status of the VM.
    """

    def __init__(self) -> None:
        super().__init__()
        self.vm_uid = self.server.put(VMS, document("vm"))["metadata"]["uid"]
        self.vmi_uid = self.add("vm", owner_uid=self.vm_uid)
        self.server.on_update = self._note

    def _note(self, request: Request) -> Document:
        assert (request.resource, request.subresource) == (VM_REQUESTS, RESTART)
        self.server.change(VMS, request.key, {"status": {"stateChangeRequests": [{"action": "Stop"}]}})
        return {}

    def restart(self, vmi_uid: str = "", *, member: bool = False) -> Restart:
        return Restart(
            resource=VMS,
            key=key("vm"),
            uid=self.vm_uid,
            requests=VM_REQUESTS,
            subresource=RESTART,
            instance=VMIS,
            instance_uid=vmi_uid or self.vmi_uid,
            why="it runs an older template",
            member=self.member if member else None,
        )

    @property
    def member(self) -> Member:
        return Member(resource=VMS, key=key("vm"), uid=self.vm_uid, owner_uid=OWNER_UID)


@pytest.fixture
def setup() -> RestartSetup:
    return RestartSetup()


async def test_p13_a_vmi_that_was_replaced_or_is_being_deleted_is_not_restarted(setup):
    assert kinds([await setup.outcome_of(setup.restart("another"))]) == ["Missing"]
    setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": ["x"]}})
    setup.server.remove(VMIS, key("vm"))
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Missing"]
    setup.server.finalize(VMIS, key("vm"))
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Missing"]
    assert setup.updates == 0


async def test_p13_a_vm_that_has_left_its_pool_is_not_restarted_and_the_next_plan_decides(setup):
    assert kinds([await setup.outcome_of(setup.restart(member=True))]) == ["Done"]
    setup.server.change(VMS, key("vm"), {"metadata": {"ownerReferences": []}})
    outcome = await setup.rejected(setup.restart(member=True))
    assert outcome.message == "default/vm has left its pool"
    assert result_of(Plan(), [outcome], settled=True) == Retry(outcome.message, lost_race=True)
    assert setup.updates == 1


ASKED = {"type": "RestartRequired", "status": "True"}
FAILED = {"type": "VMIInSync", "status": "False", "reason": "ReconcileError"}
BUSY = {"annotations": {"vmherd.dev/busy-until": "2126-01-01T00:00:00Z"}}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "KubeVirt takes the condition back": ({"status": {"conditions": []}}, "does not ask for its restart"),
    "KubeVirt has not seen its spec": ({"status": {"desiredGeneration": 1}}, "does not ask for its restart"),
    "KubeVirt failed to apply its spec": ({"status": {"conditions": [ASKED, FAILED]}}, "does not ask for its restart"),
    "its user works in it": ({"metadata": BUSY}, "it is busy"),
    "it is deleted": ({"metadata": DELETED}, "is being deleted"),
    "another VM has its name": ({"metadata": {"uid": "another"}}, "has left its pool"),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES)
async def test_p13_a_restart_that_kubevirt_asks_for_is_judged_again_on_the_server(setup, change, reason: str):
    setup.executor = setup.new_executor(JUDGE)
    next_generation = setup.server.document(VMS, key("vm"))["metadata"]["generation"] + 1
    status = {"desiredGeneration": next_generation, "conditions": [ASKED], **change.get("status", {})}
    setup.server.change(VMS, key("vm"), {**change, "status": status})
    asked = replace(setup.restart(), member=replace(setup.member, must_ask=True))
    outcome = await setup.outcome_of(asked)
    assert isinstance(outcome, Rejected) is bool(reason)
    assert not reason or reason in outcome.message
    assert setup.updates == (not reason)


async def test_p20_a_vm_whose_disk_is_being_deleted_is_not_restarted_and_does_not_begin_to_drain(setup):
    """A claim that a running VM uses stays until the VM stops. After a restart its data would be lost."""
    setup.server.put(PVCS, document("data"))
    disks = ((PVCS, key("data")), (PVCS, key("none")))
    asked = replace(setup.restart(), disks=disks)
    mark = Patch(resource=VMS, key=key("vm"), body=b"{}", type=PatchType.MERGE, why="it drains", disks=disks)
    assert kinds([await setup.outcome_of(mark), await setup.outcome_of(asked)]) == ["Done", "Done"]
    setup.server.change(PVCS, key("data"), {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})
    setup.server.remove(PVCS, key("data"))
    outcomes = [await setup.outcome_of(replace(mark, body=b'{"metadata":{}}')), await setup.outcome_of(asked)]
    assert kinds(outcomes) == ["Rejected", "Rejected"]
    told = "its disk data is being deleted, and goes when vm stops; copy the data, and stop vm yourself"
    assert [each.message for each in outcomes] == [f"vm goes on: {told}"] * 2
    assert setup.updates == 1


@pytest.mark.parametrize("fault", [DOWN, ABSENT])
async def test_p13_a_subresource_that_is_not_served_is_no_outage_and_is_asked_again_after_a_while(setup, fault: Fault):
    setup.fail(fault, verb="update")
    outcome = await setup.outcome_of(setup.restart())
    assert isinstance(outcome, Unserved)
    assert outcome.message == f"virtualmachines.subresources.kubevirt.io/restart is not served: {fault}"
    assert result_of(Plan(), [outcome], settled=True) == After(UNSERVED_S)
    assert facts_of(waiting("held"), [outcome]) == {"restart_unserved": 1, "failure": str(fault), "held": "held"}
    setup.heal()
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Unserved"]
    assert setup.updates == 1
    await asyncio.sleep(UNSERVED_S)
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Done"]


async def test_p13_a_vm_that_was_deleted_is_missing_and_the_subresource_counts_as_served(setup):
    setup.server.remove(VMS, key("vm"))
    setup.fail(ABSENT, verb="update")
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Missing"]
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Missing"]
    assert setup.updates == 2


@pytest.mark.parametrize("fault", [Lost.BEFORE, Lost.AFTER, UNDERWAY])
async def test_r9_a_restart_whose_answer_was_lost_waits_until_the_cache_shows_the_vm(setup, fault: Fault):
    setup.fail(fault, verb="update")
    outcome = await setup.outcome_of(setup.restart())
    assert isinstance(outcome, Unknown)
    assert setup.unresolved == (setup.restart(),)
    setup.heal()
    assert await setup.resolve() is None
    assert setup.unresolved == ()


async def test_r9_a_restart_is_unknown_if_the_vm_cannot_be_read_afterwards(setup):
    reads = 0

    def fail_the_second_read(request: Request) -> Fault | None:
        nonlocal reads
        reads += request.verb == "get"
        return Lost.BEFORE if reads == 2 else None

    setup.server.fault_for = fail_the_second_read
    assert kinds([await setup.outcome_of(setup.restart())]) == ["Unknown"]
    assert setup.updates == 1


async def test_p13_a_restart_is_rejected_if_the_vmi_cannot_be_read(setup):
    setup.fail(Lost.BEFORE, verb="get")
    outcome = await setup.outcome_of(setup.restart())
    assert kinds([outcome]) == ["Rejected"]
    assert isinstance(result_of(Plan(), [outcome], settled=True), Retry)
    assert setup.updates == 0
