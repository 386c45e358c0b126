"""R2, P2: a webhook changes the labels of each new member. The owner must stop creating members."""

import pytest

from controller.kubevirt.limits import Template
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.plan import plan
from controller.replicas.releases import RELEASE_DELAY, is_young
from controller.replicas.target import Target
from controller.runtime.actions import Patch
from informers.meta import ObjectKey
from tests.builders import NOW, REPLICASETS, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.pool_builders import pool, snapshot, vms
from tests.pool_simulation import PoolSimulation

CHANGED = {"metadata": {"labels": {"app": "changed", "myvmi": "changed"}}}
MINUTES = 10
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


def test_r2_a_webhook_that_changes_the_labels_of_each_new_vmi_does_not_cause_vmis_without_end() -> None:
    made = ReplicaSetSimulation(instant=True, latency_s=0)
    made.server.put(REPLICASETS, replicaset_document(replicas=3))
    for _ in range(MINUTES * 60):
        made.run_pass()
        for name, document in made.server.documents(VMIS, made.key.namespace).items():
            if document["metadata"]["labels"]["app"] != "changed":
                made.server.change(VMIS, ObjectKey(made.key.namespace, name), CHANGED)
        made.advance(1)
    assert 6 <= made.sent("create") <= 3 * (1 + MINUTES * 60 / DELAY_S)
    assert made.reasons.count("ReleaseHeld") >= 1


def test_p2_a_webhook_that_changes_the_labels_of_each_new_vm_does_not_cause_vms_without_end() -> None:
    made = PoolSimulation(pool(replicas=2))
    for _ in range(MINUTES * 60):
        made.run_pass()
        for name, document in made.vms.items():
            if document["metadata"]["labels"].get("app") != "changed":
                labels = dict.fromkeys(document["metadata"]["labels"], None)
                made.edit_vm(name, metadata={"labels": {**labels, "app": "changed"}})
        made.live_on(1)
    assert 4 <= len(made.vms) <= 2 * (1 + MINUTES * 60 / DELAY_S)


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
