"""P14, P15: the beginning and the end of an unready period, and its age after a restart of the controller."""

from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import UNREADY
from controller.pool.members.ledger import member_stuck_since, member_unready_since, outage_of
from controller.pool.members.rosters import Downtimes
from controller.pool.members.unready_periods import read_notes
from controller.runtime.members.groups import one_by_one
from tests.builders import NOW, seconds_ago
from tests.pool_builders import member, periods_after, pool, revision, rules_of, snapshot, stores, vm, vm_spec, vmi, vms
from tests.pool_healing import annotated, at, noted
from tests.strategies import json_values

OWNER = pool()
DOWN = {"ready": False, "ready_for_s": 0}


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


def test_p15_a_ready_vm_has_no_period():
    history = History()
    assert history.see(0) is None
    assert history.downtimes.periods == {}


UNREADY_VM = {"ready": False}
STOPPED = {"ready": False, "spec": vm_spec(run_strategy="Halted")}
CRASHES = {"running": {"deleting": True, "phase": "Failed"}}

HISTORIES = {
    "a condition that changes its reason": [(0, UNREADY_VM, 0), (100, UNREADY_VM, 100), (299, UNREADY_VM, 299)],
    "ready for 29 seconds": [(0, UNREADY_VM, 0), (20, {}, None), (49, {}, None), (49, UNREADY_VM, 49)],
    "ready for 30 seconds": [(0, UNREADY_VM, 0), (20, {}, None), (50, {}, None), (50, UNREADY_VM, 0)],
    "no snapshot shows the end": [(0, UNREADY_VM, 0), (20, {}, None), (50, UNREADY_VM, 0)],
    "recreated": [(0, UNREADY_VM, 0), (60, {"ready": False, "uid": "another"}, 0)],
    "stopped by its user": [(0, UNREADY_VM, 0), (10, STOPPED, None), (100, UNREADY_VM, 0)],
    "terminating": [(0, UNREADY_VM, 0), (10, {"ready": False, "deleting": True}, None)],
    "a restart of a ready VM": [(0, UNREADY_VM, 0), (20, {}, None), (25, {"running": {"deleting": True}}, 0)],
    "a guest that ends while its VMI is deleted": [(0, UNREADY_VM, 0), (20, {}, None), (25, CRASHES, 25)],
    "a finished VMI with a ready condition": [(0, {"running": {"phase": "Failed"}}, 0)],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_p15_the_age_of_an_unready_period(history):
    seen = History()
    assert [seen.see(seconds, **changes) for seconds, changes, _ in history] == [age for *_, age in history]


def test_p15_an_ended_period_is_forgotten():
    history = History()
    for seconds, ready, is_known in ((0, False, True), (20, True, True), (49, True, True), (50, True, False)):
        history.see(seconds, ready=ready)
        assert bool(history.downtimes.periods) is is_known


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


def test_p15_a_note_of_another_vm_is_ignored():
    history = History(annotated(OWNER, UNREADY, {"0": ["another", at(400)], "1": ["uid-web-0", at(400)]}))
    assert history.see(0, ready=False) == 0


def test_p14_a_vm_that_crashed_is_available_after_thirty_seconds():
    history = History()
    for seconds, ready in ((0, False), (10, True), (12, False), (15, True)):
        history.see(seconds, ready=ready)
    for seconds, unavailable in ((44, 1), (45, 0)):
        history.see(seconds, running={"ready_for_s": -15})
        found = outage_of(one_by_one([history.machine]), history.seen.now)
        assert found.number == unavailable
        assert found.ends_at == (NOW + timedelta(seconds=45) if unavailable else None)
    history = History()
    history.see(0, ready=False)
    history.see(10)
    assert outage_of(one_by_one([history.machine]), history.seen.now).number == 0, "it started for the first time"


def test_p14_another_template_begins_another_time_for_the_rollout_but_not_for_healing():
    history = History()
    history.see(0, ready=False)
    assert (history.see(100, ready=False, revision="web-2"), history.stuck_s()) == (100, 0)
    assert (history.see(150, ready=False, revision="web-2"), history.stuck_s()) == (150, 50)


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


def test_p15_the_condition_of_the_vm_gives_the_age_after_a_restart_of_the_controller():
    owner = pool()
    [machine] = vms(owner, 0, ready=False, ready_for_s=400)
    assert member_unready_since(member(snapshot(owner, [machine]), "web-0")) == seconds_ago(400)


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


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"0": ["uid-web-0", "2026-08-01T11:00:00"]}', "[" * 100_000])
def test_p15_a_note_that_cannot_be_parsed_is_ignored(text):
    assert History(pool(annotations={UNREADY: text})).see(0, ready=False) == 0


def test_p15_the_rosters_keep_the_periods_of_a_pool_until_the_pool_is_deleted():
    caches = stores(OWNER, revisions=[revision(OWNER)])
    rules, versions = rules_of(caches), count(2)

    def see(seconds, *, ready):
        [machine] = vms(OWNER, 0, ready=ready, ready_for_s=0, version=str(next(versions)))
        caches.vms.apply(machine)
        caches.vmis.apply(vmi(machine, ready=ready, ready_for_s=0, version=str(next(versions))))
        now = NOW + timedelta(seconds=seconds)
        seen = rules.take_snapshot(OWNER.metadata.key, now=now, settled=True)
        return member_unready_since(member(seen, "web-0"))

    see(0, ready=False)
    assert see(90, ready=False) == NOW
    see(100, ready=True)
    see(130, ready=True)
    assert len(rules.rosters) == 0
    see(200, ready=False)
    assert len(rules.rosters) == 1
    rules.plan_absent(OWNER.metadata.key)
    assert len(rules.rosters) == 0


def test_p15_the_memory_contains_only_members():
    seen = periods_after(OWNER, [*vms(OWNER, 0, ready=False), vm("web-1", ready=False), vm("other", ready=False)])
    assert set(seen) == {"web-0"}
