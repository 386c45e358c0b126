"""Changes of one value in a document. Every other byte stays the same."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.raw_json import NULL, change_at, change_each, fields_of, items_of, text_of, value_at
from tests.strategies import json_values

ODD = b'{"big" : 123456789012345678901234567890,"f":1.10,"e":1E2,"u":"\\u00e9\\/",  "n":null}'


def replaced(_):
    return b'"new"'


def test_the_value_at_a_path_is_replaced_and_the_rest_stays_byte_for_byte():
    document = b'{"x":' + ODD + b',"a":{"y":' + ODD + b',"b":"old"}}'
    assert change_at(document, ("a", "b"), replaced) == b'{"x":' + ODD + b',"a":{"y":' + ODD + b',"b":"new"}}'


UNREADABLE = {
    "nothing": b"",
    "null": b"null",
    "another kind": b"7",
    "cut short": b'{"a":',
    "no UTF-8": b'{"\xff":1}',
    "half a character": b'"\\ud800"',
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
def test_unexpected_json_is_none_and_raises_nothing(value):
    assert fields_of(value) is None
    assert items_of(value) is None
    assert text_of(value) is None
    assert value_at(value, "a", "b") == NULL
    assert change_at(value, ("a", "b"), replaced) == value
    assert change_each(value, dict) == value


@given(json_values, st.lists(st.text(max_size=8), max_size=3))
def test_any_document_survives_a_change_at_any_path(document, path):
    encoded = msgspec.json.encode(document)
    expected = document
    for name in path:
        expected = expected.get(name) if isinstance(expected, dict) else None
    assert msgspec.json.decode(value_at(encoded, *path)) == expected
    assert msgspec.json.decode(change_at(encoded, tuple(path), lambda value: value)) == document
