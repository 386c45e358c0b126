"""P15: what keeps healing from doing harm: a few at a time, and nobody where too many fail together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import MAX_UNHEALTHY, MIN_READY, REVISION_NAME
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.runtime.plan import Delete, Plan
from tests.pool_builders import LABELS, pool, revision, snapshot, vm_spec, vmi, vms
from tests.pool_healing import (
    FAILING,
    STUCK,
    break_one,
    entry,
    heal,
    healed,
    healing_pool,
    reasons,
)
from tests.pool_simulation import PoolSimulation


def is_up(simulation, name) -> bool:
    conditions = simulation.vmis.get(name, {}).get("status", {}).get("conditions", ())
    return any(each["status"] == "True" for each in conditions)


def test_p15_no_more_than_max_unavailable_are_healed_at_once():
    owner = healing_pool(maxUnavailable=2)
    todo = heal(owner, *vms(owner, 6, 5, 1, **FAILING), *vms(owner, 0, 2, 3, 4, 7, 8, 9))
    assert healed(todo) == ["web-1", "web-5"]
    assert todo.held == "healing: 1 wait for others to come up"


def test_p15_who_fails_the_longest_comes_first():
    owner = healing_pool(maxUnavailable=1)
    machines = (*vms(owner, 0, ready_for_s=400, **STUCK), *vms(owner, 1, ready_for_s=500, **STUCK))
    assert healed(heal(owner, *machines, *vms(owner, *range(2, 10)))) == ["web-1"]


def test_p15_who_was_not_tried_yet_comes_before_whom_it_did_not_help():
    owner = healing_pool(maxUnavailable=1, healed={0: entry(count=2, seconds=600)})
    assert healed(heal(owner, *vms(owner, 0, 1, **FAILING), *vms(owner, *range(2, 10)))) == ["web-1"]


def test_p15_no_more_than_the_burst_are_healed_in_a_pass():
    owner = healing_pool()
    assert healed(heal(owner, *vms(owner, 0, 1, 2, **FAILING), *vms(owner, *range(3, 10)), burst=2)) == [
        "web-0",
        "web-1",
    ]


ON_THE_WAY = {
    "going": {"uid": "healed", "ready": False, "foreground": True},
    "starting": {"ready": False, "printable": "Starting"},
    "not looked at yet": {"ready": None, "printable": None},
    "started late, since its disks took long to go": {"ready": False, "printable": "Starting", "age_s": 60},
}
NOT_ON_THE_WAY = {
    "back": {},
    "not deleted after all": {"uid": "healed", "ready": False, "printable": "Starting"},
    "made anew, and deleted by its user": {"ready": False, "printable": "Starting", "deleting": True},
    "made anew, and stopped by its user": {"ready": False, "spec": vm_spec(run_strategy="Halted")},
}


@pytest.mark.parametrize("changes", ON_THE_WAY.values(), ids=ON_THE_WAY)
def test_p15_who_is_on_the_way_down_or_up_again_uses_up_the_allowance(changes):
    seconds = 900 if "age_s" in changes else 60
    owner = healing_pool(maxUnavailable=1, healed={0: entry("healed", seconds=seconds)})
    todo = heal(owner, *vms(owner, 0, **changes), *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))
    assert (healed(todo), todo.held) == ([], "healing: 1 wait for others to come up")


@pytest.mark.parametrize("changes", NOT_ON_THE_WAY.values(), ids=NOT_ON_THE_WAY)
def test_p15_who_is_not_on_the_way_holds_nobody_up(changes):
    owner = healing_pool(maxUnavailable=1, healed={0: entry("healed", seconds=60)})
    todo = heal(owner, *vms(owner, 0, **changes), *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))
    assert healed(todo) == ["web-1"]


def test_p15_who_is_gone_and_not_made_anew_uses_up_the_allowance():
    owner = healing_pool(replicas=10, maxUnavailable=1, healed={0: entry()})
    assert healed(heal(owner, *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))) == []


def test_p15_who_was_healed_and_then_scaled_in_holds_nobody_up():
    owner = healing_pool(replicas=9, maxUnavailable=1, healed={9: entry()})
    assert healed(heal(owner, *vms(owner, 1, **FAILING), *vms(owner, 0, *range(2, 9)))) == ["web-1"]


def test_p15_who_does_not_come_up_in_five_minutes_holds_nobody_up_any_longer():
    """Nothing happens to it then, so a timer has to wake the pool."""
    for lasting, expected in ((299, []), (300, ["web-1"])):
        owner = healing_pool(maxUnavailable=1, healed={0: entry(seconds=lasting)})
        starting = vms(owner, 0, ready=False, printable="Starting")
        todo = heal(owner, *starting, *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))
        assert healed(todo) == expected
        assert todo.requeue_after_s == (None if expected else 1)


def test_p14_p15_who_is_made_anew_counts_as_up_once_ready_for_long_enough():
    for lasting, expected in ((89, []), (90, ["web-1"])):
        owner = healing_pool(maxUnavailable=1, healed={0: entry(seconds=400)}, annotations={MIN_READY: "90"})
        back = vms(owner, 0, ready_for_s=lasting)
        failing = vms(owner, 1, **FAILING)
        runs = [vmi(back[0], ready_for_s=lasting), vmi(failing[0], ready=False)]
        todo = heal(owner, *back, *failing, *vms(owner, *range(2, 10)), vmis=runs)
        assert healed(todo) == expected
        assert todo.requeue_after_s == (None if expected else 1)


def test_p14_p15_who_is_missed_through_a_rollout_leaves_the_allowance_alone():
    """A failing VM was missed before: nobody more is missed when it is made anew."""
    owner = healing_pool(maxUnavailable=1)
    restarting = vms(owner, 0, ready=False, printable="Starting")
    assert healed(heal(owner, *restarting, *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))) == ["web-1"]


def test_p14_p15_a_rollout_takes_nobody_away_for_whom_healing_has_used_the_allowance():
    before = pool(spec=vm_spec(image="v1"))
    owner = healing_pool(replicas=4, maxUnavailable=1, spec=vm_spec(image="v2"), generation=2)
    spec = vm_spec(image="v2", labels={**LABELS, REVISION_NAME: "web-2"})
    machines = (
        *vms(owner, 0, revision="web-2", spec=spec, **FAILING),
        *vms(owner, 1, 2, 3, revision="web-2", spec=spec),
    )
    runs = [vmi(each, revision="web-1") for each in machines[1:]]
    kept = [revision(before, "web-1", number=1), revision(owner, "web-2", number=2)]
    todo = plan(snapshot(owner, machines, vmis=runs, revisions=kept))
    assert [(each.resource, each.key.name) for each in todo.actions if isinstance(each, Delete)] == [(VMS, "web-0")]


BREAKER = {
    "half of them": (10, 5, None, True),
    "more than half": (10, 6, None, False),
    "one of one": (1, 1, None, True),
    "one of two": (2, 1, None, True),
    "two of two": (2, 2, None, False),
    "one of three": (3, 1, None, True),
    "two of three": (3, 2, None, False),
    "as many as the number": (10, 3, "3", True),
    "more than the number": (10, 4, "3", False),
    "all, where all may": (10, 10, "100%", True),
    "the least percentage is one": (10, 1, "1%", True),
    "a percentage": (10, 3, "29%", False),
    "what cannot be read is half": (10, 5, "many", True),
    "what cannot be read is half, and no more": (10, 6, "0", False),
}


@pytest.mark.parametrize(("members", "failing", "annotation", "heals"), BREAKER.values(), ids=BREAKER)
def test_p15_healing_holds_where_too_many_fail_together(members, failing, annotation, heals):
    owner = healing_pool(replicas=members, annotations={MAX_UNHEALTHY: annotation} if annotation else {})
    todo = heal(owner, *vms(owner, *range(failing), **FAILING), *vms(owner, *range(failing, members)))
    assert len(healed(todo)) == (failing if heals else 0)
    assert (todo.held == "healing holds") is not heals
    assert ("HealingHeld" in reasons(todo)) is not heals
    assert ("InvalidAnnotation" in reasons(todo)) is (annotation in ("many", "0"))


def test_p15_a_bad_annotation_is_told_once_for_each_value():
    def told(value):
        owner = healing_pool(annotations={MAX_UNHEALTHY: value})
        [notice] = heal(owner, *vms(owner, 0, **FAILING), *vms(owner, 1, 2)).notices
        return notice

    assert told("half").message == (
        'annotation vmherd.dev/max-unhealthy is "half": it must be a number from 1, or "1%" to "100%", '
        "so it counts as 50%"
    )
    assert told("half").once == told("half").once != told("most").once


def held_once(owner, *machines, **more):
    [notice] = heal(owner, *machines, **more).notices
    assert notice.reason == "HealingHeld"
    assert notice.warning
    return notice.once


def test_p15_that_healing_holds_is_told_once_for_each_occasion():
    """However many more fail, and whatever state they are in just now, until whoever failed first is back."""
    owner = healing_pool(replicas=4, autohealing={"minFailingToStartDuration": "0s"})
    first = vms(owner, 0, ready_for_s=700, **STUCK)
    others = vms(owner, 1, 2, ready_for_s=600, **STUCK)
    once = held_once(owner, *first, *others, *vms(owner, 3))
    assert once == held_once(owner, *first, *others, *vms(owner, 3, ready_for_s=5, **STUCK))
    between = vms(owner, 0, ready=False, ready_for_s=700, printable="Starting")
    assert once == held_once(owner, *between, *others, *vms(owner, 3, ready_for_s=5, **STUCK))
    later = vms(owner, 0, ready_for_s=60, **STUCK)
    assert once != held_once(owner, *later, *vms(owner, 1, 2, ready_for_s=50, **STUCK), *vms(owner, 3))
    changed = healing_pool(replicas=4, autohealing={"minFailingToStartDuration": "0s"}, generation=2)
    assert once != held_once(changed, *first, *others, *vms(owner, 3))


def test_p15_nobody_is_told_of_a_hold_while_nobody_is_due():
    """Many VMs that were just made wait for a node for a moment."""
    owner = healing_pool()
    fresh = vms(owner, *range(10), ready=False, printable="ErrorUnschedulable", ready_for_s=1)
    assert heal(owner, *fresh) == Plan(requeue_after_s=299)


def test_p15_who_is_about_to_be_due_counts_as_failing_together():
    owner = healing_pool(replicas=4)
    fresh = vms(owner, 1, 2, ready_for_s=1, **STUCK)
    todo = heal(owner, *vms(owner, 0, **FAILING), *fresh, *vms(owner, 3))
    assert (healed(todo), reasons(todo), todo.requeue_after_s) == ([], ["HealingHeld"], 299)


def test_p15_who_is_still_coming_up_counts_as_failing_together_and_a_timer_looks_again():
    owner = healing_pool(replicas=2, healed={0: entry(seconds=100)})
    todo = heal(owner, *vms(owner, 0, ready=False, printable="Starting"), *vms(owner, 1, **FAILING))
    assert (healed(todo), todo.held, todo.requeue_after_s) == ([], "healing holds", 200)


def test_p15_who_is_gone_while_it_is_healed_is_still_one_of_the_members():
    """Four of ten are being made anew, and a fifth fails: that is half of them, and no more."""
    owner = healing_pool(healed={number: entry() for number in range(4)})
    assert healed(heal(owner, *vms(owner, 4, **FAILING), *vms(owner, *range(5, 10)))) == ["web-4"]
    owner = healing_pool(healed={number: entry() for number in range(5)})
    assert healed(heal(owner, *vms(owner, 5, **FAILING), *vms(owner, *range(6, 10)))) == []


@given(st.data())
def test_p15_healing_never_takes_more_at_once_than_max_unavailable(data):
    """Whatever breaks, and however long VMs take: no more than that are on the way at any time."""
    most = data.draw(st.integers(1, 3))
    healing = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "0s"}
    simulation = PoolSimulation(
        pool(replicas=6, maxUnavailable=most, autohealing=healing, annotations={MAX_UNHEALTHY: "100%"})
    )
    simulation.come_to_rest()
    for _ in range(6):
        broken = data.draw(st.sets(st.sampled_from(simulation.running() or ["web-0"])))
        for name in broken & set(simulation.running()) & set(simulation.vmis):
            break_one(simulation, name)
        up = {name for name in simulation.running() if is_up(simulation, name)}
        deleted = [each.key.name for each in simulation.run_pass() if isinstance(each, Delete)]
        assert len(deleted) <= most
        assert not up & set(deleted), "a VM that was up was deleted"
        gone = [name for name in simulation.members() if "deletionTimestamp" in simulation.vms[name]["metadata"]]
        assert len(gone) <= most
        if data.draw(st.booleans()):
            simulation.live_on()
