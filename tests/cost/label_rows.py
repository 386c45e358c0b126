"""The rows of the cost test with selectors, labels, finalizers and conditions."""

from controller.apimachinery import finalizers, label_selectors
from controller.apimachinery.conditions import Condition, merge_conditions
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt.resources import VMS
from controller.replicas.releases import Releases, plan_row
from informers.meta import ObjectMeta, OwnerReference, controller_of
from tests import builders
from tests import pool_builders as pools
from tests.cost.meter import Call
from tests.cost.rows import row


def terms(n: int, operator: str) -> LabelSelector:
    many = tuple(f"v{number}" for number in range(n))
    if operator == "labels":
        return LabelSelector({f"key-{number}": "v" for number in range(n)})
    if operator in ("Exists", "DoesNotExist"):
        return LabelSelector(None, tuple(SelectorRequirement(f"key-{each}", operator) for each in many))
    return LabelSelector(None, (SelectorRequirement("a", operator, many), SelectorRequirement("b", operator, many)))


@row(20, 600, "labels", "Exists", "DoesNotExist", "In", "NotIn")
def selector_of_many_terms_and_many_objects(n: int, operator: str) -> Call:
    wire = terms(n, operator)
    labels = {**{f"key-{number}": "v" for number in range(5)}, "a": f"v{n - 1}", "b": f"v{n - 1}"}

    def match() -> str:
        selector = label_selectors.parse_selector(wire)
        assert isinstance(selector, label_selectors.Selector)
        for _ in range(n):
            selector.matches(labels)
        return str(selector)

    return match


@row(20, 2_000)
def many_finalizers_owners_and_conditions(n: int) -> Call:
    own = "pool.kubevirt.io/finalizer"
    owners = tuple(
        OwnerReference(api_version="v1", kind="Pool", name=f"{number}", uid=f"u{number}") for number in range(n)
    )
    finalizers_ = (*(f"example.org/{number}" for number in range(n)), own)
    meta = ObjectMeta(name="a", uid="u", finalizers=finalizers_, owner_references=owners)
    conditions = tuple(Condition(type=f"c{number}", status="True") for number in range(n))
    ours = {each.type: each for each in conditions[:3]}

    def change() -> None:
        for patch in (finalizers.exact_removal_patch, finalizers.removal_patch):
            patch(meta, own)
        finalizers.addition_patch(meta, "example.org/other")
        finalizers.owner_and_finalizer_removal_patch(meta, own, f"u{n - 1}")
        controller_of(meta)
        merge_conditions(conditions, ours, builders.NOW)

    return change


@row(20, 2_000)
def a_release_that_waits_and_a_selector_of_many_labels(n: int) -> Call:
    selector = label_selectors.parse_selector(terms(n, "labels"))
    assert isinstance(selector, label_selectors.Selector)
    owner, held = pools.pool(), Releases((), (pools.vm(),), builders.NOW, 1)
    return lambda: plan_row(VMS, owner.metadata, held, selector, builders.NOW)
