"""R2, P2: a webhook changes the labels of each new member. The owner must stop creating members."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controller.kubevirt.early_release import FIRST_DELAY, LONGEST_DELAY, is_young, release_delay, wanted_beside
from controller.kubevirt.resources import VMIS
from informers.meta import ObjectKey
from tests.builders import NOW, REPLICASETS, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.pool_builders import pool
from tests.pool_simulation import PoolSimulation

CHANGED = {"metadata": {"labels": {"app": "changed", "myvmi": "changed"}}}
MINUTES = 30


@pytest.mark.parametrize(
    ("lost", "wanted", "seconds"), [(0, 3, 5), (2, 3, 5), (3, 3, 10), (9, 3, 40), (10**6, 3, 300), (-1, 0, 5)]
)
def test_the_delay_doubles_with_each_generation_of_lost_members(lost: int, wanted: int, seconds: int) -> None:
    assert release_delay(lost, wanted) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("age_s", "young"), [(0, True), (4, True), (6, False), (-1, True), (-3600, False)])
def test_a_wrong_clock_makes_no_member_young_for_long(age_s: float, young: bool) -> None:
    assert is_young(vmi(age_s=age_s).metadata, NOW, FIRST_DELAY) is young


@pytest.mark.parametrize(
    ("held", "wanted", "others", "number"), [(0, 3, 0, 3), (3, 3, 0, 0), (1, 3, 3, 3), (1, 1, 3, 1)]
)
def test_held_members_are_not_replaced_and_cause_no_deletion(held: int, wanted: int, others: int, number: int) -> None:
    assert wanted_beside(held, wanted, others) == number


def test_r2_a_webhook_that_changes_the_labels_of_each_new_vmi_does_not_cause_vmis_without_end() -> None:
    made = ReplicaSetSimulation(instant=True, latency_s=0)
    made.server.put(REPLICASETS, replicaset_document(replicas=3))
    for _ in range(MINUTES * 60):
        made.run_pass()
        for name, document in made.server.documents(VMIS, made.key.namespace).items():
            if document["metadata"]["labels"]["app"] != "changed":
                made.server.change(VMIS, ObjectKey(made.key.namespace, name), CHANGED)
        made.advance(1)
    longest_s = LONGEST_DELAY.total_seconds()
    assert 6 <= made.sent("create") <= 3 * (8 + MINUTES * 60 / longest_s)
    assert made.reasons.count("ReleaseHeld") >= 1


def test_p2_a_webhook_that_changes_the_labels_of_each_new_vm_does_not_cause_vms_without_end() -> None:
    made = PoolSimulation(pool(replicas=2))
    for _ in range(600):
        made.run_pass()
        for name, document in made.vms.items():
            if document["metadata"]["labels"].get("app") != "changed":
                labels = dict.fromkeys(document["metadata"]["labels"], None)
                made.edit_vm(name, metadata={"labels": {**labels, "app": "changed"}})
        made.live_on(1)
    assert 4 <= len(made.vms) <= 2 * 10
