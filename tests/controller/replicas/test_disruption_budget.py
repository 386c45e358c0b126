"""P27: the disruption budget of a set or pool follows its size, and never stands beside another budget."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.indexes import NAMESPACE, by_namespace
from controller.apimachinery.label_selectors import LabelSelector, parse_selector
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import DISRUPTION_BUDGET
from controller.kubevirt.resources import DISRUPTION_BUDGETS, VMIS, DisruptionBudget
from controller.pool import plan as pool_plan
from controller.pool import status as pool_status
from controller.replicas.disruption_budget import (
    BUDGET_NAMESPACE,
    OFF,
    BudgetCache,
    Budgets,
    Numbers,
    by_budgeted_namespace,
    minimum,
    useless_budget,
    wakes_of_budget,
)
from controller.replicaset import plan as set_plan
from controller.replicaset import status as set_status
from controller.runtime.actions import Delete, Patch, Rejected
from informers.errors import Forbidden
from informers.store import Added, Store, Updated
from tests import builders, pool_builders
from tests.builders import REPLICASETS
from tests.pool_builders import POOLS

ASKS = {DISRUPTION_BUDGET: "1"}
SET, POOL = "virtualmachineinstancereplicaset-testreplicaset", "virtualmachinepool-web"


class Kind:
    """Plans and statuses of one kind. A set and a pool have the same labels in their selectors and templates."""

    def __init__(self, name: str) -> None:
        self.is_pool = name == "pool"
        self.resource = POOLS if self.is_pool else REPLICASETS
        self.name = POOL if self.is_pool else SET
        self.labels = dict(pool_builders.LABELS if self.is_pool else builders.LABELS)
        self.plans, self.statuses = (pool_plan, pool_status) if self.is_pool else (set_plan, set_status)

    def owner(self, replicas: int = 3, annotations: Any = ASKS) -> Any:
        build: Any = pool_builders.pool if self.is_pool else builders.replicaset
        return build(replicas=replicas, annotations=annotations)

    def snapshot(self, owner: Any, existing: int, *found: DisruptionBudget) -> Any:
        if self.is_pool:
            seen: Any = pool_builders.snapshot(owner, pool_builders.vms(owner, *range(existing)))
        else:
            seen = builders.snapshot(owner, [builders.vmi(f"vmi-{each}", owner=owner) for each in range(existing)])
        return replace(seen, budgets=Budgets(self.resource, found))

    def plan(self, owner: Any, existing: int, *found: DisruptionBudget) -> Any:
        return self.plans.plan(self.snapshot(owner, existing, *found))

    def budget(self, owner: Any, least: Any = 2, **spec: Any) -> DisruptionBudget:
        """The budget that vmherd keeps for the owner."""
        return budget(self.name, minAvailable=least, owner=controller_reference(self.resource, owner.metadata),
                      labels=self.labels, selector={"matchLabels": self.labels}, **spec)  # fmt: skip


def budget(name: str = "other", *, owner: Any = None, labels: Any = None, age_s: float = 60, **spec: Any) -> Any:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    metadata |= {"labels": labels or {}, "creationTimestamp": builders.seconds_ago(age_s)}
    references = {"ownerReferences": [owner]} if owner is not None else {}
    return DISRUPTION_BUDGETS.decode(msgspec.json.encode({"metadata": metadata | references, "spec": spec}))


@pytest.fixture(params=["set", "pool"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


def writes(todo: Any) -> list[tuple[str, Any]]:
    """The writes of the plan in order: those of members by type, and those of budgets with their number."""
    found: list[tuple[str, Any]] = []
    for action in todo.actions:
        verb = type(action).__name__
        if action.resource is not DISRUPTION_BUDGETS:
            found.append((verb, "member"))
        elif isinstance(action, Delete):
            found.append((verb, action.uid))
        else:
            body = json.loads(action.body)
            spec = body["spec"] if isinstance(body, dict) else {each["path"][6:]: each.get("value") for each in body}
            found.append((verb, spec["minAvailable"]))
    return [each for each in found if each != ("Create", "revision")]


@pytest.mark.parametrize(
    ("text", "numbers", "present", "least"),
    [
        ("1", Numbers(3, 3), 0, 2),
        ("1", Numbers(3, 0), 0, 0),
        ("1", Numbers(5, 4), 2, 3),
        ("1", Numbers(3, 2), 2, 2),
        ("1", Numbers(1, 3), 2, 0),
        ("5", Numbers(3, 3), 0, 0),
        ("34%", Numbers(3, 3), 0, 1),
        ("1%", Numbers(100, 100), 0, 99),
        ("1", Numbers(3, 3, stopped=1), 2, 1),
        ("1", Numbers(3, 3, stopped=3), 2, 0),
        ("soon", Numbers(3, 3), 0, 2),
        ("1", Numbers(3, 3), 9, 2),
        ("50%", Numbers(10, 5), 0, 2),
        ("1", Numbers(3, 5, stopped=2), 2, 2),
    ],
)
def test_p27_the_minimum_is_what_should_run_less_the_number(text: str, numbers: Numbers, present: int, least: int):
    assert minimum(text, numbers, present) == least


@given(
    st.one_of(st.integers(1, 60).map(str), st.integers(1, 100).map("{}%".format)),
    st.integers(0, 50),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_p27_the_minimum_rises_with_the_vms_and_falls_only_with_the_wanted_number(
    text: str, wanted: int, existing: int, stopped: int, present: int
):
    stopped = min(stopped, existing)
    goal = minimum(text, Numbers(wanted, max(wanted, existing), stopped), 0)
    least = minimum(text, Numbers(wanted, existing, stopped), present)
    assert 0 <= min(goal, present) <= least <= goal
    assert least in (goal, present) or least <= min(wanted, existing - stopped)
    assert minimum(text, Numbers(wanted, max(wanted, existing), stopped), least) == goal, "it reaches its end"


def test_p27_a_budget_is_lowered_before_a_scale_in_and_raised_after_a_scale_out(kind: Kind):
    owner = kind.owner(3)
    made = kind.plan(owner, 3)
    assert writes(made)[0] == ("Create", 2)
    [create] = [each for each in made.actions if each.resource is DISRUPTION_BUDGETS]
    body = json.loads(create.body)
    assert body["spec"]["selector"] == {"matchLabels": kind.labels}
    assert body["metadata"]["labels"] == kind.labels
    assert body["metadata"]["ownerReferences"][0]["uid"] == create.owner_uid == owner.metadata.uid
    assert writes(kind.plan(owner, 3, kind.budget(owner))) == writes(kind.plan(kind.owner(3, None), 3)), "at rest"
    smaller = writes(kind.plan(kind.owner(1), 3, kind.budget(owner)))
    assert smaller[0] == ("Patch", 0)
    assert ("Delete", "member") in smaller[1:]
    larger = kind.owner(5)
    assert ("Patch", 2) not in writes(kind.plan(larger, 3, kind.budget(larger))), "no new VM exists yet"
    assert writes(kind.plan(larger, 4, kind.budget(larger)))[0] == ("Patch", 3)
    assert writes(kind.plan(larger, 5, kind.budget(larger)))[0] == ("Patch", 4)


EDITS = {
    "number": {"least": 0},
    "percentage": {"least": "50%"},
    "other": {"least": None, "maxUnavailable": 3},
    "selector": {"selector": {"matchLabels": {"a": "b"}}},
    "labels": {"labels": {"more": "labels"}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_p27_an_edited_budget_is_restored_and_other_fields_stay(kind: Kind, edit: Any):
    owner = kind.owner(3)
    edited = kind.budget(owner, **{key: value for key, value in edit.items() if key not in ("selector", "labels")})
    if "labels" in edit:
        edited = replace(edited, metadata=replace(edited.metadata, labels=edit["labels"]))
    if "selector" in edit:
        reference = edited.metadata.owner_references[0]
        edited = budget(kind.name, minAvailable=2, owner=reference, labels=kind.labels, **edit)
    [patch] = [each for each in kind.plan(owner, 3, edited).actions if isinstance(each, Patch)]
    steps = json.loads(patch.body)
    assert steps[0] == {"op": "test", "path": "/metadata/uid", "value": f"uid-{kind.name}"}
    changed = {each["path"]: each.get("value") for each in steps[1:]}
    assert changed["/spec/minAvailable"] == 2
    assert changed["/spec/selector"] == {"matchLabels": kind.labels}
    assert changed["/metadata/labels"] == {**kind.labels, **edit.get("labels", {})}
    assert ("/spec/maxUnavailable" in changed) == ("maxUnavailable" in edit)


def test_p27_without_the_annotation_only_the_own_budget_goes(kind: Kind):
    owner = kind.owner(3, None)
    assert writes(kind.plan(owner, 3, kind.budget(owner)))[0] == ("Delete", f"uid-{kind.name}")
    foreign = budget(kind.name, minAvailable=2, selector={"matchLabels": kind.labels})
    assert "Delete" not in dict(writes(kind.plan(owner, 3, foreign)))
    earlier = kind.owner(3, None)
    stranger = replace(earlier, metadata=replace(earlier.metadata, uid="uid-of-an-earlier-one"))
    assert "Delete" not in dict(writes(kind.plan(owner, 3, kind.budget(stranger))))


VMI_OWNER = {"apiVersion": "kubevirt.io/v1", "kind": VMIS.kind, "name": "x", "uid": "x", "controller": True}


def objections(kind: Kind) -> dict[str, tuple[DisruptionBudget, str]]:
    of_one = "uid-web-1" if kind.is_pool else "uid-vmi-1"
    return {
        "same": (budget(selector={"matchLabels": kind.labels}), "other covers the same Pods"),
        "all": (budget(selector={}), "other covers the same Pods"),
        "launchers": (budget(selector={"matchLabels": {"kubevirt.io": "virt-launcher"}}), "other covers the same Pods"),
        "kubevirt": (
            budget(selector={"matchLabels": {"kubevirt.io/created-by": of_one}}, owner=VMI_OWNER),
            "KubeVirt before 1.6 makes",
        ),
        "name": (budget(kind.name, selector={"matchLabels": {"no": "Pod"}}), "does not belong to this object"),
        "none": (budget(), ""),
        "others": (budget(selector={"matchLabels": {"app": "another"}}), ""),
        "another-vmi": (budget(selector={"matchLabels": {"kubevirt.io/created-by": "y"}}, owner=VMI_OWNER), ""),
    }


@pytest.mark.parametrize("case", ["same", "all", "launchers", "kubevirt", "name", "none", "others", "another-vmi"])
def test_p27_beside_another_budget_for_the_same_pods_there_is_none_and_the_reason_is_told(kind: Kind, case: str):
    other, reason = objections(kind)[case]
    owner = kind.owner(3)
    own = () if case == "name" else (kind.budget(owner),)
    todo = kind.plan(owner, 3, other, *own)
    told = [each.message for each in todo.notices if each.reason == "InvalidAnnotation"]
    assert [reason in each for each in told] == ([True] if reason else [])
    assert ("Delete" in dict(writes(todo))) == bool(reason and own)
    problem = kind.statuses.next_status(kind.snapshot(owner, 3, other, *own), ()).problem
    assert problem == (told[0] if told else None)


def test_p27_a_pool_whose_selector_matches_no_pod_gets_no_budget():
    owner = pool_builders.pool(annotations=ASKS, spec=pool_builders.vm_spec(labels={"tier": "web"}))
    seen = replace(pool_builders.snapshot(owner, pool_builders.vms(owner, 0, 1, 2)), budgets=Budgets(POOLS, ()))
    assert ["find no Pod" in each.text for each in seen.useless_budget] == [True]
    assert not [each for each in pool_plan.plan(seen).actions if each.resource is DISRUPTION_BUDGETS]


@given(st.data())
def test_p27_of_two_budgets_of_vmherd_for_the_same_pods_the_older_one_stays(data: st.DataObject):
    """Each of two sets or pools plans alone. In the end no Pod has two budgets, and nothing changes any more."""
    labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), min_size=1)
    pods = [data.draw(labels) for _ in range(2)]
    chosen = [data.draw(st.sets(st.sampled_from(sorted(each)), min_size=1)) for each in pods]
    wires = [{"matchLabels": {key: pod[key] for key in keys}} for pod, keys in zip(pods, chosen, strict=True)]
    selectors = [parse_selector(msgspec.convert(each, LabelSelector)) for each in wires]
    ages = [data.draw(st.integers(0, 2)) for _ in range(2)]
    owners = [pool_builders.pool(name, uid=f"uid-{name}").metadata for name in "mn"]
    references = [(f"virtualmachinepool-{each.name}", controller_reference(POOLS, each)) for each in owners]
    mine = [
        budget(name, owner=reference, age_s=age, labels=pod, selector=wire)
        for (name, reference), age, pod, wire in zip(references, ages, pods, wires, strict=True)
    ]

    def stays(number: int, found: list[DisruptionBudget]) -> bool:
        return not useless_budget(owners[number], Budgets(POOLS, tuple(found)), selectors[number], pods[number], ())

    left = [each for number, each in enumerate(mine) if stays(number, mine)]
    shares = any(all(each.matches(pod) for each in selectors) for pod in pods)
    older = min(mine, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))
    assert left == ([older] if shares else mine)
    assert [stays(number, left) for number in range(2)] == [each in left for each in mine]


@pytest.mark.parametrize("strategy", ["Halted", "Manual", "RerunOnFailure"])
def test_p27_vms_that_should_not_run_need_no_protection(strategy: str):
    owner = pool_builders.pool(annotations=ASKS, spec=pool_builders.vm_spec(run_strategy=strategy))
    spec = pool_builders.vm_spec(run_strategy=strategy)
    stopped = pool_builders.vms(owner, 0, 1, spec=spec, ready=False, printable="Stopped")
    running = pool_builders.vms(owner, 2, spec=pool_builders.vm_spec())
    seen = pool_builders.snapshot(owner, (*stopped, *running), vmis=[pool_builders.vmi(each) for each in running])
    todo = pool_plan.plan(replace(seen, budgets=Budgets(POOLS, ())))
    assert writes(todo)[0] == ("Create", 0), "one VM should run, and one may be unavailable"


def test_p27_a_controller_that_keeps_no_budgets_says_so(kind: Kind):
    owner = kind.owner(3)
    seen = replace(kind.snapshot(owner, 3), budgets=BudgetCache(None, is_off=True).read(kind.resource, owner))
    todo = kind.plans.plan(seen)
    assert [OFF in each.message for each in todo.notices if each.reason == "InvalidAnnotation"] == [True]
    assert not [each for each in todo.actions if each.resource is DISRUPTION_BUDGETS]
    unknown = replace(seen, budgets=BudgetCache().read(kind.resource, owner))
    assert unknown.useless_budget == ()


def test_p27_a_refused_budget_has_an_event_and_is_no_failure_of_the_vms(kind: Kind):
    owner = kind.owner(3)
    [create] = [each for each in kind.plan(owner, 3).actions if each.resource is DISRUPTION_BUDGETS]
    refused = Rejected(create, Forbidden("it may not", code=403, reason="Forbidden"))
    [notice] = kind.statuses.outcome_notices((refused,))
    assert (notice.reason, notice.message) == ("FailedDisruptionBudget", f"Error writing {kind.name}: it may not")
    conditions = kind.statuses.next_status(kind.snapshot(owner, 3), (refused,)).conditions or ()
    assert not [each for each in conditions if each.type == "ReplicaFailure"]


def test_p27_a_changed_budget_wakes_its_owner_and_those_that_ask_for_one():
    asking, silent = pool_builders.pool("asks", annotations=ASKS), pool_builders.pool("silent")
    owners: Store[Any] = Store(indexes={BUDGET_NAMESPACE: by_budgeted_namespace})
    for owner in (asking, silent):
        owners.apply(owner)
    before = budget(owner=controller_reference(POOLS, silent.metadata), minAvailable=1)
    after = budget(owner=controller_reference(POOLS, silent.metadata), minAvailable=2)
    assert {key.name for key, _ in wakes_of_budget(Added(before), owners, POOLS.kind)} == {"asks", "silent"}
    assert {key.name for key, _ in wakes_of_budget(Updated(before, after), owners, POOLS.kind)} == {"silent"}
    other = budget(owner=controller_reference(POOLS, silent.metadata), minAvailable=1, selector={})
    assert {key.name for key, _ in wakes_of_budget(Updated(before, other), owners, POOLS.kind)} == {"asks", "silent"}
    newer = replace(before, metadata=replace(before.metadata, resource_version="9"))
    assert not list(wakes_of_budget(Updated(before, newer), owners, POOLS.kind))
    store: Store[Any] = Store(indexes={NAMESPACE: by_namespace})
    store.apply(budget("far"))
    store.apply(budget("virtualmachinepool-silent"))
    cache = BudgetCache(store)
    assert [len(cache.read(POOLS, owner).found) for owner in (asking, silent)] == [2, 1]
