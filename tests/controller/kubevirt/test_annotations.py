import pytest

from controller.kubevirt import annotations as names
from controller.replicas.settings import deletion_cost
from tests.builders import vmi


@pytest.mark.parametrize(("value", "marked"), [("true", True), ("True", False), ("yes", False), ("", False)])
def test_only_the_value_true_sets_a_mark(value, marked):
    assert names.is_marked(vmi(annotations={names.REMOVE: value}).metadata, names.REMOVE) is marked


@pytest.mark.parametrize(("value", "protected"), [("true", True), ("True", True), ("", True), ("false", False)])
def test_every_value_but_false_protects(value, protected):
    assert names.is_protected(vmi(annotations={names.PROTECT: value}).metadata) is protected


def test_without_annotations_nothing_is_marked_or_protected():
    assert not names.is_marked(vmi(annotations=None).metadata, names.REMOVE)
    assert not names.is_protected(vmi(annotations=None).metadata)


OTHER_TEXTS = ["", "1.5", "+1", "007", "1_000", "٣", "2147483648", "9" * 5000, "cheap\n"]


@pytest.mark.parametrize(
    ("text", "cost"), [("0", 0), ("-12", -12), ("2147483647", 2147483647), *((text, 0) for text in OTHER_TEXTS)]
)
def test_a_deletion_cost_is_an_integer_and_any_other_text_counts_as_zero(text, cost):
    assert deletion_cost(vmi(annotations={names.DELETION_COST: text}).metadata) == cost
