import msgspec
import pytest

from controller.apimachinery.conditions import Condition
from controller.kubevirt import vmis
from controller.kubevirt.vmi_types import MigrationState, VirtualMachineInstance, VMIStatus
from tests.builders import NOW, seconds_ago, vmi

STANDINGS = {
    # name: (vmi, final, unknown, active)
    "running": (vmi(), False, False, True),
    "nobody has looked at it yet": (VirtualMachineInstance(), False, False, True),
    "pending": (vmi(phase="Pending", ready=None), False, False, True),
    "succeeded": (vmi(phase="Succeeded"), True, False, False),
    "failed": (vmi(phase="Failed"), True, False, False),
    "phase unknown": (vmi(phase="Unknown"), False, True, False),
    "its pod is terminating": (vmi(ready=False, reason="PodTerminating"), False, True, False),
    "final wins over a terminating pod": (
        vmi(phase="Failed", ready=False, reason="PodTerminating"),
        True,
        False,
        False,
    ),
    "not ready for another reason": (vmi(ready=False, reason="GuestNotRunning"), False, False, True),
    "ready, whatever the reason says": (vmi(ready=True, reason="PodTerminating"), False, False, True),
    "being deleted": (vmi(deleting=True), False, False, False),
}


@pytest.mark.parametrize(("machine", "final", "unknown", "active"), STANDINGS.values(), ids=STANDINGS)
def test_r3_only_active_vmis_count(machine, final, unknown, active):
    is_spent = vmis.is_spent(machine)
    assert (vmis.is_final(machine), is_spent, vmis.is_active(machine)) == (final, final or unknown, active)


@pytest.mark.parametrize(("state", "expected"), [(True, True), (False, False), (None, False)])
def test_r3_ready_is_the_condition_and_nothing_else(state, expected):
    assert vmis.is_ready(vmi(ready=state)) is expected


MIGRATIONS = {
    "none": (None, False),
    "under way": (MigrationState(), True),
    "succeeded": (MigrationState(completed=True), False),
    "failed": (MigrationState(failed=True), False),
    "ended": (MigrationState(end_timestamp="2026-08-01T11:30:00Z"), False),
}


@pytest.mark.parametrize(("state", "expected"), MIGRATIONS.values(), ids=MIGRATIONS)
def test_a_migration_lasts_until_its_end_success_or_failure(state, expected):
    assert vmis.is_migrating(VirtualMachineInstance(status=VMIStatus(migration_state=state))) is expected


def test_the_time_of_readiness_is_the_transition_time():
    assert vmis.ready_since(vmi(ready_for_s=5)) == seconds_ago(5)
    assert vmis.unready_since(vmi(ready_for_s=5)) is None
    assert vmis.unready_since(vmi(ready=False, ready_for_s=5)) == seconds_ago(5)
    assert vmis.ready_since(vmi(ready=False)) is None


def test_a_vmi_that_was_never_ready_is_unready_since_its_creation():
    assert vmis.unready_since(vmi(ready=None, age_s=7)) == seconds_ago(7)


def test_a_time_without_a_zone_is_utc():
    condition = Condition(type="Ready", status="True", last_transition_time=seconds_ago(5).replace(tzinfo=None))
    assert vmis.ready_since(VirtualMachineInstance(status=VMIStatus(conditions=(condition,)))) == seconds_ago(5)


def test_a_vmi_keeps_the_times_of_the_phases_that_are_read():
    names = ("Pending", "Scheduling", "Running", "Succeeded", "Failed", None)
    times = [{"phase": name, "phaseTransitionTimestamp": "2026-08-01T12:00:00Z"} for name in names]
    body = {"status": {"phase": "Failed", "phaseTransitionTimestamps": times}}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=VirtualMachineInstance)
    assert [each.phase for each in decoded.status.phase_transition_timestamps] == ["Running", "Succeeded", "Failed"]
    assert vmis.entered(decoded, "Running") == NOW
    assert vmis.entered(decoded, "Scheduling") is None


@pytest.mark.parametrize("times", [None, [], [{"phase": "Running"}], [{}]])
def test_a_vmi_without_times_of_phases_has_none(times):
    body = {"status": {"phase": "Running", "phaseTransitionTimestamps": times}}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=VirtualMachineInstance)
    assert vmis.entered(decoded, "Running") is None
    assert vmis.entered(VirtualMachineInstance(), "Running") is None
