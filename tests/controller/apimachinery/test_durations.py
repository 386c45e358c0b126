"""Durations in the format of Go."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.quantities import parse_duration

SECONDS = """5m=300 5m0s=300 1h30m=5400 1.5h=5400 300ms=0.3 1m30s500ms=90.5 .5s=0.5 1.s=1 +2s=2 300000000000ns=300
7us=0.000007 7\u00b5s=0.000007 7\u03bcs=0.000007 0=0 0s=0 +0=0 0.1s=0.1 30s1m=90 876600h=3155760000"""


@pytest.mark.parametrize("row", SECONDS.split())
def test_p15_a_duration_is_written_as_in_go(row: str):
    text, _, seconds = row.partition("=")
    assert parse_duration(text) == timedelta(seconds=float(seconds))


NONE = ["", "5", "m", "5d", "5 m", " 5m", "5m ", "5m\n", "-5m", "5m-3s", "1e3s", ".s", "1..5s", "5M", "٣m", "++5m", "+"]
OVER_A_HUNDRED_YEARS = ["876601h", "9" * 400 + "h", "9" * 5000 + "ns", "9" * 20_000]


@pytest.mark.parametrize("text", [*NONE, *OVER_A_HUNDRED_YEARS])
def test_p15_anything_else_is_none(text: str):
    assert parse_duration(text) is None


@given(st.integers(0, 800_000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_p15_the_parts_add_up(hours: int, minutes: int, seconds: int, milliseconds: int):
    sum_of_all = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    assert parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms") == sum_of_all
