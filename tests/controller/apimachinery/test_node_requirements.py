"""Node selector requirements match as in Kubernetes' scheduler (P8)."""

from collections.abc import Mapping

import msgspec
import pytest

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import SelectorRequirement
from controller.apimachinery.node_requirements import NodeMatcher, parse_node_matcher


def parse(*wire: Mapping[str, object]) -> NodeMatcher | FieldError:
    return parse_node_matcher(msgspec.convert(wire, tuple[SelectorRequirement, ...]), field="f")


def matches(selector: Mapping[str, str], *wire: Mapping[str, object]) -> bool:
    matcher = parse(*wire)
    assert isinstance(matcher, NodeMatcher)
    return matcher.matches(selector)


def requirement(operator: str, *values: str) -> Mapping[str, object]:
    return {"key": "zone", "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("value", "wire", "expected"),
    [
        ("a", requirement("In", "a", "b"), True),
        ("b", requirement("In", "a", "b"), True),
        ("c", requirement("In", "a", "b"), False),
        (None, requirement("In", "a"), False),
        ("", requirement("In", ""), True),
        ("a", requirement("NotIn", "a", "b"), False),
        ("c", requirement("NotIn", "a", "b"), True),
        (None, requirement("NotIn", "a"), True),
        ("", requirement("Exists"), True),
        (None, requirement("Exists"), False),
        ("", requirement("DoesNotExist"), False),
        (None, requirement("DoesNotExist"), True),
        ("6", requirement("Gt", "5"), True),
        ("5", requirement("Gt", "5"), False),
        ("10", requirement("Gt", "9"), True),
        ("-1", requirement("Gt", "-2"), True),
        ("4", requirement("Lt", "5"), True),
        ("5", requirement("Lt", "5"), False),
        ("9", requirement("Lt", "10"), True),
        ("17179869184", requirement("Gt", "17179869183"), True),
        ("9223372036854775807", requirement("Gt", "0"), True),
        ("9223372036854775808", requirement("Gt", "0"), False),
        ("-9223372036854775808", requirement("Lt", "0"), True),
        ("007", requirement("Gt", "+6"), True),
        ("a", requirement("Gt", "5"), False),
        ("a", requirement("Lt", "5"), False),
        ("1.5", requirement("Lt", "5"), False),
        (None, requirement("Gt", "-5"), False),
        (None, requirement("Lt", "5"), False),
    ],
)
def test_p8_a_requirement_matches_as_in_the_scheduler(value: str | None, wire: Mapping[str, object], expected: bool):
    assert matches({"other": "x"} | ({} if value is None else {"zone": value}), wire) is expected


def test_p8_all_requirements_must_be_met():
    both = (requirement("In", "a"), {"key": "cpus", "operator": "Gt", "values": ["2"]})
    assert matches({"zone": "a", "cpus": "4"}, *both)
    assert not matches({"zone": "a", "cpus": "2"}, *both)
    assert not matches({"zone": "b", "cpus": "4"}, *both)


def test_p8_without_requirements_everything_matches():
    assert matches({})


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (requirement("in", "a"), 'f[0].operator is "in"'),
        (requirement("", "a"), 'f[0].operator is ""'),
        (requirement("In"), "f[0].values is empty"),
        (requirement("NotIn"), "f[0].values is empty"),
        ({"key": "zone", "operator": "In", "values": None}, "f[0].values is empty"),
        (requirement("Exists", "a"), "f[0].values must be empty"),
        (requirement("DoesNotExist", "a"), "f[0].values must be empty"),
        (requirement("Gt"), "f[0].values must be a single integer"),
        (requirement("Gt", "1", "2"), "f[0].values must be a single integer"),
        (requirement("Lt", "a"), "f[0].values must be a single integer"),
        (requirement("Lt", "1.5"), "f[0].values must be a single integer"),
        (requirement("Lt", "1_0"), "f[0].values must be a single integer"),
        (requirement("Lt", ""), "f[0].values must be a single integer"),
        (requirement("Lt", "9223372036854775808"), "f[0].values must be a single integer"),
        (requirement("Lt", "9" * 5000), "f[0].values must be a single integer"),
        ({"operator": "Exists"}, "f[0].key is empty"),
    ],
)
def test_p1_an_invalid_requirement_is_a_field_error(wire: Mapping[str, object], said: str):
    flaw = parse(wire)
    assert isinstance(flaw, FieldError)
    assert flaw.message.startswith(said)


def test_p1_a_field_error_names_the_field():
    flaw = parse(requirement("Exists"), requirement("What"))
    assert isinstance(flaw, FieldError)
    assert flaw.message.startswith("f[1].operator")
