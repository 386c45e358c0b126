"""P14, P15: the beginning and the end of an unready period, and its age after a restart of the controller."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import UNREADY
from controller.pool.members.downtime import stuck_since, unready_since
from controller.pool.members.rosters import Downtimes
from controller.pool.members.unready_periods import read_notes
from controller.pool.rollout.limits import count_unavailable
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
        since = unready_since(self.machine)
        return None if since is None else (now - since).total_seconds()

    def stuck_s(self):
        return (self.seen.now - stuck_since(self.seen, self.machine)).total_seconds()


def test_p15_a_ready_vm_has_no_period():
    history = History()
    assert history.see(0) is None
    assert history.downtimes.periods == {}


def test_p15_a_period_continues_while_the_condition_changes_its_reason():
    history = History()
    assert [history.see(seconds, ready=False) for seconds in (0, 100, 299)] == [0, 100, 299]


@pytest.mark.parametrize(("ready_s", "expected"), [(29, 49), (30, 0)])
def test_p15_a_period_ends_after_thirty_seconds_of_readiness(ready_s, expected):
    history = History()
    assert history.see(0, ready=False) == 0
    assert history.see(20) is None
    assert history.see(20 + ready_s) is None
    assert (history.downtimes.periods == {}) is (ready_s == 30)
    assert history.see(20 + ready_s, ready=False) == expected


def test_p15_a_period_ends_even_if_no_snapshot_shows_the_end():
    history = History()
    history.see(0, ready=False)
    history.see(20)
    assert history.see(50, ready=False) == 0


def test_p15_a_recreated_vm_begins_another_period():
    history = History()
    history.see(0, ready=False)
    assert history.see(60, ready=False, uid="another") == 0


def test_p15_a_vm_that_its_user_stopped_has_no_period():
    history = History()
    history.see(0, ready=False)
    assert history.see(10, ready=False, spec=vm_spec(run_strategy="Halted")) is None
    assert history.see(100, ready=False) == 0


def test_p15_a_terminating_vm_has_no_period():
    history = History()
    history.see(0, ready=False)
    assert history.see(10, ready=False, deleting=True) is None


def test_p15_a_restart_of_a_ready_vm_begins_another_period():
    """The guest ends while its VMI is being deleted. This is not a crash."""
    history = History()
    history.see(0, ready=False)
    history.see(20)
    assert history.see(25, running={"deleting": True}) == 0
    history = History()
    history.see(0, ready=False)
    history.see(20)
    assert history.see(25, running={"deleting": True, "phase": "Failed"}) == 25


def test_p14_a_vm_that_crashed_is_available_after_thirty_seconds():
    history = History()
    for seconds, ready in ((0, False), (10, True), (12, False), (15, True)):
        history.see(seconds, ready=ready)
    for seconds, unavailable in ((44, 1), (45, 0)):
        history.see(seconds, running={"ready_for_s": -15})
        found = count_unavailable(history.seen, (history.machine,), 0)
        assert found.unavailable == unavailable
        assert found.next_at == (NOW + timedelta(seconds=45) if unavailable else None)
    history = History()
    history.see(0, ready=False)
    history.see(10)
    assert count_unavailable(history.seen, (history.machine,), 0).unavailable == 0, "it started for the first time"


def test_p15_a_finished_vmi_is_not_ready_whatever_its_condition_says():
    history = History()
    assert history.see(0, running={"phase": "Failed"}) == 0


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
    assert unready_since(member(snapshot(owner, [machine]), "web-0")) == seconds_ago(400)


def test_p15_the_note_gives_the_age_after_a_restart_of_the_controller():
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    assert history.see(0, ready=False) == 400
    assert history.see(60, ready=False) == 460


def test_p15_a_note_of_another_vm_is_ignored():
    history = History(annotated(OWNER, UNREADY, {"0": ["another", at(400)], "1": ["uid-web-0", at(400)]}))
    assert history.see(0, ready=False) == 0


def test_p15_a_stale_note_does_not_begin_another_period():
    """While a pool is paused, the controller does not write the annotation with the unready periods.

    After the VM is ready again, the entry of the VM is stale.
    """
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    history.see(0, ready=False)
    history.see(10)
    history.see(4000)
    assert history.see(4010, ready=False) == 0


@pytest.mark.parametrize(("ready_s", "expected"), [(29, 429), (30, 0)])
def test_p15_after_a_restart_a_vm_that_was_ready_for_long_begins_another_period(ready_s, expected):
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    history.see(0, running={"ready_for_s": 0})
    assert history.see(ready_s, ready=False) == expected
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    history.see(0, running={"ready_for_s": 30})
    assert history.see(1, ready=False) == 0


@pytest.mark.parametrize(
    ("of_vm", "of_vmi", "expected"),
    [
        ({}, {"age_s": 400 - 30}, 400),
        ({}, {"age_s": 400 - 31}, 0),
        ({"failures": 1}, {"age_s": 5}, 400),
    ],
    ids=["the VMI of the note", "another VMI", "another VMI after a failed start"],
)
def test_p15_a_vm_that_was_restarted_does_not_get_the_age_of_a_note(of_vm, of_vmi, expected):
    history = History(noted(OWNER, *vms(OWNER, 0), 400))
    assert history.see(0, ready=False, running=of_vmi, **of_vm) == expected


def test_p15_the_age_is_at_most_the_age_of_the_vm():
    history = History(noted(OWNER, *vms(OWNER, 0), 99999))
    assert history.see(0, ready=False, age_s=70) == 70


def test_p15_a_time_in_the_future_counts_as_now():
    assert History(noted(OWNER, *vms(OWNER, 0), -200)).see(0, ready=False) == 0
    assert read_notes(noted(OWNER, *vms(OWNER, 0), -301).metadata, NOW) == {}


@given(st.dictionaries(st.integers(-3, 3).map(str), json_values | st.tuples(st.just("uid-web-0"), json_values)))
def test_p15_every_value_of_the_note_gives_an_age(value):
    history = History(annotated(OWNER, UNREADY, value))
    assert history.see(0, ready=False) >= 0


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"0": ["uid-web-0", "2026-08-01T11:00:00"]}', "[" * 100_000])
def test_p15_a_note_that_cannot_be_parsed_is_ignored(text):
    history = History(pool(annotations={UNREADY: text}))
    assert history.see(0, ready=False) == 0


def test_p15_the_rosters_keep_the_periods_of_a_pool_until_the_pool_is_deleted():
    caches = stores(OWNER, revisions=[revision(OWNER)])
    rules, versions = rules_of(caches), count(2)

    def see(seconds, *, ready):
        [machine] = vms(OWNER, 0, ready=ready, ready_for_s=0, version=str(next(versions)))
        caches.vms.apply(machine)
        caches.vmis.apply(vmi(machine, ready=ready, ready_for_s=0, version=str(next(versions))))
        now = NOW + timedelta(seconds=seconds)
        seen = rules.take_snapshot(OWNER.metadata.key, now=now, settled=True)
        return unready_since(member(seen, "web-0"))

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
