"""A disruption budget that follows: the PodDisruptionBudget of a set or pool with `vmherd.dev/disruption-budget` (P27).

An eviction, for example by `kubectl drain`, asks the budgets of a Pod. The controllers of virt-launcher Pods are VMIs,
which have no scale. So Kubernetes does not know how many Pods are wanted, and only a number in `minAvailable` works. A
plan writes it before anything else: a scale-in lowers it before VMs go, and a scale-out raises it only as far as the
VMs exist.

The API server refuses every eviction of a Pod with two budgets. So a set or pool keeps no budget beside another one. A
budget has the labels of its Pods. So each of two sets or pools sees if its selector selects a Pod of the other one.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.indexes import NAMESPACE
from controller.apimachinery.label_selectors import LabelSelector, Selector, parse_selector
from controller.apimachinery.names import NAME_LENGTH, cut_apart
from controller.apimachinery.owner_references import controller_reference
from controller.apimachinery.quantities import Amount, parse_amount
from controller.kubevirt.annotations import DISRUPTION_BUDGET
from controller.kubevirt.pool_types import POOL_KIND
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.resources import DISRUPTION_BUDGETS, VMIS, DisruptionBudget
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.settings import Settings, asks_for_budget
from controller.replicas.triggers import controller_key
from controller.replicas.wrong_annotations import Wrong
from controller.runtime.actions import (
    Action,
    AnyResource,
    Create,
    Delete,
    Notice,
    Outcome,
    Patch,
    Plan,
    Rejected,
    Unknown,
    join,
    stage_of,
)
from controller.runtime.triggers import Wake, wakes_of
from informers.errors import Conflict, StatusError
from informers.memo import Memo
from informers.meta import KubeObject, ObjectKey, ObjectMeta, controller_of, is_controlled_by, labels_of
from informers.objects import PatchType
from informers.store import Change, StoreView

OFF: Final = "the controller runs without --disruption-budgets"

BUDGET_NAMESPACE: Final = "budget-namespace"
"""The index of the sets or pools that ask for a budget, by their namespace."""

CREATED_BY, VM_NAME = "kubevirt.io/created-by", "vm.kubevirt.io/name"
"""The labels with which KubeVirt names the UID and the name of the VMI on its Pods."""

_POD_LABELS: Final = {"kubevirt.io": "virt-launcher", CREATED_BY: "", VM_NAME: ""}
_TWO: Final = "no Pod with two budgets can be evicted"
_NEWEST: Final = datetime.max.replace(tzinfo=UTC)


class Budgets(Struct, frozen=True):
    """The budgets that a set or pool has to know: all of its namespace, or only its own if it asks for none.

    `resource` is the resource of the set or pool. `found` is None if the controller keeps no budgets.
    """

    resource: AnyResource
    found: tuple[DisruptionBudget, ...] | None


class BudgetCache(Struct, frozen=True):
    """The cache of budgets, if there is one. `is_off` is true if the controller keeps no budgets."""

    store: StoreView[DisruptionBudget] | None = None
    is_off: bool = False

    def read(self, resource: AnyResource, owner: KubeObject) -> Budgets | None:
        """Return the budgets for the snapshot of a set or pool, or None if they are not known."""
        if self.store is None:
            return Budgets(resource, None) if self.is_off else None
        meta = owner.metadata
        if asks_for_budget(owner.metadata):
            return Budgets(resource, self.store.by_index(NAMESPACE, meta.namespace))
        own = self.store.get(ObjectKey(meta.namespace, budget_name(resource.kind, meta.name)))
        return Budgets(resource, () if own is None else (own,))


class Numbers(Struct, frozen=True):
    """The wanted VMs, those that exist, and those of them that should not run, for example because they are stopped."""

    wanted: int
    existing: int
    stopped: int = 0


def budget_name(kind: str, owner: str) -> str:
    return cut_apart(f"{kind.lower()}-{owner}", NAME_LENGTH)


def by_budgeted_namespace(owner: KubeObject) -> Iterable[str]:
    """An index function for sets and pools. Return the namespace of an owner that asks for a budget."""
    return (owner.metadata.namespace,) if asks_for_budget(owner.metadata) else ()


def wakes_of_budget(change: Change[DisruptionBudget], owners: StoreView[Any], kind: str) -> Iterable[Wake]:
    """Return the owner of a budget, unless only its status is new. A new selector wakes all others that ask, too."""

    def asking(budget: DisruptionBudget) -> Iterable[ObjectKey]:
        return (each.metadata.key for each in owners.by_index(BUDGET_NAMESPACE, budget.metadata.namespace))

    def owner(budget: DisruptionBudget) -> Iterable[ObjectKey]:
        return controller_key(budget.metadata, kind)

    yield from wakes_of(change, owner, decides_by=lambda each: (each.spec, _state(each.metadata)))
    yield from wakes_of(change, asking, decides_by=lambda each: (each.spec.selector, _state(each.metadata)))


def _state(meta: ObjectMeta) -> tuple[object, ...]:
    return (meta.uid, meta.owner_references, meta.deletion_timestamp is None, meta.labels)


def minimum(text: str, numbers: Numbers, present: int) -> int:
    """Return how many VMs an eviction must leave, or 0.

    `text` is the allowed number or percentage of unavailable VMs, and `present` is the minimum of the present budget.
    The minimum rises only as far as the VMs exist, so a scale-out that waits for a quota does not block every drain. It
    does not fall because a VM is missing, so a second VM does not leave beside the missing one.
    """
    amount = parse_amount(text) or Amount(1)

    def left(total: int) -> int:
        runs = max(min(numbers.wanted, total - numbers.stopped), 0)
        return max(runs - amount.ceiling(runs), 0)

    return min(left(max(numbers.wanted, numbers.existing)), max(present, left(numbers.existing)))


def useless_budget(
    owner: ObjectMeta,
    budgets: Budgets | None,
    selector: Selector,
    labels: Mapping[str, str],
    vmis: Iterable[VirtualMachineInstance],
) -> tuple[Wrong, ...]:
    """Return the annotation that asks for a budget as a wrong one (P23), if there is none. KubeVirt copies the `labels`
    of the VMI template to the Pods. `vmis` are the VMIs of the members.
    """
    if budgets is None:
        return ()
    why = "spec.selector does not match the labels of the VMI template, so the budget would find no Pod"
    if budgets.found is None:
        why = OFF
    elif selector.matches(labels):
        covers = _covering(labels, vmis)
        why = _rival(budget_name(budgets.resource.kind, owner.name), owner.uid, budgets.found, covers, selector)
    return (Wrong(f"annotation {DISRUPTION_BUDGET} has no effect: {why}"),) if why else ()


def _rival(
    name: str,
    uid: str,
    found: tuple[DisruptionBudget, ...],
    covers: Callable[[DisruptionBudget], bool],
    selector: Selector,
) -> str:
    """Return what stands against the budget of this name and selector, for the set or pool with this UID, or ""."""
    others = [each for each in found if not is_controlled_by(each.metadata, uid)]
    if any(each.metadata.name == name for each in others):
        return f"PodDisruptionBudget {name} exists, and does not belong to this object: delete it"
    own = next((each.metadata for each in found if is_controlled_by(each.metadata, uid)), None)
    if own is not None:  # Of two budgets of vmherd, the older one stays, or that with the first name.
        others = [each for each in others if not _is_ours(each.metadata) or _age(each.metadata) <= _age(own)]
    sharing = [each.metadata for each in others if covers(each) or _is_covered(each.metadata, selector)]
    if not sharing:
        return ""
    other = min(sharing, key=lambda each: each.name)
    if _kind_of_owner(other) == VMIS.kind:
        return f"KubeVirt before 1.6 makes a PodDisruptionBudget for each VMI that migrates, and {_TWO}"
    return f"PodDisruptionBudget {other.name} covers the same Pods, and {_TWO}"


def _age(budget: ObjectMeta) -> tuple[datetime, str]:
    return with_timezone(budget.creation_timestamp) or _NEWEST, budget.name


def _is_covered(other: ObjectMeta, selector: Selector) -> bool:
    """Return True if the selector selects the Pods of another budget of vmherd, which have the labels of the budget."""
    labels = labels_of(other)
    return _is_ours(other) and bool(labels) and selector.matches({**labels, **_POD_LABELS})


def _is_ours(budget: ObjectMeta) -> bool:
    return _kind_of_owner(budget) in (POOL_KIND, REPLICA_SET_KIND)


def _kind_of_owner(meta: ObjectMeta) -> str:
    owner = controller_of(meta)
    return owner.kind if owner is not None else ""


def _covering(labels: Mapping[str, str], vmis: Iterable[VirtualMachineInstance]) -> Callable[[DisruptionBudget], bool]:
    """Return a function that tells whether a budget covers a Pod of the VMIs. A budget may select one VMI."""
    pod = {**labels, **_POD_LABELS}

    @cache
    def names() -> Mapping[str, frozenset[str]]:
        metas = [each.metadata for each in vmis]
        return {CREATED_BY: frozenset(each.uid for each in metas), VM_NAME: frozenset(each.name for each in metas)}

    def covers(budget: DisruptionBudget) -> bool:
        wire = budget.spec.selector
        if wire is None:
            return False
        equal = (wire.match_labels or {}).items()
        of_one = [(key, value) for key, value in equal if key in (CREATED_BY, VM_NAME)]
        if of_one:
            return any(value in names()[key] for key, value in of_one)
        # A namespace may have many budgets, so only the selectors whose labels fit are parsed.
        selector = _parsed(wire) if equal <= pod.items() else None
        return selector is not None and selector.matches(pod)

    return covers


def _parse(selector: LabelSelector | None) -> Selector | None:
    parsed = parse_selector(selector) if selector is not None else None
    return None if isinstance(parsed, FieldError) else parsed


_parsed: Final = Memo(_parse)


def with_budget(
    plan: Plan, snapshot: Any, settings: Settings, labels: Mapping[str, str], count: Callable[[], Numbers]
) -> Plan:
    """Return the plan with the write that keeps the budget. Its failure does not hold the rest of the plan. `labels`
    are those of the VMI template, and `count` returns the numbers, which are needed only with a budget.
    """
    owner, budgets = snapshot.owner, snapshot.budgets
    if budgets is None or budgets.found is None:
        return plan
    name = budget_name(budgets.resource.kind, owner.metadata.name)
    named = (each for each in budgets.found if each.metadata.name == name)
    own = next((each for each in named if is_controlled_by(each.metadata, owner.metadata.uid)), None)
    if own is not None and own.metadata.deletion_timestamp is not None:
        return plan
    useless = snapshot.useless_budget
    if not useless and settings.budget is not None:
        write = _update(owner, budgets.resource, own, labels, count(), unavailable=settings.budget)
    else:
        write = _delete(own, useless) if own is not None else None
    return join((Plan(stages=stage_of([write])), plan)) if write is not None else plan


def _update(
    owner: Any,
    resource: AnyResource,
    own: DisruptionBudget | None,
    labels: Mapping[str, str],
    numbers: Numbers,
    *,
    unavailable: str,
) -> Action | None:
    present = own.spec.min_available if own is not None else None
    before = present if isinstance(present, int) else 0
    least = minimum(unavailable, numbers, before)
    why = f"an eviction must leave {least} of {numbers.wanted} VMs"
    if own is None:
        return _create(owner, resource, least, labels, why)
    is_right = (
        least == present and own.spec.max_unavailable is None and labels.items() <= labels_of(own.metadata).items()
    )
    if is_right and _parsed(own.spec.selector) == _parsed(owner.spec.selector):
        return None
    return _patch(own, owner.spec.selector, least, labels, why)


def _create(owner: Any, resource: AnyResource, least: int, labels: Mapping[str, str], why: str) -> Create:
    key = ObjectKey(owner.metadata.namespace, budget_name(resource.kind, owner.metadata.name))
    body = {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "ownerReferences": [controller_reference(resource, owner.metadata)],
        },
        "spec": {"minAvailable": least, "selector": owner.spec.selector},
    }
    encoded = msgspec.json.encode(body)
    return Create(resource=DISRUPTION_BUDGETS, key=key, body=encoded, owner_uid=owner.metadata.uid, why=why)


def _patch(own: DisruptionBudget, selector: LabelSelector, least: int, labels: Mapping[str, str], why: str) -> Patch:
    """Return the patch of the fields that vmherd keeps. `unhealthyPodEvictionPolicy` and other labels stay."""
    meta = own.metadata
    steps: list[dict[str, object]] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "add", "path": "/metadata/labels", "value": {**labels_of(meta), **labels}},
        {"op": "add", "path": "/spec/minAvailable", "value": least},
        {"op": "add", "path": "/spec/selector", "value": selector},
    ]
    if own.spec.max_unavailable is not None:
        steps.append({"op": "remove", "path": "/spec/maxUnavailable"})
    body = msgspec.json.encode(steps)
    return Patch(resource=DISRUPTION_BUDGETS, key=meta.key, uid=meta.uid, body=body, type=PatchType.JSON, why=why)


def _delete(own: DisruptionBudget, useless: tuple[Wrong, ...]) -> Delete:
    meta, why = own.metadata, useless[0].text if useless else f"annotation {DISRUPTION_BUDGET} was removed"
    return Delete(resource=DISRUPTION_BUDGETS, key=meta.key, uid=meta.uid, version=meta.resource_version, why=why)


def without_budgets(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the other outcomes. A set or pool without its budget runs all its VMs, so that is no failure of it."""
    return tuple(each for each in outcomes if each.action.resource is not DISRUPTION_BUDGETS)


def budget_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """Return an Event for each refused write of a budget. A lost connection and a conflict are tried again."""
    return tuple(
        Notice(reason="FailedDisruptionBudget", message=f"Error writing {each.action.key.name}: {each.message}")
        for each in outcomes
        if each.action.resource is DISRUPTION_BUDGETS
        and isinstance(each, Rejected | Unknown)
        and isinstance(each.error, StatusError)
        and not isinstance(each.error, Conflict)
    )
