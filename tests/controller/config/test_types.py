"""The types of options that click does not have."""

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
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("", None),
        ("-1s", None),
        ("1m30", None),
        ("inf", None),
        ("nan", None),
        ("1e3", None),
    ],
)
def test_a_duration_is_in_the_format_of_go_or_in_plain_seconds(text, seconds):
    assert seconds_in(text) == seconds


@given(st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_shown_duration_reads_as_the_same_value(seconds):
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
