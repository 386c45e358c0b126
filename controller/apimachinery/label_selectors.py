"""Parses, matches and prints label selectors in the format of Kubernetes. An empty one matches all labels (`is_empty`).

`parse_selector` returns a `FieldError` for an invalid one: the object may be older than the API server's validation.
"""

import re
from collections.abc import Collection, Hashable, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, structs

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.names import is_subdomain

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)


class SelectorRequirement(Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of `matchExpressions`, or of a node selector, which has more operators."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] | None = None


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(Struct, frozen=True):
    """One valid entry of `matchExpressions`. `values` is sorted, and empty for `Exists` and `DoesNotExist`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        return holds(self.operator, labels.get(self.key), self.values)

    def __str__(self) -> str:
        match self.operator:
            case Operator.IN:
                return f"{self.key} in ({','.join(self.values)})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({','.join(self.values)})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"


Values: TypeAlias = frozenset[str] | None
"""Several label values, without duplicates. None means all values."""

MAX_TERMS = 2_000
"""Real selectors have far fewer labels, expressions and values. More could cost the controller seconds."""


class Selector(Struct, frozen=True):
    """A parsed label selector. Labels match if all equalities and requirements are true.

    `equalities` are the `matchLabels`, sorted by key. The fields `needed` and `refused` contain the same conditions,
    grouped by label key. A label must have one of the values in `needed`, and none of the values in `refused`.
    """

    equalities: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()
    needed: Mapping[str, Values] = {}
    refused: Mapping[str, Values] = {}

    def __post_init__(self) -> None:
        needed: dict[str, Values] = {key: frozenset((value,)) for key, value in self.equalities}
        refused: dict[str, Values] = {}
        for each in self.requirements:
            if each.operator in (Operator.IN, Operator.EXISTS):
                values = frozenset(each.values) if each.operator == Operator.IN else None
                needed[each.key] = _intersection(needed.get(each.key), values)
            else:
                values = frozenset(each.values) if each.operator == Operator.NOT_IN else None
                refused[each.key] = _union(refused.get(each.key, frozenset()), values)
        structs.force_setattr(self, "needed", needed)
        structs.force_setattr(self, "refused", refused)

    def reads(self, label: str) -> bool:
        return label in self.needed or label in self.refused

    @property
    def is_empty(self) -> bool:
        return not self.equalities and not self.requirements

    def unmet(self, labels: Mapping[str, str]) -> list[str]:
        """Return the conditions that these labels do not meet, as kubectl writes them."""
        wrong = [str(Selector(equalities=(each,))) for each in self.equalities if labels.get(each[0]) != each[1]]
        return wrong + [str(each) for each in self.requirements if not each.accepts(labels)]

    def matches(self, labels: Mapping[str, str]) -> bool:
        # Each reconciliation calls this method for each member of a set and for each orphan. The time grows with the
        # smaller of the two numbers: the labels of the object, and the terms of the selector.
        needed, refused = self.needed, self.refused
        if len(needed) > len(labels):
            return False
        for key, values in needed.items():
            value = labels.get(key)
            if value is None or (values is not None and value not in values):
                return False
        for key in labels if len(labels) < len(refused) else refused:
            value = labels.get(key)
            if value is not None and key in refused:
                values = refused[key]
                if values is None or value in values:
                    return False
        return True

    def __str__(self) -> str:
        """Return the text for `status.labelSelector`, sorted by key, such as `app=web,!canary,tier in (a,b)`."""
        parts = [(key, f"{key}={value}") for key, value in self.equalities]
        parts += [(requirement.key, str(requirement)) for requirement in self.requirements]
        return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def parse_selector(wire: LabelSelector, *, field: str = "spec.selector") -> Selector | FieldError:
    """`field` is the path of the selector in the object, for the error message."""
    expressions = wire.match_expressions or ()
    terms = len(wire.match_labels or ()) + len(expressions) + sum(len(each.values or ()) for each in expressions)
    if terms > MAX_TERMS:
        return FieldError(f"{field} has {terms} labels, expressions and values: at most {MAX_TERMS} are allowed")
    equalities = tuple(sorted((wire.match_labels or {}).items()))
    for key, value in equalities:
        if error := _label_error(key, (value,), f"{field}.matchLabels"):
            return error
    requirements = []
    for index, expression in enumerate(expressions):
        requirement = _parse_requirement(expression, f"{field}.matchExpressions[{index}]")
        if isinstance(requirement, FieldError):
            return requirement
        requirements.append(requirement)
    return Selector(equalities, tuple(requirements))


class SelectorCache:
    def __init__(self, *, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._parsed: dict[Hashable, tuple[LabelSelector, Selector | FieldError]] = {}

    def parse(self, owner: Hashable, wire: LabelSelector) -> Selector | FieldError:
        """If `wire` is the same Python object as in the previous call, the selector is not parsed again."""
        known = self._parsed.pop(owner, None)
        if known is None or known[0] is not wire:
            known = (wire, parse_selector(wire))
        self._parsed[owner] = known
        if len(self._parsed) > self._capacity:
            del self._parsed[next(iter(self._parsed))]
        return known[1]


def _intersection(some: Values, others: Values) -> Values:
    if some is None:
        return others
    return some if others is None else some & others


def _union(some: Values, others: Values) -> Values:
    return None if some is None or others is None else some | others


def _parse_requirement(wire: SelectorRequirement, field: str) -> Requirement | FieldError:
    if wire.operator not in list(Operator):
        return FieldError(f"{field}.operator is {quoted(wire.operator)}: it must be one of {', '.join(Operator)}")
    operator = Operator(wire.operator)
    values = tuple(sorted(set(wire.values or ())))
    return (
        wrong_number_of_values(operator, values, field)
        or _label_error(wire.key, values, field)
        or Requirement(wire.key, operator, values)
    )


def wrong_number_of_values(operator: Operator, values: Collection[str], field: str) -> FieldError | None:
    needs_values = operator in (Operator.IN, Operator.NOT_IN)
    if needs_values and not values:
        return FieldError(f"{field}.values is empty: {operator} needs at least one value")
    if values and not needs_values:
        return FieldError(f"{field}.values must be empty for {operator}")
    return None


def holds(operator: Operator, value: str | None, values: Collection[str]) -> bool:
    """`value` is None if the label is absent."""
    match operator:
        case Operator.IN:
            return value in values
        case Operator.NOT_IN:
            return value not in values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None


def _label_error(key: str, values: tuple[str, ...], field: str) -> FieldError | None:
    if not is_label_key(key):
        return FieldError(f"{field}: {quoted(key)} is not a valid label key")
    for value in values:
        if value and not _is_label_name(value):
            return FieldError(f"{field}: {quoted(value)} is not a valid label value")
    return None


def is_label_key(key: str) -> bool:
    """Return True for a valid label key. An annotation key is valid if it is one in lower case."""
    prefix, slash, name = key.rpartition("/")
    return (not slash or is_subdomain(prefix)) and _is_label_name(name)


def _is_label_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None
