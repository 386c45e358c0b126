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


# Each row: an operator, its values, the values of a label that match, and those that do not.
# "-" is a missing label, and "0x" is an empty text.
MATCHES = """
In           a,b  a,b  c,-
In           0x   0x   a
NotIn        a,b  c,-  a
Exists       none 0x   -
DoesNotExist none -    0x
Gt           5    6    5,a,-
Gt           9    10   9
Gt           -2   -1   -3
Gt           +6   007  6
Gt           0    9223372036854775807  9223372036854775808
Gt           17179869183  17179869184  17179869183
Gt           -5   0    -
Lt           5    4    5,a,1.5,-
Lt           10   9    10
Lt           0    -9223372036854775808 1
"""


@pytest.mark.parametrize("row", MATCHES.strip().splitlines())
def test_p8_a_requirement_matches_as_in_the_scheduler(row: str):
    operator, values, met, unmet = ([] if text == "none" else text.split(",") for text in row.split())
    wire = requirement(operator[0], *(value.replace("0x", "") for value in values))
    for value in (*met, *unmet):
        label = {} if value == "-" else {"zone": value.replace("0x", "")}
        assert matches({"other": "x"} | label, wire) is (value in met)


NO_INTEGERS = ("a", "1.5", "1_0", "", "9223372036854775808", "9" * 5000)


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
        *((requirement("Gt", *each), "f[0].values must be a single integer") for each in ((), ("1", "2"))),
        *((requirement("Lt", each), "f[0].values must be a single integer") for each in NO_INTEGERS),
        ({"operator": "Exists"}, "f[0].key is empty"),
    ],
)
def test_p1_an_invalid_requirement_is_a_field_error(wire: Mapping[str, object], said: str):
    flaw = parse(wire)
    assert isinstance(flaw, FieldError)
    assert flaw.message.startswith(said)
