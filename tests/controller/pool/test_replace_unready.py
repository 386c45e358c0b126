"""P15: `vmherd.dev/replace-unready-after-seconds` replaces VMs that run and are never ready."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import HEALED, MAX_UNHEALTHY, REPLACE_UNREADY_AFTER
from controller.runtime.actions import Delete, Plan
from controller.runtime.waits import Why
from tests.builders import NOW
from tests.pool_builders import periods_after, pool, vmi, vms
from tests.pool_healing import FAILING, STUCK, entry, heal, healed, healing_pool, reasons


def replacing_pool(*, limit="60", annotations=None, **changes):
    """A pool of ten VMs without autohealing."""
    annotations = {REPLACE_UNREADY_AFTER: limit, **(annotations or {})}
    return pool(**{"replicas": 10, "annotations": annotations, **changes})


def running(machines, *, phase="Running", ready_for_s=0):
    return [vmi(each, ready=False, phase=phase, ready_for_s=ready_for_s) for each in machines]


def unready(owner, *ordinals, seconds, phase="Running"):
    """VMs that have been unready for `seconds` seconds, and their VMIs."""
    machines = vms(owner, *ordinals, ready=False, printable="Running", ready_for_s=seconds)
    return machines, running(machines, phase=phase, ready_for_s=seconds)


def heal_among(owner, machines, vmis, *others):
    others = vms(owner, *others)
    return heal(owner, *machines, *others, vmis=[*vmis, *(vmi(each) for each in others)])


def test_p15_a_running_vm_is_replaced_when_it_has_not_been_ready_for_the_limit():
    owner = replacing_pool()
    early = heal_among(owner, *unready(owner, 0, seconds=59), 1, 2)
    assert (early.actions, early.requeue_after_s, early.notices) == ((), 1, ())
    todo = heal_among(owner, *unready(owner, 0, seconds=60), 1, 2)
    [delete] = [each for each in todo.actions if isinstance(each, Delete)]
    assert delete.key.name == "web-0"
    assert delete.why == (
        "healing: it runs, but has not been ready for 60 s; vmherd.dev/replace-unready-after-seconds is 60"
    )


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Scheduled", "Failed", None, "no VMI", "no annotation"])
def test_p15_a_vm_that_does_not_run_yet_or_has_no_limit_is_not_replaced(phase):
    owner = healing_pool() if phase == "no annotation" else replacing_pool()
    machines, running_vmis = unready(owner, 0, seconds=9999, phase="Running" if phase == "no annotation" else phase)
    assert heal_among(owner, machines, () if phase == "no VMI" else running_vmis, 1, 2) == Plan()


def test_p15_without_autohealing_the_annotation_does_not_heal_vms_that_fail_to_start():
    owner = replacing_pool()
    assert heal(owner, *vms(owner, 0, **FAILING), *vms(owner, 1, ready_for_s=9999, **STUCK), vmis=[]) == Plan()


@pytest.mark.parametrize("value", ["0", "-5", "", "10m", "1.5", "2147483648"])
def test_p15_an_invalid_limit_counts_as_no_annotation(value):
    owner = replacing_pool(limit=value)
    todo = heal_among(owner, *unready(owner, 0, seconds=9999), 1, 2)
    assert todo.actions == ()
    healing = healing_pool(annotations={REPLACE_UNREADY_AFTER: value})
    todo = heal(healing, *vms(healing, 0, **FAILING), *vms(healing, 1, 2))
    assert healed(todo) == ["web-0"]


def test_p15_the_limits_of_healing_hold_for_unready_vms():
    owner = replacing_pool(maxUnavailable=2)
    todo = heal_among(owner, *unready(owner, 0, 1, 2, seconds=60), *range(3, 10))
    assert healed(todo) == ["web-0", "web-1"]
    todo = heal_among(owner, *unready(owner, *range(6), seconds=60), *range(6, 10))
    assert (healed(todo), [each.why for each in todo.waits], reasons(todo)) == ([], [Why.FEWER], ["HealingHeld"])
    owner = replacing_pool(annotations={MAX_UNHEALTHY: "60%"})
    assert len(healed(heal_among(owner, *unready(owner, *range(6), seconds=60), *range(6, 10)))) == 6


def test_p15_vms_that_may_still_become_ready_do_not_count_towards_max_unhealthy():
    owner = replacing_pool()
    late, young = unready(owner, 0, seconds=60), unready(owner, *range(1, 8), seconds=59)
    todo = heal_among(owner, (*late[0], *young[0]), (*late[1], *young[1]), 8, 9)
    assert (healed(todo), todo.requeue_after_s) == (["web-0"], 1)


def test_p15_a_recreated_vm_that_is_not_ready_waits_for_the_limit_and_for_the_pause():
    for seconds, expected in ((159, []), (160, ["web-0"])):
        owner = replacing_pool(annotations={HEALED: f'{{"0": {entry(count=5, seconds=seconds)}}}'.replace("'", '"')})
        assert healed(heal_among(owner, *unready(owner, 0, seconds=70), *range(1, 10))) == expected


def test_p15_the_earlier_of_two_limits_decides():
    owner = healing_pool(annotations={REPLACE_UNREADY_AFTER: "60"})
    machines = vms(owner, 0, ready=False, printable="CrashLoopBackOff", ready_for_s=100)
    todo = heal_among(owner, machines, running(machines, ready_for_s=100), 1, 2)
    [delete] = [each for each in todo.actions if isinstance(each, Delete)]
    assert delete.why.startswith("healing: it runs, but has not been ready for 100 s")


def test_p15_a_vm_whose_guest_stops_soon_after_each_start_counts_as_running():
    """The current VMI is only scheduled. The VM still counts as running if its earlier VMI was ready."""
    owner = replacing_pool()

    def after(*, was_ready):
        [machine] = vms(owner, 0, ready=False, printable="Starting", ready_for_s=1)
        first = periods_after(owner, [machine], now=NOW - timedelta(seconds=60), vmis=running([machine]))
        ready = [vmi(machine, ready_for_s=30)] if was_ready else running([machine])
        second = periods_after(owner, [machine], now=NOW - timedelta(seconds=20), vmis=ready, unready_before=first)
        scheduled = running([machine], phase="Scheduled", ready_for_s=1)
        others = vms(owner, *range(1, 10))
        vmis = [*scheduled, *(vmi(each) for each in others)]
        return healed(heal(owner, machine, *others, vmis=vmis, unready_before=second))

    assert after(was_ready=True) == ["web-0"]
    assert after(was_ready=False) == []


@given(st.text())
def test_p15_every_value_of_the_limit_gives_a_plan(text):
    owner = replacing_pool(limit=text)
    assert len(healed(heal_among(owner, *unready(owner, 0, seconds=9999), 1, 2))) <= 1
