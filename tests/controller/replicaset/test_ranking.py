"""R6: the order in which VMIs are deleted."""

import pytest

from controller.kubevirt.annotations import DELETION_COST, REMOVE
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.traits import group_vmis
from tests.builders import NOW, vmi


def order(*vmis) -> list[str]:
    return [vmi.metadata.name for vmi in rank_for_removal(group_vmis(vmis), NOW)]


# Each row has two VMIs. The criterion puts the first VMI first. All lesser criteria would put the second VMI first.
CRITERIA = {
    "marked for removal, in any state": (
        vmi("z", annotations={REMOVE: "true"}, ready_for_s=9000, age_s=9000),
        vmi("a", node=None, phase="Pending", ready=None),
    ),
    "no node yet": (
        vmi("z", node=None, phase="Running", annotations={DELETION_COST: "9"}),
        vmi("a", phase="Pending", ready=None),
    ),
    "pending, before running": (
        vmi("z", phase="Pending", annotations={DELETION_COST: "9"}),
        vmi("a", phase="Running", ready=False, annotations={DELETION_COST: "-9"}),
    ),
    "scheduling, before running": (vmi("z", phase="Scheduling"), vmi("a", phase="Running", ready=False)),
    "scheduled, before running": (vmi("z", phase="Scheduled"), vmi("a", phase="Running", ready=False)),
    "among VMIs that start, cost before phase": (
        vmi("z", phase="Scheduled", ready=None, annotations={DELETION_COST: "-1"}),
        vmi("a", phase="Pending", ready=None),
    ),
    "not ready": (vmi("z", ready=False), vmi("a", migrating=True, annotations={DELETION_COST: "-9"})),
    "being migrated": (vmi("z", migrating=True), vmi("a", annotations={DELETION_COST: "-9"})),
    "lower cost": (
        vmi("z", annotations={DELETION_COST: "-1"}, ready_for_s=9000, node="node-2"),
        vmi("a", ready_for_s=1),
    ),
    "a malformed cost is 0": (
        vmi("z", annotations={DELETION_COST: "cheap"}, ready_for_s=9000),
        vmi("a", annotations={DELETION_COST: "1"}),
    ),
    "ready for a shorter time": (vmi("z", ready_for_s=10, age_s=9000), vmi("a", ready_for_s=20, age_s=30)),
    "younger": (vmi("z", age_s=100), vmi("a", age_s=200)),
    "by name": (vmi("a"), vmi("b")),
    "another value is not a mark": (vmi("a"), vmi("b", annotations={REMOVE: "yes"})),
}


@pytest.mark.parametrize(("first", "second"), CRITERIA.values(), ids=CRITERIA)
def test_r6_each_criterion_outweighs_the_lesser_criteria(first, second):
    assert order(first, second) == order(second, first) == [first.metadata.name, second.metadata.name]


def test_r6_each_deletion_lowers_the_number_of_vmis_on_its_node():
    full = [vmi(f"full-{n}", node="full") for n in range(4)]
    half = [vmi(f"half-{n}", node="half") for n in range(2)]
    assert order(*full, *half) == ["full-0", "full-1", "full-2", "half-0", "full-3", "half-1"]


def test_r6_the_number_of_vmis_on_the_node_comes_after_cost_and_before_readiness_time():
    cheap = vmi("cheap", node="lone", annotations={DELETION_COST: "-1"})
    full = [vmi(f"full-{n}", node="full", ready_for_s=9000) for n in range(2)]
    assert order(*full, cheap, vmi("recent", node="other", ready_for_s=1))[:2] == ["cheap", "full-0"]
