"""The number of members that a set or pool should have, the delay of a release, and the progress deadline."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import PROGRESS_DEADLINE
from controller.kubevirt.limits import Template
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.replicas.notes import plan_limit, watch_progress
from controller.replicas.releases import RELEASE_DELAY, is_young
from controller.replicas.settings import read_settings
from controller.replicas.target import Target
from controller.runtime.actions import Notice, Patch, Plan, waiting
from informers.meta import ObjectMeta
from tests.builders import NOW, seconds_ago, vmi
from tests.pool_builders import pool, snapshot, vm, vms


@pytest.mark.parametrize(
    ("parts", "numbers"),
    [
        ({"replicas": 3}, (3, 3, 3)),
        ({"replicas": 3, "surge": 1}, (4, 3, 3)),
        ({"replicas": 3, "substitutes": 2}, (5, 3, 3)),
        ({"replicas": 9, "limit": 5}, (5, 5, 5)),
        ({"replicas": 9, "limit": 5, "existing": 7}, (7, 7, 7)),
        ({"replicas": 3, "young": 1, "existing": 2}, (2, 2, 3)),
        ({"replicas": 3, "young": 1, "existing": 3}, (3, 3, 3)),
        ({"replicas": 0, "young": 2, "existing": 1}, (0, 0, 0)),
    ],
)
def test_the_number_is_the_sum_of_its_parts_within_the_limit(parts: dict[str, int], numbers: tuple[int, int, int]):
    target = Target(template=Template(), **parts)
    assert (target.wanted, target.regular, target.kept) == numbers


@pytest.mark.parametrize("age_s", [5, 3600])
def test_a_pool_is_scaling_while_the_plan_releases_a_vm_or_waits_for_it(age_s: float):
    owner = pool(replicas=2)
    others = vms(owner, 0, 1)
    seen = snapshot(owner, [*others, vm("web-2", owner=owner, labels={"app": "other"}, age_s=age_s)])
    todo = plan(seen)
    assert bool(todo.actions) is (age_s > 30)
    assert ("the release of" in todo.held) is (age_s < 30)
    assert next_status(seen, ()).printable_status == "Scaling"
    assert next_status(snapshot(owner, others), ()).printable_status == "Running"


DELAY_S = RELEASE_DELAY.total_seconds()


@pytest.mark.parametrize(("age_s", "young"), [(0, True), (29, True), (30, False), (-1, True), (-3600, False)])
def test_a_wrong_clock_makes_no_member_young_for_long(age_s: float, young: bool) -> None:
    assert is_young(vmi(age_s=age_s).metadata, NOW) is young


def test_p2_the_gaps_of_a_scale_in_do_not_delay_a_release() -> None:
    owner = pool(replicas=2)
    todo = plan(snapshot(owner, (*vms(owner, 0), *vms(owner, 99, labels={"app": "changed"}, age_s=DELAY_S))))
    assert [each.key.name for each in todo.actions if isinstance(each, Patch) and each.resource is VMS] == ["web-99"]


def test_p2_the_next_reconciliation_comes_when_the_first_young_vm_may_be_released() -> None:
    owner = pool(replicas=3)
    changed = {"labels": {"app": "changed"}}
    machines = (*vms(owner, 0), *vms(owner, 1, age_s=20, **changed), *vms(owner, 2, age_s=5, **changed))
    todo = plan(snapshot(owner, machines))
    assert (todo.actions, todo.requeue_after_s) == ((), DELAY_S - 20)
    assert todo.held == "the release of web-1 waits, and 1 more"


OWNER = ObjectMeta(name="huge", namespace="ns", generation=7)


def test_too_many_replicas_are_reported_once_for_each_generation() -> None:
    [notice] = plan_limit(OWNER, 2**31 - 1, 0, 10_000).notices
    assert notice.message == "spec.replicas is 2147483647: at most 10000 are created (--max-replicas)"
    assert (notice.reason, notice.once, notice.warning) == ("ReplicasLimited", "generation-7", True)
    assert not plan_limit(OWNER, 10_000, 0, 10_000).notices
    assert not plan_limit(OWNER, 2**31 - 1, 0, 0).notices


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


def test_p14_before_the_deadline_of_the_oldest_vm_the_plan_is_requeued_for_the_deadline():
    plan = watched((10, "b"), (45, "a"), (30, "c"))
    assert (plan.notices, plan.requeue_after_s, plan.held) == ((), 15, "waits")


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
