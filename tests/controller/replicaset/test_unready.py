"""R4a: VMIs that run and are not ready are replaced, if the set has the annotation for it."""

import pytest

from controller.kubevirt.annotations import (
    EARLY_FAILURES,
    PROTECT,
    REPLACE_UNREADY_AFTER,
    TEMPLATE_HASH,
)
from controller.replicaset.back_off import annotation_of
from controller.replicaset.plan import plan
from controller.replicaset.status import outcome_notices
from controller.runtime.actions import Create, Delete, Done
from tests.builders import LABELS, replicaset, seconds_ago, snapshot, vmi
from tests.plans import deleted, histories
from tests.strategies import template_hash_of

CURRENT = {**LABELS, TEMPLATE_HASH: template_hash_of(replicaset())}


def unready(name="unready", *, running_s=301.0, before=0, **changes):
    """A VMI that has run for this time without being ready. Its condition Ready is five seconds older than the phase
    Running.
    """
    annotations = {EARLY_FAILURES: annotation_of(before, seconds_ago(900), seconds_ago(running_s))} if before else None
    state = {"ready": False, "ready_for_s": running_s + 5, "entered_s": {"Running": running_s}, "labels": CURRENT}
    return vmi(name, owner=replicaset(), **{"annotations": annotations, **state, **changes})


def ready(name="ready", **changes):
    return vmi(name, owner=replicaset(), labels=CURRENT, **changes)


def planned(*vmis, after="300", replicas=1, annotations=None, **circumstances):
    owner = replicaset(replicas=replicas, annotations={REPLACE_UNREADY_AFTER: after, **(annotations or {})})
    return plan(snapshot(owner, vmis, **circumstances))


def test_r4a_a_vmi_that_runs_unready_for_too_long_is_replaced_and_counts_as_an_early_failure():
    todo = planned(unready())
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Delete], [Create]]
    assert deleted(todo) == ["unready"]
    assert histories(todo) == [1]
    notice, _ = outcome_notices([Done(todo.actions[0])])
    message = "virtual machine unready is replaced: it is not ready for longer than 300 s"
    assert (notice.reason, notice.warning, notice.message) == ("UnreadyReplaced", True, message)


def test_r4a_without_the_annotation_no_unready_vmi_is_replaced():
    assert plan(snapshot(replicaset(replicas=1), [unready(running_s=90000)])).actions == ()


WAITS = {
    "it started": ({"running_s": 100}, 200),
    "the time before the phase Running does not count": ({"running_s": 100, "age_s": 9000, "ready_for_s": 9000}, 200),
    "it was ready until just now": ({"running_s": 9000, "ready_for_s": 3}, 297),
    "it is a replacement": ({"running_s": 305, "before": 1}, 5),
}


@pytest.mark.parametrize(("changes", "wait_s"), WAITS.values(), ids=WAITS)
def test_r4a_before_the_time_nothing_happens_and_the_pass_is_repeated_then(changes, wait_s):
    todo = planned(unready(**changes))
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
    assert deleted(planned(unready(**changes))) == []


def test_r4a_at_most_a_quarter_is_replaced_at_once_and_replacements_must_come_up_first():
    many = [unready(f"u-{number}") for number in range(8)]
    todo = planned(*many, replicas=8)
    assert deleted(todo) == ["u-0", "u-1"]
    assert todo.held == "6 VMIs that are not ready wait for the replacements of others"
    starting = [unready(f"r-{number}", before=1, phase="Scheduling", running_s=5) for number in range(2)]
    assert deleted(planned(*many[:6], *starting, replicas=8)) == []


@pytest.mark.parametrize("after", ["", "0", "-5", "soon", "1.5"])
def test_r4a_a_malformed_time_replaces_nothing(after):
    assert planned(unready(), after=after).actions == ()
