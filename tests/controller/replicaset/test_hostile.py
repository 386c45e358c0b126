"""Sets and orphans of a hostile user: the plan stays small, and no reconciliation takes long."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw, structs

from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.replicaset.plan import plan
from controller.runtime.actions import Confirm, Create, Delete, Patch
from tests.builders import LABELS, SPEC, replicaset, snapshot, vmi

ORPHANS = 10_000


class Calls:
    """The number of Python functions that a block calls. It does not depend on the speed of the machine."""

    number = 0

    def count(self, _frame: object, event: str, _argument: Any) -> None:
        self.number += event == "call"


@contextmanager
def counted_calls() -> Iterator[Calls]:
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_r2_a_pass_adopts_at_most_one_burst_and_counts_all_orphans_that_match() -> None:
    orphans = [vmi(f"orphan-{number:05}") for number in range(ORPHANS)]
    result = plan(snapshot(replicaset(replicas=ORPHANS + 3), orphans, burst=250))
    patches = [action for action in result.actions if isinstance(action, Patch)]
    creates = [action for action in result.actions if isinstance(action, Create)]
    assert (len(patches), len(creates)) == (250, 3)
    assert [type(action) for action in result.actions[:1]] == [Confirm]
    assert "9750 more adoptions" in result.held


def test_r2_no_vmi_is_deleted_while_orphans_wait_for_their_adoption() -> None:
    owner = replicaset(replicas=1)
    orphans = [vmi(f"orphan-{number}") for number in range(20)]
    members = [vmi(f"member-{number}", owner=owner) for number in range(5)]
    first = plan(snapshot(owner, [*members, *orphans], burst=10))
    assert not [action for action in first.actions if isinstance(action, Delete)]
    last = plan(snapshot(owner, [*members, *orphans[:10]], burst=10))
    assert len([action for action in last.actions if isinstance(action, Delete)]) > 0


def test_r4_a_set_gets_at_most_the_largest_number_of_replicas() -> None:
    owner = replicaset(replicas=2**31 - 1)
    first = plan(structs.replace(snapshot(owner), max_replicas=5))
    assert len([action for action in first.actions if isinstance(action, Create)]) == 5
    assert [notice.reason for notice in first.notices] == ["ReplicasLimited"]
    members = [vmi(f"member-{number}", owner=owner) for number in range(8)]
    full = plan(structs.replace(snapshot(owner, members), max_replicas=5))
    assert full.actions == ()
    assert full.requeue_after_s is None


def expressions(operator: str, number: int) -> tuple[SelectorRequirement, ...]:
    values = ("x",) if operator == "NotIn" else None
    return tuple(SelectorRequirement(f"key-{index}", operator, values) for index in range(number))


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist", "Exists"])
def test_r2_a_selector_with_hundreds_of_terms_costs_little_for_each_orphan(operator: str) -> None:
    orphans = [vmi(f"orphan-{number}", labels=dict(LABELS)) for number in range(ORPHANS)]
    labels: Mapping[str, str] = {**LABELS, **({f"key-{n}": "y" for n in range(500)} if operator == "Exists" else {})}
    selector = LabelSelector(match_labels=LABELS, match_expressions=expressions(operator, 500))
    owner = replicaset(replicas=0)
    template = VMITemplate(TemplateMeta(labels=labels), Raw(SPEC))
    owner = structs.replace(owner, spec=structs.replace(owner.spec, selector=selector, template=template))
    with counted_calls() as calls:
        result = plan(snapshot(owner, orphans))
    assert calls.number < 50 * ORPHANS, "each orphan is not compared with each of the 500 terms"
    assert "invalid" not in result.held


def test_r1_a_template_that_is_too_large_is_invalid_and_is_not_read() -> None:
    owner = replicaset()
    volumes = [{"name": f"v{number}", "emptyDisk": {"capacity": "1Gi"}} for number in range(27_000)]
    spec = Raw(msgspec.json.encode({"domain": {}, "volumes": volumes}))
    template = VMITemplate(TemplateMeta(labels=LABELS), spec)
    owner = structs.replace(owner, spec=structs.replace(owner.spec, template=template))
    with counted_calls() as calls:
        [notice] = plan(snapshot(owner)).notices
    assert calls.number < len(volumes), "the volumes are not read"
    assert notice.reason == "InvalidSpec"
    assert "at most 131072 are allowed" in notice.message
