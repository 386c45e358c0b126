"""Amounts: numbers and percentages (P14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.quantities import Amount, parse_amount


@pytest.mark.parametrize("value", [1, 25, 10**12, "3", "1%", "25%", "100%"])
def test_p14_an_amount_is_a_number_or_a_percentage(value: int | str):
    assert parse_amount(value) == Amount(int(str(value).rstrip("%")), percent=str(value).endswith("%"))


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0,
        -1,
        "0",
        "-1",
        "",
        "%",
        "0%",
        "00%",
        "101%",
        "1000%",
        "-5%",
        "+5%",
        "1.5%",
        "5 %",
        " 5%",
        "5%\n",
        "5\n",
        "٣%",
    ],
)
def test_p14_anything_else_is_none(value: int | str):
    assert parse_amount(value) is None


ROUNDED = [("100%", 7, 7), ("50%", 7, 3), ("10%", 19, 1), ("1%", 199, 1), ("100%", 0, 1), (3, 100, 3), (3, 1, 3)]


@pytest.mark.parametrize(("value", "whole", "allowed"), ROUNDED)
def test_p14_percentages_round_down_to_one_at_least(value: int | str, whole: int, allowed: int):
    amount = parse_amount(value)
    assert amount is not None
    assert amount.of(whole) == allowed


@given(st.integers(1, 100), st.integers(1, 10_000))
def test_p14_a_percentage_is_never_exceeded_except_by_the_minimum_of_one(percent: int, whole: int):
    amount = parse_amount(f"{percent}%")
    assert amount is not None
    allowed = amount.of(whole)
    assert allowed == 1 or allowed * 100 <= percent * whole
    assert (allowed + 1) * 100 > percent * whole
