"""The policies in a pool's spec: selection, scale-in, update and healing, with their default values."""

from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import Selector, parse_selector
from controller.apimachinery.node_requirements import NodeMatcher, parse_node_matcher
from controller.apimachinery.quantities import parse_duration
from controller.kubevirt.pool_types import (
    Autohealing,
    PoolSpec,
    ScaleInBlock,
    SelectionPolicy,
    Selectors,
    UpdateBlock,
)

FAILURE_THRESHOLD: Final = 3
MIN_FAILING: Final = timedelta(minutes=5)

Block = TypeVar("Block")


class Strategy(StrEnum):
    """A strategy for scale-in or for updates. Each value is the name of a field in the spec."""

    PROACTIVE = "proactive"
    OPPORTUNISTIC = "opportunistic"
    UNMANAGED = "unmanaged"


class Sort(StrEnum):
    """A value of `sortPolicy`.

    UNSTATED means that the spec has no `sortPolicy`. Then VMs that are not ready come first. In a scale-in, equal VMs
    on the node with the most VMs come next. All others come in a random order (P8).
    """

    ASCENDING = "AscendingOrder"
    DESCENDING = "DescendingOrder"
    NEWEST = "Newest"
    OLDEST = "Oldest"
    RANDOM = "Random"
    UNSTATED = ""


_STRATEGIES: Final = tuple(Strategy)
_SORTS: Final = {each.value: each for each in Sort}


class Selection(Struct, frozen=True):
    """The rules for the choice of VMs: selectors and an order. Without a selector, every VM may be chosen."""

    sort: Sort = Sort.UNSTATED
    labels: Selector | None = None
    nodes: NodeMatcher | None = None
    ignored: str = ""
    """A message about a field of the selection that has no effect, or "" if every field has an effect."""


class ScaleIn(Struct, frozen=True):
    strategy: Strategy = Strategy.PROACTIVE
    selection: Selection = Selection()
    preserve: bool = False


class Update(Struct, frozen=True):
    strategy: Strategy = Strategy.PROACTIVE
    selection: Selection = Selection()


class Healing(Struct, frozen=True):
    threshold: int = FAILURE_THRESHOLD
    min_failing: timedelta = MIN_FAILING


def parse_scale_in(spec: PoolSpec) -> ScaleIn | FieldError:
    """Parse `scaleInStrategy` and return a ScaleIn, or the first error (P8, P9, P10)."""
    field = "spec.scaleInStrategy"
    chosen = _only_one(spec.scale_in_strategy, ScaleInBlock(), field)
    if isinstance(chosen, FieldError):
        return chosen
    strategy, block = chosen
    preservation = block.state_preservation or "Disabled"
    if preservation not in ("Disabled", "Offline", "Online"):
        text = f"{field}.{strategy}.statePreservation is {quoted(preservation)}"
        return FieldError(f"{text}: it must be one of Disabled, Offline, Online")
    selection = _parse_selection(block.selection_policy, f"{field}.{strategy}.selectionPolicy")
    if isinstance(selection, FieldError):
        return selection
    preserve = preservation != "Disabled" and strategy is not Strategy.UNMANAGED
    return ScaleIn(strategy, selection, preserve)


def keeps_disks(spec: PoolSpec) -> bool:
    """Return True if the pool keeps the disks of deleted VMs (P10), or if `scaleInStrategy` is invalid: a user can
    delete kept disks later.
    """
    scale_in = parse_scale_in(spec)
    return isinstance(scale_in, FieldError) or scale_in.preserve


def parse_update(spec: PoolSpec) -> Update | FieldError:
    """Parse `updateStrategy` and return an Update, or the first error (P13)."""
    field = "spec.updateStrategy"
    chosen = _only_one(spec.update_strategy, UpdateBlock(), field)
    if isinstance(chosen, FieldError):
        return chosen
    strategy, block = chosen
    selection = _parse_selection(block.selection_policy, f"{field}.{strategy}.selectionPolicy")
    return selection if isinstance(selection, FieldError) else Update(strategy, selection)


def parse_healing(wire: Autohealing | None) -> Healing | FieldError | None:
    """Parse `autohealing` and return a Healing, the first error, or None if the pool does not use autohealing (P15)."""
    if wire is None:
        return None
    threshold = FAILURE_THRESHOLD if wire.start_up_failure_threshold is None else wire.start_up_failure_threshold
    if threshold < 1:
        return FieldError(f"spec.autohealing.startUpFailureThreshold is {threshold}: it must be 1 or more")
    text = wire.min_failing_to_start_duration
    min_failing = MIN_FAILING if text is None else parse_duration(text)
    if min_failing is None:
        where = f"spec.autohealing.minFailingToStartDuration is {quoted(text or '')}"
        return FieldError(f"{where}: it must be a duration such as 5m or 1m30s")
    return Healing(threshold, min_failing)


def _only_one(wire: object, empty: Block, field: str) -> tuple[Strategy, Block] | FieldError:
    """Return the strategy in the field, with its block. By default, it is proactive, with an empty block."""
    given = [(strategy, block) for strategy in _STRATEGIES if (block := getattr(wire, strategy, None)) is not None]
    if len(given) > 1:
        return FieldError(f"{field}: only one strategy can be configured at a time")
    return given[0] if given else (Strategy.PROACTIVE, empty)


def _parse_selection(wire: SelectionPolicy | None, field: str) -> Selection | FieldError:
    policy = wire or SelectionPolicy()
    name = "basePolicy" if policy.base_policy and not policy.sort_policy else "sortPolicy"
    sort = policy.sort_policy or policy.base_policy or ""
    if sort not in _SORTS:
        allowed = ", ".join(filter(None, _SORTS))
        return FieldError(f"{field}.{name} is {quoted(sort)}: it must be one of {allowed}")
    ignored = ""
    if policy.base_policy and policy.sort_policy not in (None, "", policy.base_policy):
        ignored = f"{field}.basePolicy is {quoted(policy.base_policy)}, but {field}.sortPolicy takes precedence"
    selectors = policy.selectors or Selectors()
    wire_labels, wire_nodes = selectors.label_selector, selectors.node_selector_requirement_matcher
    labels = parse_selector(wire_labels, field=f"{field}.selectors.labelSelector") if wire_labels is not None else None
    at_nodes = f"{field}.selectors.nodeSelectorRequirementMatcher"
    nodes = parse_node_matcher(wire_nodes, field=at_nodes) if wire_nodes is not None else None
    if isinstance(labels, FieldError):
        return labels
    return nodes if isinstance(nodes, FieldError) else Selection(_SORTS[sort], labels, nodes, ignored)
