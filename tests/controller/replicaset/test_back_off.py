"""R4a: which VMIs count as early failures, and when their replacements are created."""

import json
from datetime import timedelta

import pytest

from controller.kubevirt.annotations import EARLY_FAILURES, PROTECT, TEMPLATE_HASH
from controller.replicaset.back_off import MAX_EVIDENCE, Trial, annotation_of, delay_after, trial_of
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status
from controller.runtime.actions import Create
from tests.builders import LABELS, NOW, replicaset, seconds_ago, snapshot, vmi
from tests.plans import deleted, histories
from tests.strategies import template_of

TEMPLATE = template_of(replicaset())
CURRENT = {**LABELS, TEMPLATE_HASH: TEMPLATE.hash}


def failed(name="failed", *, before=0, ago_s=1.0, started_ago_s=None, phase="Failed", **changes):
    """A VMI that failed `ago_s` seconds ago. The argument `before` is the number of consecutive earlier failures."""
    entered = {phase: ago_s} if started_ago_s is None else {"Running": started_ago_s, phase: ago_s}
    annotations = {EARLY_FAILURES: annotation_of(before, seconds_ago(900), seconds_ago(ago_s + 2))} if before else None
    state = {"phase": phase, "ready": False, "age_s": (started_ago_s or ago_s) + 2, "entered_s": entered}
    return vmi(name, owner=replicaset(), **{"labels": CURRENT, "annotations": annotations, **state, **changes})


def alive(name="alive", *, before=0, ready=True, at_s=60.0, **changes):
    annotations = {EARLY_FAILURES: annotation_of(before, seconds_ago(900), seconds_ago(at_s))} if before else None
    state = {"labels": CURRENT, "annotations": annotations, "ready": ready}
    return vmi(name, owner=replicaset(), **{**state, **changes})


def planned(*vmis, replicas=1, **changes):
    return plan(snapshot(replicaset(replicas=replicas, **changes), vmis))


def created(todo) -> int:
    return sum(isinstance(action, Create) for action in todo.actions)


def condition(*vmis, replicas=1, **changes):
    status = next_status(snapshot(replicaset(replicas=replicas), vmis, **changes), ())
    return next((each for each in status.conditions or () if each.type == "ReplicaBackOff"), None)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300), (10**9, 300)]
)
def test_r4a_the_delay_doubles_from_10_seconds_to_5_minutes(failures, seconds):
    assert delay_after(failures) == timedelta(seconds=seconds)


def test_r4a_the_second_failure_in_a_row_waits_and_the_failed_vmi_stays():
    todo = planned(failed(before=1, ago_s=3))
    assert todo.actions == ()
    assert todo.held == "back-off: 1 create waits, because VMIs of the template fail"
    assert todo.requeue_after_s == 7
    (notice,) = todo.notices
    assert (notice.reason, notice.warning) == ("BackOff", True)
    assert notice.message == (
        "virtual machine failed failed soon after it started; failures in a row: 2; "
        "the next virtual machine is created at 12:00:07 UTC"
    )


@pytest.mark.parametrize(("ready_for_s", "since_s"), [(1, 1), (95, 102)], ids=["until its end", "never"])
def test_r4a_the_row_of_a_vmi_that_was_ready_begins_with_its_end(ready_for_s: float, since_s: float):
    create, _ = planned(failed(ago_s=1, started_ago_s=90, age_s=102, ready_for_s=ready_for_s)).actions
    noted = trial_of(vmi(annotations=json.loads(create.body)["metadata"]["annotations"]))
    assert noted == Trial(1, seconds_ago(since_s), NOW)


def test_r4a_a_row_of_failures_is_reported_once():
    early, late = planned(failed(before=1)), planned(failed("another", before=5))
    assert early.notices[0].once == late.notices[0].once


NO_EARLY_FAILURES = {
    "it finished on purpose": {"phase": "Succeeded", "started_ago_s": 61.5},
    "its node was lost": {"status_reason": "NodeUnresponsive"},
    "its state is unknown": {"phase": "Unknown"},
    "it had run for ten minutes": {"started_ago_s": 601.0},
    "another template": {"labels": {**LABELS, TEMPLATE_HASH: "older"}},
    "its record is older than half an hour": {"ago_s": 1801.0},
    "its launcher Pod terminates after a day": {
        "phase": "Running",
        "reason": "PodTerminating",
        "ready_for_s": 1,
        "entered_s": {"Running": 86400.0},
        "age_s": 86402,
    },
    "it is being deleted": {"deleting": True},
}


@pytest.mark.parametrize("changes", NO_EARLY_FAILURES.values(), ids=NO_EARLY_FAILURES)
def test_r4a_a_vmi_that_did_not_fail_early_is_replaced_at_once_without_a_history(changes):
    assert histories(planned(failed(before=6, **changes))) == [0]


EARLY_FAILURES_TOO = {
    "it never ran": {},
    "it ran for less than ten minutes": {"started_ago_s": 590.0},
    "it crashed while it was ready": {"started_ago_s": 5.0, "ready": True},
    "its launcher Pod terminates": {
        "phase": "Running",
        "reason": "PodTerminating",
        "ready_for_s": 1,
        "entered_s": {"Running": 590.0},
        "age_s": 592,
    },
    "KubeVirt keeps no times": {"entered_s": None, "ready_for_s": 1},
    "its guest ended at once": {"phase": "Succeeded", "started_ago_s": 59.0},
    "it was taken over": {"labels": LABELS},
}


@pytest.mark.parametrize("changes", EARLY_FAILURES_TOO.values(), ids=EARLY_FAILURES_TOO)
def test_r4a_these_are_early_failures(changes):
    assert created(planned(failed(before=6, **changes))) == 0
    assert histories(planned(failed(**changes))) == [1]


def several(number: int, **changes) -> list:
    return [failed(f"f-{each:02}", **{"before": 2, "ago_s": 30, **changes}) for each in range(number)]


STARTING = alive("starting", before=3, ready=False, at_s=301, phase="Scheduling")
IN_A_ROW = [failed(f"f-{number}", before=number) for number in range(1, 5)]
DONE = vmi("done", owner=replicaset(), labels=CURRENT, phase="Succeeded")
PLANS = {
    "after the delay the failed VMI is replaced": (1, [failed(before=4, ago_s=80)], [5], ["failed"]),
    "the loss of another VMI is replaced at once": (4, [failed(before=5), alive("a"), alive("b")], [0], []),
    "new VMIs come at once while others are ready": (9, [failed(before=5), alive()], [0] * 7, []),
    "once a VMI is ready all others follow": (8, [*several(5), alive(before=3)], [3] * 5 + [0] * 2, several(5)),
    "VMIs that succeed are not slowed down": (4, [failed(before=5), DONE], [0] * 3, ["done"]),
    "while nothing is ready only a few failed VMIs stay": (30, several(30, ago_s=1), [], several(30)[MAX_EVIDENCE:]),
    "scale-in deletes failed VMIs without replacement": (3, [*IN_A_ROW, alive()], [], IN_A_ROW[:2]),
    "scale-in to the VMIs that are left": (1, [*IN_A_ROW, alive()], [], IN_A_ROW),
    "a protected failed VMI stays": (1, [failed(before=1, ago_s=11, annotations={PROTECT: "true"})], [1], []),
    "a replacement that does not come up": (8, [failed(before=2, ago_s=400), STARTING], [3], ["failed"]),
    "only the replacement is left": (8, [STARTING], [0], []),
}


@pytest.mark.parametrize(("replicas", "vmis", "before", "leaves"), PLANS.values(), ids=PLANS)
def test_r4a_the_replacements_and_deletes_of_a_plan(replicas, vmis, before, leaves):
    todo = planned(*vmis, replicas=replicas)
    assert histories(todo) == before
    assert deleted(todo) == [each if isinstance(each, str) else each.metadata.name for each in leaves]


def test_r4a_each_failed_vmi_waits_for_its_own_delay_while_others_are_ready():
    todo = planned(failed("a", before=5), failed("b", before=1, ago_s=11), failed("c"), alive(), replicas=4)
    assert sorted(histories(todo)) == [1, 2]
    assert deleted(todo) == ["b", "c"]
    assert todo.requeue_after_s == 159


def test_r4a_if_no_vmi_of_the_template_is_ready_one_is_tried_at_a_time():
    broken = [failed(f"f-{number}", before=2, ago_s=30) for number in range(5)]
    todo = planned(*broken, replicas=8)
    assert histories(todo) == [3]
    assert deleted(todo) == ["f-0"]
    assert todo.held == "back-off: 7 creates wait, because VMIs of the template fail"
    starting = alive("starting", before=3, ready=False, at_s=5, phase="Scheduling")
    waiting = planned(*broken[1:], starting, replicas=8)
    assert waiting.actions == ()
    assert waiting.requeue_after_s == 295


def test_r4a_guests_that_end_at_once_are_replaced_one_at_a_time():
    ended = [failed(f"f-{number}", before=1, ago_s=30, phase="Succeeded", started_ago_s=33) for number in range(5)]
    todo = planned(*ended, replicas=5)
    assert (created(todo), histories(todo)) == (1, [2])
    assert "f-0 ended soon after it started" in planned(failed("f-0", before=1, phase="Succeeded")).notices[0].message


NUMBERS = ['{"failures":"x"}', '{"failures":-1}', '{"failures":1e99}', '{"failures":3,"at":"soon"}']
RUBBISH = ["", "3", "[]", "{}", "null", *NUMBERS, "[" * 10**5, "\ud800"]


@pytest.mark.parametrize("text", RUBBISH, ids=range(len(RUBBISH)))
def test_r4a_a_malformed_record_counts_as_none(text):
    one = vmi("one", owner=replicaset(), labels=CURRENT, annotations={EARLY_FAILURES: text})
    assert trial_of(one) == Trial()
    assert histories(planned(failed(annotations={EARLY_FAILURES: text}))) == [1]


def test_r4a_a_clock_that_is_behind_does_not_skip_the_delay():
    """KubeVirt writes the times in a VMI. The controller, with another clock, writes the times in the annotation."""
    record = {EARLY_FAILURES: annotation_of(5, seconds_ago(500), seconds_ago(1))}
    todo = planned(failed(ago_s=7200, annotations=record))
    assert (created(todo), todo.requeue_after_s) == (0, 159)


@pytest.mark.parametrize("ahead_s", [60, 7200])
def test_r4a_a_clock_that_is_ahead_does_not_prolong_the_delay(ahead_s):
    record = {EARLY_FAILURES: annotation_of(5, seconds_ago(500), seconds_ago(1))}
    todo = planned(failed(ago_s=-ahead_s, annotations=record))
    assert created(todo) == 0
    assert todo.requeue_after_s <= 160


NO_BACK_OFF = {
    "no failure": [alive()],
    "the first failure": [failed()],
    "the first replacement": [alive(before=1, ready=False)],
    "a replacement that is ready": [alive(before=5)],
    "a failure without a missing replica": [failed(before=5), alive()],
}


@pytest.mark.parametrize("vmis", NO_BACK_OFF.values(), ids=NO_BACK_OFF)
def test_r4a_a_set_without_delayed_replacements_has_no_condition(vmis):
    assert condition(*vmis) is None
