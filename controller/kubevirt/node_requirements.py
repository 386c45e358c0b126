"""Node selector requirements, asked of the node labels that a VM's template names (P8), as a scheduler asks a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import quoted
from controller.kubevirt.types import NodeRequirement

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_INT64 = range(-(2**63), 2**63)


class NodeMatcher(Struct, frozen=True):
    """All of these must hold."""

    requirements: tuple[NodeRequirement, ...] = ()

    def matches(self, selector: Mapping[str, str]) -> bool:
        return all(_holds(requirement, selector) for requirement in self.requirements)


def parse_node_matcher(wire: Iterable[NodeRequirement], *, field: str) -> NodeMatcher | FieldError:
    """The requirements that a user wrote, or what is wrong with them. `field` is where they stand."""
    requirements = tuple(wire)
    for index, requirement in enumerate(requirements):
        if flaw := _flaw_of(requirement, f"{field}[{index}]"):
            return flaw
    return NodeMatcher(requirements)


def _flaw_of(requirement: NodeRequirement, field: str) -> FieldError | None:
    operator, values = requirement.operator, requirement.values or ()
    if not requirement.key:
        return FieldError(f"{field}.key is empty")
    if operator not in OPERATORS:
        return FieldError(f"{field}.operator is {quoted(operator)}: it must be one of {', '.join(OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        return FieldError(f"{field}.values is empty: {operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        return FieldError(f"{field}.values must be empty for {operator}")
    if operator in ("Gt", "Lt") and (len(values) != 1 or _parse_number(values[0]) is None):
        return FieldError(f"{field}.values must be a single integer for {operator}")
    return None


def _holds(requirement: NodeRequirement, selector: Mapping[str, str]) -> bool:
    value, values = selector.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(requirement.operator, value, values[0])


def _compares(operator: str, value: str | None, bound: str) -> bool:
    """Gt and Lt: what is no number, or not there, is neither greater nor less."""
    number, limit = _parse_number(value or ""), _parse_number(bound)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


def _parse_number(text: str) -> int | None:
    """A 64-bit integer, in any of the spellings that Kubernetes takes in Gt and Lt: `+5` and `007` are numbers."""
    if not _INTEGER.fullmatch(text):
        # To ask a range for what is no number is to look at each number in it.
        return None
    number = int(text)
    return number if number in _INT64 else None
