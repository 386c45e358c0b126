"""The types of options that click does not have."""

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.types import ADDRESS, Address, seconds_in, show_duration

GOOD = {"0": 0.0, "15": 15.0, "2.5": 2.5, "1m30s": 90.0, "500ms": 0.5}
BAD = dict.fromkeys(["", "-1s", "1m30", "inf", "nan", "1e3"])


@pytest.mark.parametrize(("text", "seconds"), (GOOD | BAD).items())
def test_a_duration_is_in_the_format_of_go_or_in_plain_seconds(text, seconds):
    assert seconds_in(text) == seconds


@given(st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_shown_duration_reads_as_the_same_value(seconds):
    assert seconds_in(show_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


HOSTS = {"": ":8080 :0", "localhost": "localhost:80", "0.0.0.0": "0.0.0.0:80", "::1": "[::1]:80", "::": "[::]:80"}
ADDRESSES = [
    ("0", None),
    *((text, Address(host, int(text.rpartition(":")[2]))) for host, texts in HOSTS.items() for text in texts.split()),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES)
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
