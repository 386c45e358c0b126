"""Types and functions that parse, match and print label selectors in the format of Kubernetes.

`parse_selector` returns a `FieldError` for a selector that is not valid. A stored object can have such a selector,
because the object may be older than the API server's validation.

An empty selector matches all labels, as in Kubernetes. A caller that must not accept an empty selector checks
`is_empty`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.names import is_subdomain

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)


class SelectorRequirement(Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of `matchExpressions` or of a node selector, as decoded from JSON.

    A node selector has more operators than `matchExpressions`.
    """

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
    """One parsed and valid entry of `matchExpressions`.

    `values` is sorted. `values` is empty for the operators `Exists` and `DoesNotExist`.
    """

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


class Selector(Struct, frozen=True):
    """A parsed label selector. Labels match if all equalities and requirements are true.

    `equalities` are the `matchLabels`, sorted by key.
    """

    equalities: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.equalities and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        # Each reconciliation calls this method for each member of a set. A generator would take twice the time of these
        # loops.
        for key, value in self.equalities:
            if labels.get(key) != value:
                return False
        for requirement in self.requirements:  # noqa: SIM110
            if not requirement.accepts(labels):
                return False
        return True

    def __str__(self) -> str:
        """Return the selector as text, sorted by key, for example `app=web,!canary,tier in (a,b)`.

        `status.labelSelector` has the same format.
        """
        parts = [(key, f"{key}={value}") for key, value in self.equalities]
        parts += [(requirement.key, str(requirement)) for requirement in self.requirements]
        return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def parse_selector(wire: LabelSelector, *, field: str = "spec.selector") -> Selector | FieldError:
    """Return the parsed selector, or a FieldError if the selector is not valid.

    `field` is the path of the selector in the object, for the error message.
    """
    equalities = tuple(sorted((wire.match_labels or {}).items()))
    for key, value in equalities:
        if error := _label_error(key, (value,), f"{field}.matchLabels"):
            return error
    requirements = []
    for index, expression in enumerate(wire.match_expressions or ()):
        requirement = _parse_requirement(expression, f"{field}.matchExpressions[{index}]")
        if isinstance(requirement, FieldError):
            return requirement
        requirements.append(requirement)
    return Selector(equalities, tuple(requirements))


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
    """Return an error if the number of values does not fit the operator, or None if there is no error.

    `In` and `NotIn` need at least one value. `Exists` and `DoesNotExist` must not have values.
    """
    needs_values = operator in (Operator.IN, Operator.NOT_IN)
    if needs_values and not values:
        return FieldError(f"{field}.values is empty: {operator} needs at least one value")
    if values and not needs_values:
        return FieldError(f"{field}.values must be empty for {operator}")
    return None


def holds(operator: Operator, value: str | None, values: Collection[str]) -> bool:
    """Return True if a label with this value satisfies a requirement with this operator and these `values`.

    `value` is None if the label is absent.
    """
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
    if not _is_label_key(key):
        return FieldError(f"{field}: {quoted(key)} is not a valid label key")
    for value in values:
        if value and not _is_label_name(value):
            return FieldError(f"{field}: {quoted(value)} is not a valid label value")
    return None


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return _is_label_name(name)


def _is_label_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None
