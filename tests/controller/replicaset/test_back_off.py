"""R4a: which VMIs count as early failures, and when they and VMIs that run and are not ready are replaced."""

import json
from datetime import timedelta

import pytest

from controller.kubevirt.annotations import EARLY_FAILURES, PROTECT, REPLACE_UNREADY_AFTER, TEMPLATE_HASH
from controller.kubevirt.resources import VMIS
from controller.replicaset.back_off import MAX_EVIDENCE, Trial, annotation_of, delay_after, trial_of
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status, outcome_notices
from controller.runtime.actions import Create, Delete, Done
from controller.runtime.result import After
from informers.meta import ObjectKey
from tests.builders import LABELS, NOW, REPLICASETS, replicaset, seconds_ago, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.fakes.rules import wire
from tests.fakes.virtual_time import run
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


POD_TERMINATES = {"phase": "Running", "reason": "PodTerminating", "ready_for_s": 1}
NO_EARLY_FAILURES = {
    "it finished on purpose": {"phase": "Succeeded", "started_ago_s": 61.5},
    "its node was lost": {"status_reason": "NodeUnresponsive"},
    "its state is unknown": {"phase": "Unknown"},
    "it had run for ten minutes": {"started_ago_s": 601.0},
    "another template": {"labels": {**LABELS, TEMPLATE_HASH: "older"}},
    "its record is older than half an hour": {"ago_s": 1801.0},
    "its launcher Pod terminates after a day": {**POD_TERMINATES, "entered_s": {"Running": 86400.0}, "age_s": 86402},
    "it is being deleted": {"deleting": True},
}


@pytest.mark.parametrize("changes", NO_EARLY_FAILURES.values(), ids=NO_EARLY_FAILURES)
def test_r4a_a_vmi_that_did_not_fail_early_is_replaced_at_once_without_a_history(changes):
    assert histories(planned(failed(before=6, **changes))) == [0]


EARLY_FAILURES_TOO = {
    "it never ran": {},
    "it ran for less than ten minutes": {"started_ago_s": 590.0},
    "it crashed while it was ready": {"started_ago_s": 5.0, "ready": True},
    "its launcher Pod terminates": {**POD_TERMINATES, "entered_s": {"Running": 590.0}, "age_s": 592},
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


def unready(name="unready", *, running_s=301.0, before=0, **changes):
    """A VMI that has run for this time without being ready. Its condition Ready is five seconds older than the phase
    Running.
    """
    annotations = {EARLY_FAILURES: annotation_of(before, seconds_ago(900), seconds_ago(running_s))} if before else None
    state = {"ready": False, "ready_for_s": running_s + 5, "entered_s": {"Running": running_s}, "labels": CURRENT}
    return vmi(name, owner=replicaset(), **{"annotations": annotations, **state, **changes})


def ready(name="ready", **changes):
    return vmi(name, owner=replicaset(), labels=CURRENT, **changes)


def replacing(*vmis, after="300", replicas=1, annotations=None, **circumstances):
    owner = replicaset(replicas=replicas, annotations={REPLACE_UNREADY_AFTER: after, **(annotations or {})})
    return plan(snapshot(owner, vmis, **circumstances))


def test_r4a_a_vmi_that_runs_unready_for_too_long_is_replaced_and_counts_as_an_early_failure():
    todo = replacing(unready())
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Delete], [Create]]
    assert deleted(todo) == ["unready"]
    assert histories(todo) == [1]
    notice, _ = outcome_notices([Done(todo.actions[0])])
    message = "virtual machine unready is replaced: it is not ready for longer than 300 s"
    assert (notice.reason, notice.warning, notice.message) == ("UnreadyReplaced", True, message)


def test_r4a_without_the_annotation_no_unready_vmi_is_replaced():
    assert plan(snapshot(replicaset(replicas=1), [unready(running_s=90000)])).actions == ()


UNREADY_WAITS = {
    "it started": ({"running_s": 100}, 200),
    "the time before the phase Running does not count": ({"running_s": 100, "age_s": 9000, "ready_for_s": 9000}, 200),
    "it was ready until just now": ({"running_s": 9000, "ready_for_s": 3}, 297),
    "it is a replacement": ({"running_s": 305, "before": 1}, 5),
}


@pytest.mark.parametrize(("changes", "wait_s"), UNREADY_WAITS.values(), ids=UNREADY_WAITS)
def test_r4a_before_the_time_nothing_happens_and_the_pass_is_repeated_then(changes, wait_s):
    todo = replacing(unready(**changes))
    assert (todo.actions, todo.requeue_after_s) == ((), wait_s)


NOT_REPLACED = {
    "ready": {"ready": True},
    "not running": {"phase": "Scheduled"},
    "protected": {"annotations": {PROTECT: "true"}},
    "being migrated": {"migrating": True},
    "being deleted": {"deleting": True},
}


@pytest.mark.parametrize("changes", NOT_REPLACED.values(), ids=NOT_REPLACED)
def test_r4a_these_vmis_are_not_replaced(changes):
    assert deleted(replacing(unready(**changes))) == []


def test_r4a_at_most_a_quarter_is_replaced_at_once_and_replacements_must_come_up_first():
    many = [unready(f"u-{number}") for number in range(8)]
    todo = replacing(*many, replicas=8)
    assert deleted(todo) == ["u-0", "u-1"]
    assert todo.held == "6 VMIs that are not ready wait for the replacements of others"
    starting = [unready(f"r-{number}", before=1, phase="Scheduling", running_s=5) for number in range(2)]
    assert deleted(replacing(*many[:6], *starting, replicas=8)) == []


@pytest.mark.parametrize("after", ["", "0", "-5", "soon", "1.5"])
def test_r4a_a_malformed_time_replaces_nothing(after):
    assert replacing(unready(), after=after).actions == ()


STEP_S = 1.0


class FailingLauncher:
    """Acts as virt-controller and the nodes: each VMI fails one second after its creation.

    With `strips`, a policy takes the number of failures off each VMI.
    """

    def __init__(self, replicas: int, *, strips: bool = False) -> None:
        self.strips = strips
        self.simulation = ReplicaSetSimulation(latency_s=0)
        self.simulation.server.put(REPLICASETS, replicaset_document(replicas=replicas))
        self._born: dict[str, float] = {}
        """The time in seconds of each creation, by UID."""

    @property
    def created(self) -> int:
        return len(self._born)

    async def live(self, seconds: float) -> None:
        end = self.simulation.seconds() + seconds
        while (now := self.simulation.seconds()) < end:
            before = len(self.simulation.server.events)
            self.simulation.process.catch_up()
            report = await self.simulation.reconcile()
            if self._act(now) or len(self.simulation.server.events) > before:
                self.simulation.advance(STEP_S)
                continue
            wait_s = report.result.seconds if isinstance(report.result, After) else end - now
            self.simulation.advance(max(min(wait_s, end - now), 0.001))

    def _act(self, now: float) -> bool:
        """Give each VMI its phase. Return True if a VMI will fail soon."""
        soon = False
        for name, document in self.simulation.server.documents(VMIS).items():
            born = self._born.setdefault(document["metadata"]["uid"], now)
            phase, times = "Failed" if now - born >= STEP_S else "Scheduling", document.get("status", {})
            soon = soon or phase == "Scheduling"
            if times.get("phase") != phase:
                entered = {"phase": phase, "phaseTransitionTimestamp": wire(self.simulation.now)}
                status = {"phase": phase, "phaseTransitionTimestamps": [entered]}
                notes = {"metadata": {"annotations": {EARLY_FAILURES: None}}} if self.strips else {}
                self.simulation.server.change(VMIS, ObjectKey("default", name), {"status": status, **notes})
        return soon

    def reported(self, reason: str) -> int:
        """The number of different Events with this reason. Notices with equal `once` give one Event."""
        return len({each.once for each in self.simulation.process.recorder.published if each.reason == reason})


@pytest.mark.no_cover  # hours of the same few lines
@pytest.mark.parametrize(("replicas", "strips"), [(1, False), (3, False), (20, False), (3, True)])
def test_r4a_a_template_that_always_fails_makes_few_vmis_in_an_hour(replicas, strips):
    """Each VMI is replaced once without a delay. Then one VMI is tried at a time, with delays from 10 s to 300 s."""
    launcher = FailingLauncher(replicas, strips=strips)
    run(launcher.live(3600.0))
    assert 2 * replicas + 14 <= launcher.created <= 2 * replicas + 18
    assert len(launcher.simulation.members) <= replicas
    assert launcher.reported("BackOff") == 1
    assert "ReplicaBackOff" in launcher.simulation.conditions


def test_r4a_a_restart_of_the_controller_forgets_nothing():
    launcher = FailingLauncher(3)
    for _ in range(60):
        run(launcher.live(60))
        launcher.simulation.restart()
    assert launcher.created <= 2 * 3 + 18
