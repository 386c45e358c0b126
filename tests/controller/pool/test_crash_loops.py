"""P14, P15: a crash loop does not reset the age of a VM's unready period. The loops were recorded on KubeVirt."""

from datetime import timedelta

import pytest

from controller.kubevirt import vms
from controller.kubevirt.annotations import HEALED, REPLACE_UNREADY_AFTER
from controller.pool.members.ledger import member_stuck_since, member_unready_since
from controller.runtime.actions import Delete, Patch
from tests.pool_builders import member, pool
from tests.pool_replay import Moment, Replay, moments

PATIENT = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "60s"}
PAUSE = timedelta(seconds=4)
RECORDINGS = ["vm-crash", "vm-fail-start"]


def single(**changes):
    return pool(replicas=1, **changes)


def healings(replay: Replay, name: str) -> list[tuple[Moment, Delete]]:
    return [
        (moment, action)
        for moment in moments(name, replay.owner)
        for action in replay.run_pass(moment).actions
        if isinstance(action, Delete)
    ]


def announcements(replay: Replay) -> list[Patch]:
    return [each for each in replay.writes if HEALED.encode() in each.body]


@pytest.mark.parametrize("name", RECORDINGS)
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
        condition_since = vms.unready_since(moment.vm)
        if condition_since is not None:
            oldest_condition_s = max(oldest_condition_s, (moment.now - condition_since).total_seconds())
    assert moment.seconds > 72
    assert oldest_condition_s < 60


def test_p15_a_vm_that_fails_before_it_runs_is_healed_after_the_minimum_failing_time():
    """KubeVirt resets the time of the VM's condition Ready at each start. The pool must still count the whole failing
    time.
    """
    moment, delete = healings(Replay(single(autohealing=PATIENT)), "vm-fail-start")[0]
    assert 63 <= moment.seconds < 66
    assert delete.why == (
        "healing: CrashLoopBackOff, and it has not been ready for 64 s, the limit is 60 s; "
        "it failed to start 2 times in a row, the limit is 99"
    )


def test_p15_a_vm_that_fails_before_it_runs_is_healed_three_seconds_after_its_third_failure():
    replay = Replay(single(autohealing={"startUpFailureThreshold": 3, "minFailingToStartDuration": "1h"}))
    assert healings(replay, "vm-fail-start") == []
    *_, last = moments("vm-fail-start", replay.owner)
    assert len(announcements(replay)) == 1
    [delete] = replay.run_pass(last._replace(now=last.now.replace(microsecond=0) + PAUSE)).actions
    assert isinstance(delete, Delete)
    assert delete.why.startswith("healing: it failed to start 3 times in a row, the limit is 3; ")


@pytest.mark.parametrize("stop", [31, 50, 59])
def test_p15_a_restart_of_the_controller_does_not_reset_the_age_of_a_crash_loop(stop):
    replay = Replay(single(autohealing=PATIENT))
    found = []
    for moment in moments("vm-fail-start", replay.owner):
        if stop <= moment.seconds:
            replay.restart()
        found += [moment for each in replay.run_pass(moment).actions if isinstance(each, Delete)]
    assert 63 <= found[0].seconds < 66


def test_p15_a_guest_that_crashes_after_each_start_is_not_healed_by_autohealing():
    """KubeVirt counts no failed start and reports no broken state, because the guest ran."""
    replay = Replay(single(autohealing={"startUpFailureThreshold": 1, "minFailingToStartDuration": "0s"}))
    assert healings(replay, "vm-crash") == []
    assert announcements(replay) == []


def test_p15_a_guest_that_crashes_after_each_start_is_replaced_if_the_pool_requests_it():
    replay = Replay(single(annotations={REPLACE_UNREADY_AFTER: "60"}))
    moment, delete = healings(replay, "vm-crash")[0]
    assert 63 <= moment.seconds < 70
    assert delete.why.startswith("healing: it runs, but has not been ready for 6")
