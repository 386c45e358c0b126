"""P14, P15: the unready periods of VMs, their age after a restart of the controller, and the note about them."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import UNREADY
from controller.kubevirt.vms import unready_since
from controller.pool.healing.downtime_note import plan_unready_note
from controller.pool.members.ledger import member_stuck_since, member_unready_since, outage_of
from controller.pool.members.rosters import Downtimes
from controller.pool.members.unready_periods import read_notes, shown_since
from controller.pool.status import next_status
from controller.runtime.actions import Delete, Patch, Plan
from controller.runtime.members.groups import one_by_one
from informers.objects import PatchType
from tests.builders import NOW
from tests.pool_builders import POOLS, member, periods_after, pool, situation_of, snapshot, vm, vm_spec, vmi, vms
from tests.pool_replay import Replay, moments
from tests.pool_scenes import annotated, at, healing_pool, noted
from tests.strategies import json_values

OWNER = pool()


class History:
    """Snapshots of a pool with one VM, taken at different times. `seconds` is the time of the next snapshot."""

    def __init__(self, owner=OWNER):
        self.owner, self.downtimes = owner, Downtimes()

    def see(self, seconds, *, running=None, owner=None, **changes):
        """The age of the VM's unready period, or None if the VM is ready."""
        now = NOW + timedelta(seconds=seconds)
        [machine] = vms(OWNER, 0, **{"ready_for_s": -seconds, **changes})
        found = [vmi(machine, **{"ready": changes.get("ready", True), "ready_for_s": -seconds, **(running or {})})]
        seen = snapshot(owner or self.owner, [machine], vmis=found, now=now, downtimes=self.downtimes)
        [self.machine] = seen.members
        self.seen = seen
        since = member_unready_since(self.machine)
        return None if since is None else (now - since).total_seconds()

    def stuck_s(self):
        return (self.seen.now - member_stuck_since(self.seen.revisions, self.machine)).total_seconds()


def health_of(seen):
    status = next_status(seen, ())
    return status.printable_status, status.problem


LOOP = ("Degraded", "web-0: CrashLoopBackOff, its guest ends soon after it starts")
UNREADY_VM = {"ready": False}
STOPPED = {"ready": False, "spec": vm_spec(run_strategy="Halted")}
UPDATED = {"revision": "web-2", "running": {"deleting": True, "phase": "Succeeded", "revision": "web-1"}}
YOUNG = {"age_s": 15}
STOPPING = {**YOUNG, "ready": False, "deleting": True}
CRASHES = {"running": {"deleting": True, "phase": "Failed"}}

HISTORIES = {
    "a condition that changes its reason": [(0, UNREADY_VM, 0), (100, UNREADY_VM, 100), (299, UNREADY_VM, 299)],
    "ready for 29 seconds": [(0, UNREADY_VM, 0), (20, {}, None), (49, {}, None), (49, UNREADY_VM, 49)],
    "ready for 30 seconds": [(0, UNREADY_VM, 0), (20, {}, None), (50, {}, None), (50, UNREADY_VM, 0)],
    "no snapshot shows the end": [(0, UNREADY_VM, 0), (20, {}, None), (50, UNREADY_VM, 0)],
    "recreated": [(0, UNREADY_VM, 0), (60, {"ready": False, "uid": "another", "age_s": -60}, 0)],
    "stopped by its user": [(0, UNREADY_VM, 0), (10, STOPPED, None), (100, UNREADY_VM, 0)],
    "terminating": [(0, UNREADY_VM, 0), (10, {"ready": False, "deleting": True}, None)],
    "a restart of a ready VM": [(0, UNREADY_VM, 0), (20, {}, None), (25, {"running": {"deleting": True}}, 0)],
    "a restart of a VM soon after its start": [(0, {"running": YOUNG}, None), (9, {"running": STOPPING}, 0)],
    "an update that restarts a ready VM": [(0, UNREADY_VM, 0), (20, {}, None), (25, UPDATED, 0)],
    "a guest that ends while its VMI is deleted": [(0, UNREADY_VM, 0), (20, {}, None), (25, CRASHES, 25)],
    "a finished VMI with a ready condition": [(0, {"running": {"phase": "Failed"}}, 0)],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_p15_the_age_of_an_unready_period(history):
    seen = History()
    assert [seen.see(seconds, **changes) for seconds, changes, _ in history] == [age for *_, age in history]


NOTED = {
    "its age": (400, [(0, UNREADY_VM, 400), (60, UNREADY_VM, 460)]),
    "at most the age of the VM": (99999, [(0, {"ready": False, "age_s": 70}, 70)]),
    "ready for 29 seconds after the restart": (400, [(0, {}, None), (29, UNREADY_VM, 429)]),
    "ready for 30 seconds after the restart": (400, [(0, {}, None), (30, UNREADY_VM, 0)]),
    "ready for 30 seconds at the restart": (400, [(0, {"running": {"ready_for_s": 30}}, None), (1, UNREADY_VM, 0)]),
    # While a pool is paused, the controller does not remove the stale entry.
    "a stale entry": (400, [(0, UNREADY_VM, 400), (10, {}, None), (4000, {}, None), (4010, UNREADY_VM, 0)]),
}


@pytest.mark.parametrize(("noted_s", "history"), NOTED.values(), ids=NOTED)
def test_p15_the_note_gives_the_age_after_a_restart_of_the_controller(noted_s, history):
    seen = History(noted(OWNER, *vms(OWNER, 0), noted_s))
    assert [seen.see(seconds, **changes) for seconds, changes, _ in history] == [age for *_, age in history]


def test_p15_a_ready_vm_without_a_vmi_is_not_unready_because_the_cache_of_the_vmis_is_old():
    downtimes, [machine] = Downtimes(), vms(OWNER, 0)
    for seconds in (0, 400):
        seen = snapshot(OWNER, [machine], vmis=[], now=NOW + timedelta(seconds=seconds), downtimes=downtimes)
        assert [member_stuck_since(seen.revisions, each) for each in seen.members] == [None]


def test_p29_the_time_of_a_new_template_begins_when_the_vmi_of_the_old_one_is_gone():
    downtimes, [machine] = Downtimes(), vms(OWNER, 0, ready=False, ready_for_s=40, revision="web-2")
    old = vmi(machine, ready=False, ready_for_s=40, revision="web-1")
    snapshot(OWNER, [machine], vmis=[old], downtimes=downtimes)
    seen = snapshot(OWNER, [machine], vmis=[], now=NOW + timedelta(seconds=20), downtimes=downtimes)
    assert [member_stuck_since(seen.revisions, each) for each in seen.members] == [seen.now]


def test_p14_a_vm_that_crashed_is_available_after_thirty_seconds():
    history = History()
    for seconds, seen in ((0, UNREADY_VM), (10, {}), (12, {**UNREADY_VM, **CRASHES}), (15, {})):
        history.see(seconds, **seen)
    for seconds, unavailable in ((44, 1), (45, 0)):
        history.see(seconds, running={"ready_for_s": -15})
        found = outage_of(one_by_one([history.machine]), history.seen.now)
        assert found.number == unavailable
        assert found.ends_at == (NOW + timedelta(seconds=45) if unavailable else None)
        assert health_of(history.seen)[1] == (LOOP[1] if unavailable else None), "one state between two crashes"


ALIVE = {
    "it starts for the first time": (),
    "its readiness probe fails": ({},),
    "its node does not answer": ({"running": {"reason": None}},),
    "it has an I/O error": ({"running": {"conditions": [Condition(type="Paused", status="True")]}},),
}


@pytest.mark.parametrize("signs", ALIVE.values(), ids=ALIVE)
def test_p14_a_vm_whose_guest_has_not_ended_is_in_no_crash_loop(signs):
    history = History()
    history.see(0, ready=False)
    history.see(10)
    for sign in signs:
        history.see(12, ready=False, **sign)
        assert "CrashLoopBackOff" not in health_of(history.seen)[1]
        history.see(15)
    assert outage_of(one_by_one([history.machine]), history.seen.now).number == 0


def test_p15_the_guest_of_a_young_vm_that_is_evicted_has_not_crashed():
    """It ends because its VMI is deleted. A final VMI that KubeVirt deletes has ended before."""
    for ended_s, crashes in ((0, 0), (1, 1), (2, 1)):
        history, gone = History(), {"phase": "Succeeded", "deleting": True}  # it was deleted 1 s ago
        history.see(-20, ready=False)
        history.see(-15)
        history.see(0, ready=False, running={**gone, "age_s": 20, "entered_s": {"Running": 16, "Succeeded": ended_s}})
        assert history.machine.downtime.crashes == crashes


def test_p14_a_recreated_vm_of_the_same_template_continues_the_time_of_the_rollout():
    """Healing recreates the VM. The rollout must still notice that the VMs of the new template never become ready."""
    history = History()
    history.see(0, ready=False)
    history.see(100, ready=False, deleting=True)
    history.see(110, ready=False, uid="another")
    assert history.stuck_s() == 110
    history.see(120, ready=False, uid="third", revision="web-2")
    assert history.stuck_s() == 0


def test_p14_a_recreated_vm_continues_the_time_for_five_minutes_of_absence():
    def after(absence_s):
        history = History()
        history.see(0, ready=False)
        for seconds in (0, absence_s):
            snapshot(OWNER, [], now=NOW + timedelta(seconds=seconds), downtimes=history.downtimes)
        history.see(absence_s, ready=False, uid="another")
        return history.stuck_s()

    assert (after(299), after(300)) == (299, 0)


@pytest.mark.parametrize(
    ("of_vm", "of_vmi", "expected"),
    [({}, {"age_s": 400 - 30}, 400), ({}, {"age_s": 400 - 31}, 0), ({"failures": 1}, {"age_s": 5}, 400)],
    ids=["the VMI of the note", "another VMI", "another VMI after a failed start"],
)
def test_p15_a_vm_that_was_restarted_does_not_get_the_age_of_a_note(of_vm, of_vmi, expected):
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    assert history.see(0, ready=False, running=of_vmi, **of_vm) == expected


def test_p15_a_time_in_the_future_counts_as_now():
    assert History(noted(OWNER, *vms(OWNER, 0), -200)).see(0, ready=False) == 0
    assert read_notes(noted(OWNER, *vms(OWNER, 0), -301).metadata, NOW) == {}


@given(st.dictionaries(st.integers(-3, 3).map(str), json_values | st.tuples(st.just("uid-web-0"), json_values)))
def test_p15_every_value_of_the_note_gives_an_age(value):
    assert History(annotated(OWNER, UNREADY, value)).see(0, ready=False) >= 0


DOWN = {"ready": False, "ready_for_s": 0}
RUNS = {"ready": False, "reason": "GuestNotRunning"}


def periods(machines, seconds):
    """The unready periods of these VMs. Each VM became unready this number of seconds ago."""
    running = [vmi(each, **RUNS, ready_for_s=seconds) for each in machines]
    return periods_after(pool(), machines, vmis=running, now=NOW - timedelta(seconds=seconds))


def note_plan(owner, machines, before, **shown) -> Plan:
    """The plan of the note. The conditions of the VMs that are not ready are `shown` to be new."""
    found = [vmi(each, **({**RUNS, "ready_for_s": 0, **shown} if unready_since(each) else {})) for each in machines]
    return plan_unready_note(situation_of(snapshot(owner, machines, vmis=found, unready_before=before)))


def written(todo: Plan):
    [patch] = todo.actions
    return json.loads(json.loads(patch.body)["metadata"]["annotations"][UNREADY] or "null")


def test_p15_a_period_of_thirty_seconds_that_the_objects_do_not_show_is_noted():
    owner = healing_pool()
    down, up = vms(owner, 0, **DOWN), vms(owner, 1, 2)
    early = note_plan(owner, (*down, *up), periods(down, 29))
    assert (early.actions, early.requeue_after_s) == ((), 1)
    assert note_plan(owner, (*down, *up), periods(down, 30), ready_for_s=30) == Plan(), "its conditions show it"
    todo = note_plan(owner, (*down, *up), periods(down, 30))
    assert written(todo) == {"0": ["uid-web-0", at(30), "web-1", 0, None, None]}
    [patch] = todo.actions
    assert isinstance(patch, Patch)
    assert (patch.resource, patch.key, patch.type, patch.is_note) == (POOLS, owner.metadata.key, PatchType.MERGE, True)
    assert json.loads(patch.body)["metadata"]["uid"] == owner.metadata.uid


def test_p15_a_note_is_not_written_again_and_is_removed_when_no_vm_is_unready_or_it_cannot_be_parsed():
    noted = annotated(healing_pool(), UNREADY, {"0": ["uid-web-0", at(500), "web-1"]})
    down = vms(noted, 0, **DOWN)
    assert note_plan(noted, (*down, *vms(noted, 1)), periods(down, 500)) == Plan()
    for owner in (noted, healing_pool(annotations={UNREADY: "rubbish"})):
        assert written(note_plan(owner, vms(owner, 0, 1), {})) is None


def test_p15_a_crash_loop_is_noted_and_the_next_leader_and_the_plugin_know_it():
    """The VM is ready for two seconds, and each VMI is new. The objects alone show a new start."""
    owner, history = pool(), History()
    for seconds, ready in ((0, False), (2, True), (4, False)):
        history.see(seconds, ready=ready, running={"age_s": -seconds, **({} if ready else RUNS)})
    owner = annotated(owner, UNREADY, written(plan_unready_note(situation_of(history.seen))))
    later, restarted = History(owner), {"age_s": -600, **RUNS}
    assert later.see(600, ready=False, running=restarted) == 600
    assert later.machine.downtime.crashes == 1
    assert health_of(later.seen) == LOOP
    assert plan_unready_note(situation_of(later.seen)) == Plan()
    later.see(640)
    later.see(670, running={"ready_for_s": -640})
    assert written(plan_unready_note(situation_of(later.seen))) is None, "it has been ready for 30 seconds"


def test_p15_each_end_of_a_guest_counts_once_and_the_count_is_noted_once_a_minute():
    """Each guest ends 10 s after the start of its VMI. Its VMI is seen twice after the end."""
    owner, history, written_at = pool(), History(), []
    for start in range(0, 120, 20):
        ended = {"age_s": -start, "phase": "Failed", "entered_s": {"Running": -start - 5}}
        for seconds in (start + 10, start + 12):
            history.see(seconds, ready=False, owner=owner, running=ended)
            assert history.machine.downtime.crashes == start / 20 + 1
            if (todo := plan_unready_note(situation_of(history.seen))).actions:
                owner, _ = annotated(owner, UNREADY, written(todo)), written_at.append(seconds)
    assert written_at == [10, 70]
    next_leader = History(owner)
    for seconds in (110, 112):
        next_leader.see(seconds, ready=False, running=ended)
        assert next_leader.machine.downtime.crashes == 5, "4 are noted, and the last VMI shows one more"


def test_p15_the_objects_show_since_when_a_new_vm_is_not_ready():
    """The VM and its first VMI were never ready for 30 seconds, so its time begins with the VM."""
    seen = History()
    assert seen.see(20, ready=False, age_s=5, running={"age_s": -10, **RUNS}) == 25
    assert plan_unready_note(situation_of(seen.seen)) == Plan()


def test_p15_a_new_vm_that_was_updated_is_not_ready_since_its_present_vmi():
    """The VM is 29 seconds old and was ready. A leader that has not seen it must not return its template."""
    machine = vm("web-0", owner=OWNER, age_s=29, ready=False, ready_for_s=1)
    machine = replace(machine, metadata=replace(machine.metadata, generation=2))
    assert shown_since(machine, vmi(machine, ready=False, ready_for_s=1, age_s=1), NOW) == NOW - timedelta(seconds=1)


def single(**changes):
    return pool(replicas=1, **changes)


@pytest.mark.parametrize("name", ["vm-crash", "vm-fail-start"])
def test_p15_the_age_of_a_crash_loop_grows_while_its_conditions_stay_young(name):
    """In the first recording, the VM is ready for two seconds, then unready for two seconds, again and again. In the
    other recording, the VM is never ready.
    """
    replay = Replay(single())
    oldest_condition_s = 0.0
    for moment in moments(name, replay.owner):
        seen = replay.snapshot(moment)
        since = member_unready_since(member(seen, moment.vm.metadata.name))
        if since is not None and moment.seconds > 1:
            assert (moment.now - since).total_seconds() >= moment.seconds - 1
            assert member_stuck_since(seen.revisions, member(seen, moment.vm.metadata.name)) == since
        condition_since = unready_since(moment.vm)
        if condition_since is not None:
            oldest_condition_s = max(oldest_condition_s, (moment.now - condition_since).total_seconds())
    assert moment.seconds > 72
    assert oldest_condition_s < 60


@pytest.mark.parametrize("stop", [31, 50, 59])
def test_p15_a_restart_of_the_controller_does_not_reset_the_age_of_a_crash_loop(stop):
    replay = Replay(single(autohealing={"startUpFailureThreshold": 99, "minFailingToStartDuration": "60s"}))
    found = []
    for moment in moments("vm-fail-start", replay.owner):
        if stop <= moment.seconds:
            replay.restart()
        found += [moment for each in replay.run_pass(moment).actions if isinstance(each, Delete)]
    assert 63 <= found[0].seconds < 66
