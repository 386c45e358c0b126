"""The values that options accept beyond click's own types."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.types import ADDRESS, Address, seconds_in, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("15", 15.0),
        ("2.5", 2.5),
        ("15s", 15.0),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("500ms", 0.5),
        ("1s500ms", 1.5),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("1 s", None),
        ("1d", None),
        ("1m30", None),
        ("1.2.3s", None),
        ("１s", None),
        ("inf", None),
        ("nan", None),
        ("1e3", None),
    ],
)
def test_durations_are_read_as_go_programs_read_them(text, seconds):
    assert seconds_in(text) == seconds


@given(st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_duration_that_is_shown_reads_the_same(seconds):
    assert seconds_in(show_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        (":0", Address("", 0)),
        ("0", None),
        ("localhost:80", Address("localhost", 80)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("[::]:80", Address("::", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert ADDRESS.read(text) == address
    assert ADDRESS.show(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "8080", "host", ":", ":http", ":65536", "::1:80", "[x]:80", "[]:80", "a b:80", "http://x:80", ":-1", "-h:1"],
)
def test_a_bad_address_is_refused(text):
    with pytest.raises(click.BadParameter, match=f"^{re.escape(repr(text))} is invalid; expected host:port"):
        ADDRESS.convert(text, None, None)
