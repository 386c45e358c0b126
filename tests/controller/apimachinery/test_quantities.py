"""Quantities, which are compared by value as in Kubernetes, durations in the format of Go, and amounts (P14, P15)."""

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.quantities import LARGEST, Amount, parse_amount, parse_duration, parse_quantity

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


SECONDS = """5m=300 5m0s=300 1h30m=5400 1.5h=5400 300ms=0.3 1m30s500ms=90.5 .5s=0.5 1.s=1 +2s=2 300000000000ns=300
7us=0.000007 7\u00b5s=0.000007 7\u03bcs=0.000007 0=0 0s=0 +0=0 0.1s=0.1 30s1m=90 876600h=3155760000"""


@pytest.mark.parametrize("row", SECONDS.split())
def test_p15_a_duration_is_written_as_in_go(row: str):
    text, _, seconds = row.partition("=")
    assert parse_duration(text) == timedelta(seconds=float(seconds))


NONE = ["", "5", "m", "5d", "5 m", " 5m", "5m ", "5m\n", "-5m", "5m-3s", "1e3s", ".s", "1..5s", "5M", "٣m", "++5m", "+"]
OVER_A_HUNDRED_YEARS = ["876601h", "9" * 400 + "h", "9" * 5000 + "ns", "9" * 20_000]


@pytest.mark.parametrize("text", [*NONE, *OVER_A_HUNDRED_YEARS])
def test_p15_any_other_duration_is_none(text: str):
    assert parse_duration(text) is None


@given(st.integers(0, 800_000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_p15_the_parts_add_up(hours: int, minutes: int, seconds: int, milliseconds: int):
    sum_of_all = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    assert parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms") == sum_of_all


@pytest.mark.parametrize("value", [1, 25, 10**12, "3", "1%", "25%", "100%"])
def test_p14_an_amount_is_a_number_or_a_percentage(value: int | str):
    assert parse_amount(value) == Amount(int(str(value).rstrip("%")), percent=str(value).endswith("%"))


NO_NUMBERS = [True, False, 0, -1, "0", "-1", "", "5\n"]
NO_PERCENTAGES = ["%", "0%", "00%", "101%", "1000%", "-5%", "+5%", "1.5%", "5 %", " 5%", "5%\n", "٣%"]


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NO_PERCENTAGES])
def test_p14_any_other_amount_is_none(value: int | str):
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
