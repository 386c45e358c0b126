import pytest

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import (
    DELETION_COST,
    PROTECT,
    deletion_cost,
    is_marked,
    parse_integer,
    without_foreign_annotations,
)
from tests.builders import vmi


@pytest.mark.parametrize(("value", "marked"), [("true", True), ("True", False), ("yes", False), ("", False)])
def test_only_the_value_true_sets_a_mark(value, marked):
    assert is_marked(vmi(annotations={PROTECT: value}).metadata, PROTECT) is marked


def test_without_annotations_nothing_is_marked():
    assert not is_marked(vmi(annotations=None).metadata, PROTECT)


@pytest.mark.parametrize(("text", "cost"), [("0", 0), ("-12", -12), ("2147483647", 2147483647)])
def test_a_deletion_cost_is_an_integer(text, cost):
    assert deletion_cost(vmi(annotations={DELETION_COST: text}).metadata) == cost


@pytest.mark.parametrize("text", ["", "1.5", "+1", "007", "1_000", "٣", "2147483648", "9" * 5000, "cheap\n"])
def test_any_other_value_is_a_field_error(text):
    assert parse_integer(text) is None
    assert isinstance(deletion_cost(vmi(annotations={DELETION_COST: text}).metadata), FieldError)


def test_a_field_error_quotes_at_most_one_line():
    flaw = deletion_cost(vmi(annotations={DELETION_COST: "x" * 5000}).metadata)
    assert isinstance(flaw, FieldError)
    assert len(flaw.message) < 200


def test_the_cache_keeps_only_the_annotations_that_the_controller_reads():
    kept = without_foreign_annotations(vmi(annotations={DELETION_COST: "1", "other.example.com/data": "x" * 200_000}))
    assert kept.metadata.annotations == {DELETION_COST: "1"}
    assert without_foreign_annotations(vmi(annotations={"a": "b"})).metadata.annotations is None
    same = vmi(annotations={DELETION_COST: "1"})
    assert without_foreign_annotations(same) is same
