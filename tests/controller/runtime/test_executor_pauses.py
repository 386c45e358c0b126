"""The executor pauses VMIs, and unpauses them, through a subresource."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import STANDBY_STATE
from controller.kubevirt.resources import PAUSE, UNPAUSE, VMI_REQUESTS, VMIS, VMS
from controller.kubevirt.standby import note_of
from controller.pool.rules import JUDGE
from controller.runtime.actions import AnyResource, Pause, Rejected
from informers.meta import ObjectKey
from tests.controller.runtime.executor_setup import ExecutorSetup, create, document, key, kinds
from tests.fakes.requests import Document, Fault, Lost, Request, refusal

pytestmark = pytest.mark.looptime

BROKEN = refusal(500, "InternalError", "no connection to virt-handler")


class PauseSetup(ExecutorSetup):
    """An executor with the judge of pools, and a server with a VM that runs. virt-handler pauses its VMI at once."""

    def __init__(self) -> None:
        super().__init__()
        self.executor = self.new_executor(JUDGE)
        marked = document("vm")
        marked["metadata"]["annotations"] = note_of("pausing", "vm")
        self.uid = self.add("vm", owner_uid=self.server.put(VMS, marked)["metadata"]["uid"])
        self.server.on_update = self._carry_out

    def _carry_out(self, request: Request) -> Document:
        assert request.resource is VMI_REQUESTS
        conditions = [{"type": "Paused", "status": "True"}] if request.subresource == PAUSE else []
        self.server.change(VMIS, request.key, {"status": {"conditions": conditions}})
        return {}

    def action(self, subresource: str = PAUSE) -> Pause:
        return Pause(
            resource=VMIS,
            key=key("vm"),
            uid=self.uid,
            requests=VMI_REQUESTS,
            subresource=subresource,
            why="it rests",
            judged=subresource == PAUSE,
        )


@pytest.fixture
def setup() -> PauseSetup:
    return PauseSetup()


async def test_p32_a_pause_is_sent_once_and_can_be_repeated_without_harm(setup):
    for subresource, updates in ((PAUSE, 1), (PAUSE, 1), (UNPAUSE, 2), (UNPAUSE, 2)):
        assert kinds([await setup.outcome_of(setup.action(subresource))]) == ["Done"]
        assert setup.updates == updates


async def test_p32_a_vmi_that_was_replaced_or_ends_is_not_paused(setup):
    assert kinds([await setup.outcome_of(replace(setup.action(), uid="another"))]) == ["Missing"]
    setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": ["x"]}})
    setup.server.remove(VMIS, key("vm"))
    assert kinds([await setup.outcome_of(setup.action())]) == ["Missing"]
    assert setup.updates == 0


async def test_p32_a_vm_that_has_lost_its_mark_is_not_paused(setup):
    setup.server.change(VMS, key("vm"), {"metadata": {"annotations": {STANDBY_STATE: None}}})
    outcome = await setup.rejected(setup.action())
    assert outcome.message == "default/vm is not paused now: it is no standby any more"
    assert setup.updates == 0


@pytest.mark.parametrize("fault", [Lost.BEFORE, Lost.AFTER, BROKEN])
async def test_r9_after_a_lost_answer_the_next_try_sees_what_is_left_to_do(setup, fault: Fault):
    setup.fail(fault, verb="update")
    assert kinds([await setup.outcome_of(setup.action())]) == ["Unknown"]
    assert setup.unresolved == (setup.action(),)
    setup.heal()
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    await asyncio.sleep(2)  # a refusal waits a second
    assert kinds([await setup.outcome_of(setup.action())]) == ["Done"]
    assert setup.updates == (1 if fault is Lost.AFTER else 2)


async def test_p32_a_refused_pause_does_not_delay_the_wake(setup):
    setup.fail(refusal(403, "Forbidden", "no permission"), verb="update")
    assert kinds([await setup.outcome_of(setup.action())]) == ["Rejected"]
    setup.heal()
    setup.server.change(VMIS, key("vm"), {"status": {"conditions": [{"type": "Paused", "status": "True"}]}})
    assert kinds([await setup.outcome_of(setup.action(UNPAUSE))]) == ["Done"]


async def test_p32_a_cluster_that_serves_no_pause_is_told_from_a_vmi_that_is_gone(setup):
    setup.fail(refusal(404, "NotFound", "the server could not find the requested resource"), verb="update")
    assert kinds([await setup.outcome_of(setup.action())]) == ["Unserved"]
    assert kinds([await setup.outcome_of(setup.action())]) == ["Unserved"]
    assert setup.updates == 1, "it is not asked again at once"


async def test_p32_a_standby_that_a_policy_has_made_an_ordinary_vm_is_deleted_at_once(
    setup: ExecutorSetup, monkeypatch: pytest.MonkeyPatch
):
    """As a surplus member, it could push out a VM that serves."""
    store = setup.server._create

    def admit(resource: AnyResource, key: ObjectKey, document: Document, **more: bool) -> Document:
        del document["metadata"]["annotations"]
        return store(resource, key, document, **more)

    monkeypatch.setattr(setup.server, "_create", admit)
    body = msgspec.json.encode(document("new", annotations=note_of("preparing", "new")))
    [outcome] = await setup.carry_out([replace(create("new"), resource=VMS, body=body)])
    assert isinstance(outcome, Rejected)
    assert setup.server.find(VMS, key("new")) is None
