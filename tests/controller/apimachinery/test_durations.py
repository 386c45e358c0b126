"""Durations in the format of Go."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.quantities import parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("5m", timedelta(minutes=5)),
        ("5m0s", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("300ms", timedelta(milliseconds=300)),
        ("1m30s500ms", timedelta(seconds=90.5)),
        (".5s", timedelta(milliseconds=500)),
        ("1.s", timedelta(seconds=1)),
        ("+2s", timedelta(seconds=2)),
        ("300000000000ns", timedelta(minutes=5)),
        ("7us", timedelta(microseconds=7)),
        ("7\u00b5s", timedelta(microseconds=7)),
        ("7\u03bcs", timedelta(microseconds=7)),
        ("0", timedelta()),
        ("0s", timedelta()),
        ("+0", timedelta()),
        ("0.1s", timedelta(milliseconds=100)),
        ("30s1m", timedelta(seconds=90)),
        ("876600h", timedelta(days=36525)),
    ],
)
def test_p15_a_duration_is_written_as_in_go(text: str, duration: timedelta):
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "5d", "5 m", " 5m", "5m ", "5m\n", "-5m", "5m-3s", "1e3s", ".s", "1..5s", "5M", "٣m", "++5m", "+"],
)
def test_p15_anything_else_is_none(text: str):
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["876601h", "9" * 400 + "h", "9" * 5000 + "ns", "9" * 20_000])
def test_p15_a_duration_over_a_hundred_years_is_none(text: str):
    assert parse_duration(text) is None


@given(st.integers(0, 800_000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_p15_the_parts_add_up(hours: int, minutes: int, seconds: int, milliseconds: int):
    sum_of_all = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    assert parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms") == sum_of_all
