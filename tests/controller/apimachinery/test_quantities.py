"""Quantities are compared by value, as in Kubernetes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.quantities import LARGEST, parse_quantity

VALUES = {
    **{"0": 0, "1Gi": 2**30, "1024Mi": 2**30, "1G": 10**9, "1000m": 1, "1.5Ki": 1536, ".5": Fraction(1, 2), "5.": 5},
    **{"-2k": -2000, "+3": 3, "1e3": 1000, "1E": 10**18, "12E-1": Fraction(12, 10), "0.5n": Fraction(1, 10**9)},
    **{"-0.5n": Fraction(-1, 10**9), "9E99": LARGEST, 1024: 1024, 1.5: Fraction(3, 2)},
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_a_quantity_has_its_value(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1KI", "abc", "1e", "1e9999", "1e1.5", "0x10", "١", "1" * 60]
)
def test_a_text_that_is_not_a_quantity_is_none(text):
    assert parse_quantity(text) is None


@given(st.text())
def test_no_text_raises(text):
    parse_quantity(text)
