"""R2, P2: a webhook changes the labels of each new member. The owner must stop creating members."""

import pytest

from controller.kubevirt.limits import Template
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.replicas.release_delay import RELEASE_DELAY, is_young
from controller.replicas.target import Target
from controller.runtime.actions import Patch
from tests.builders import NOW, vmi
from tests.pool_builders import pool, snapshot, vms

DELAY_S = RELEASE_DELAY.total_seconds()


@pytest.mark.parametrize(("age_s", "young"), [(0, True), (29, True), (30, False), (-1, True), (-3600, False)])
def test_a_wrong_clock_makes_no_member_young_for_long(age_s: float, young: bool) -> None:
    assert is_young(vmi(age_s=age_s).metadata, NOW) is young


@pytest.mark.parametrize(
    ("held", "wanted", "others", "number"), [(0, 3, 0, 3), (3, 3, 0, 0), (1, 3, 3, 3), (1, 1, 3, 1)]
)
def test_held_members_are_not_replaced_and_cause_no_deletion(held: int, wanted: int, others: int, number: int) -> None:
    target = Target(template=Template(), replicas=wanted, young=held, existing=others)
    assert (target.wanted, target.kept) == (number, min(wanted, number + held))


def test_p2_the_gaps_of_a_scale_in_do_not_delay_a_release() -> None:
    owner = pool(replicas=2)
    todo = plan(snapshot(owner, (*vms(owner, 0), *vms(owner, 99, labels={"app": "changed"}, age_s=DELAY_S))))
    assert [each.key.name for each in todo.actions if isinstance(each, Patch) and each.resource is VMS] == ["web-99"]


def test_p2_the_next_reconciliation_comes_when_the_first_young_vm_may_be_released() -> None:
    owner = pool(replicas=3)
    changed = {"labels": {"app": "changed"}}
    machines = (*vms(owner, 0), *vms(owner, 1, age_s=20, **changed), *vms(owner, 2, age_s=5, **changed))
    todo = plan(snapshot(owner, machines))
    assert (todo.actions, todo.held, todo.requeue_after_s) == ((), "2 releases wait", DELAY_S - 20)
