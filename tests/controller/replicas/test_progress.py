"""The progress deadline: the next check of a waiting rollout, and the report to the user (R14, P14)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import PROGRESS_DEADLINE
from controller.replicas.progress import watch_progress
from controller.replicas.settings import read_settings
from controller.runtime.actions import Notice, Plan, waiting
from informers.meta import ObjectMeta
from tests.builders import NOW, seconds_ago

MINUTE = timedelta(minutes=1)


def owner(text: str | None) -> ObjectMeta:
    return ObjectMeta(name="web", annotations=None if text is None else {PROGRESS_DEADLINE: text})


def watched(*stuck: tuple[float, str], progress: Plan | None = None, template: str = "t1") -> Plan:
    """The plan of a rollout with a deadline of one minute. Each VM in `stuck` has been unready for that number of
    seconds.
    """
    pairs = [(seconds_ago(seconds), name) for seconds, name in stuck]
    return watch_progress(progress or waiting("waits"), pairs, MINUTE, now=NOW, template=template)


DEADLINES = {"1": 1, "90": 90, "2147483647": 2147483647}
INVALID = [None, "0", "-5", "", "10m", "1.5", "2147483648", "soon" * 500]


@pytest.mark.parametrize(("text", "seconds"), [*DEADLINES.items(), *((text, 600) for text in INVALID)])
def test_r14_the_deadline_is_ten_minutes_if_the_owner_has_no_valid_one(text: str | None, seconds: int):
    assert read_settings(owner(text)).deadline == timedelta(seconds=seconds)


def test_p14_the_plan_of_a_rollout_that_is_not_stuck_is_unchanged():
    progress = replace(waiting("waits"), requeue_after_s=5)
    assert watched(progress=progress) is progress


def test_p14_before_the_deadline_of_the_oldest_vm_the_plan_is_requeued_for_the_deadline():
    plan = watched((10, "b"), (45, "a"), (30, "c"))
    assert (plan.notices, plan.requeue_after_s, plan.held) == ((), 15, "waits")


def test_p14_an_earlier_requeue_of_the_plan_stays():
    assert watched((10, "a"), progress=Plan(requeue_after_s=3)).requeue_after_s == 3
    assert watched((10, "a"), progress=Plan(requeue_after_s=55)).requeue_after_s == 50


def test_p14_a_node_clock_that_is_ahead_delays_the_plan_by_at_most_the_deadline():
    assert watched((-3600, "a")).requeue_after_s == 60


@pytest.mark.parametrize("seconds", [60, 61, 86400])
def test_p14_from_the_deadline_on_a_notice_names_the_stuck_vm(seconds: float):
    earlier = Notice(reason="Other", message="x")
    plan = watched((1, "b"), (seconds, "a"), progress=replace(waiting("waits"), notices=(earlier,)))
    assert plan.notices[0] is earlier
    [notice] = plan.notices[1:]
    assert notice.reason == "RolloutStalled"
    assert notice.warning
    assert notice.message == (
        "2 virtual machines block the rollout because they are not ready, a for longer than 60 seconds; "
        "no more are replaced until they are"
    )
    assert plan.requeue_after_s is None, "told once: there is nothing to wake up for"


def test_p14_a_stalled_rollout_is_reported_once_for_each_template():
    first, same, other = (
        watched((seconds, name), template=template).notices[0].once
        for seconds, name, template in ((60, "a", "t1"), (90, "b", "t1"), (60, "a", "t2"))
    )
    assert first == same != other
