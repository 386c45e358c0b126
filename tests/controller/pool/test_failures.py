"""P17: the condition of a pool whose VMs cannot start."""

import pytest
from msgspec.structs import replace

from controller.pool.failures import LONGEST_CAUSE
from controller.pool.status import transition_notices
from controller.pool.triggers import pools_of_vm
from controller.runtime.status import status_patch
from informers.store import Updated
from tests.builders import NOW, seconds_ago
from tests.pool_builders import pool, vm, vm_spec, vmi, vms
from tests.pool_outcomes import status_of

MESSAGE = 'VirtualMachineInstancetype.instancetype.kubevirt.io "u1.huge" not found'


def failing(reason="FailedCreate", message=MESSAGE, type_="Failure", status="True"):
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": seconds_ago(60),
    }


NOT_STARTED = {"ready": False, "printable": "Stopped", "conditions": [failing()]}
OWNER = pool(replicas=3)


def failure_of(*machines, owner=OWNER, **more):
    running = [vmi(each) for each in machines if each.status.printable_status == "Running"]
    status = status_of(owner, *machines, vmis=more.pop("vmis", running), **more)
    return next((each for each in status.conditions or () if each.type == "VirtualMachineFailure"), None)


def test_p17_the_status_of_a_pool_says_why_its_vms_cannot_start():
    failure = failure_of(*vms(OWNER, 0), *vms(OWNER, 1, 2, **NOT_STARTED))
    assert (failure.status, failure.reason, failure.last_transition_time) == ("True", "FailedCreate", NOW)
    assert failure.message == f"2 of 3 virtual machines cannot start; web-1: {MESSAGE}"


def test_p17_the_condition_is_written_once_in_any_order_of_the_cache_until_the_vms_start():
    machines = vms(OWNER, 0, 1, 2, **NOT_STARTED)
    told = status_of(OWNER, *machines, vmis=())
    assert told.printable_status == "Degraded"
    written = replace(OWNER, status=told)
    assert status_patch(written, status_of(written, *reversed(machines), vmis=())) is None
    assert failure_of(*vms(OWNER, 0, 1, 2), owner=written) is None


def test_p17_a_long_cause_is_cut():
    message = failure_of(*vms(OWNER, 0, **{**NOT_STARTED, "conditions": [failing(message="x" * 9000)]})).message
    assert len(message) < LONGEST_CAUSE + 60
    assert message.endswith("xxx...")


def test_p17_a_vm_that_needs_manual_recovery_cannot_start():
    needed = failing(reason="", message="", type_="ManualRecoveryRequired")
    failure = failure_of(*vms(OWNER, 0, **{**NOT_STARTED, "conditions": [needed]}))
    assert (failure.reason, failure.message) == (
        "ManualRecoveryRequired",
        "1 of 1 virtual machines cannot start; web-0: ManualRecoveryRequired",
    )


SILENT = {
    "its user stopped it": {**NOT_STARTED, "spec": vm_spec(run_strategy="Halted")},
    "it is being deleted": {**NOT_STARTED, "deleting": True},
    "the failure is over": {**NOT_STARTED, "conditions": [failing(status="False")]},
    "it has no failure": {**NOT_STARTED, "conditions": []},
}


@pytest.mark.parametrize("changes", SILENT.values(), ids=SILENT)
def test_p17_other_vms_give_no_condition(changes):
    assert failure_of(*vms(OWNER, 0, **changes)) is None


def test_p17_a_failure_of_a_vm_that_has_a_vmi_gives_no_condition():
    machines = vms(OWNER, 0, conditions=[failing(reason="HotPlugCPUError")])
    assert failure_of(*machines, vmis=[vmi(machines[0])]) is None


def test_p17_vms_that_cannot_start_give_one_event():
    told = status_of(OWNER, *vms(OWNER, 0, **NOT_STARTED), vmis=())
    more = status_of(replace(OWNER, status=told), *vms(OWNER, 0, 1, **NOT_STARTED), vmis=())
    [notice] = transition_notices(None, told)
    assert (notice.reason, notice.warning) == ("VirtualMachineFailure", True)
    assert notice.message == f"1 of 1 virtual machines cannot start; web-0: {MESSAGE}"
    assert transition_notices(told, more) == ()
    assert transition_notices(more, status_of(OWNER, *vms(OWNER, 0))) == ()


def test_p19_a_failure_of_a_vm_triggers_its_pool():
    before, after = (vm(owner=OWNER, ready=False, conditions=each) for each in ((), [failing()]))
    assert [key.name for key, _ in pools_of_vm(Updated(before, after))] == ["web"]
