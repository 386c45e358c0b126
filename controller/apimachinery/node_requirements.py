"""Types and functions that parse and match node selector requirements.

Requirements match node labels in the same way as in Kubernetes' scheduler.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import Operator, SelectorRequirement, holds, wrong_number_of_values

GREATER, LESS = "Gt", "Lt"
OPERATORS = (*Operator, GREATER, LESS)

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_INT64 = range(-(2**63), 2**63)


class NodeMatcher(Struct, frozen=True):
    """A parsed list of requirements: key, operator and values. The labels match if all requirements are satisfied."""

    requirements: tuple[tuple[str, str, frozenset[str]], ...] = ()

    def matches(self, selector: Mapping[str, str]) -> bool:
        return all(_holds(operator, selector.get(key), values) for key, operator, values in self.requirements)


def parse_node_matcher(wire: Iterable[SelectorRequirement], *, field: str) -> NodeMatcher | FieldError:
    """`field` is the path of the requirements in the object, for the error message."""
    requirements = tuple(wire)
    for index, requirement in enumerate(requirements):
        if error := _requirement_error(requirement, f"{field}[{index}]"):
            return error
    return NodeMatcher(tuple((each.key, each.operator, frozenset(each.values or ())) for each in requirements))


def _requirement_error(requirement: SelectorRequirement, field: str) -> FieldError | None:
    operator, values = requirement.operator, requirement.values or ()
    if not requirement.key:
        return FieldError(f"{field}.key is empty")
    if operator not in OPERATORS:
        return FieldError(f"{field}.operator is {quoted(operator)}: it must be one of {', '.join(OPERATORS)}")
    if operator not in (GREATER, LESS):
        return wrong_number_of_values(Operator(operator), values, field)
    if len(values) != 1 or _parse_number(values[0]) is None:
        return FieldError(f"{field}.values must be a single integer for {operator}")
    return None


def _holds(operator: str, value: str | None, values: frozenset[str]) -> bool:
    """Return True if the label has one of the values, or is an integer above (`Gt`) or below (`Lt`) the only one."""
    if operator not in (GREATER, LESS):
        return holds(Operator(operator), value, values)
    number, limit = _parse_number(value or ""), _parse_number(*values)
    if number is None or limit is None:
        return False
    return number > limit if operator == GREATER else number < limit


def _parse_number(text: str) -> int | None:
    """Return a 64-bit integer, or None. As in Kubernetes, `+5` and `007` are valid."""
    if not _INTEGER.fullmatch(text):
        # Check the type first. For any other type, `in` compares the value with each number of the range.
        return None
    number = int(text)
    return number if number in _INT64 else None
