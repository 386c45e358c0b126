"""Changes of one value in a document, which keep every other byte, and JSON in the encoding of the API server."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from controller.apimachinery.raw_json import (
    NULL,
    change_at,
    change_each,
    encode_as_server,
    fields_of,
    items_of,
    text_of,
    value_at,
)
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


class Thing(Struct, omit_defaults=True, rename="camel"):
    wanted_too: int = 0
    names: dict[str, str] | None = None
    as_it_was: Raw = Raw()


def test_fields_are_sorted_at_every_depth() -> None:
    thing = Thing(2, {"b": "2", "a/x": "1", "B": "3"}, Raw(b'{"a":[1e+22,2.5],"b":null}'))
    written = b'{"asItWas":{"a":[1e+22,2.5],"b":null},"names":{"B":"3","a/x":"1","b":"2"},"wantedToo":2}'
    assert encode_as_server(thing) == written


def test_only_the_special_characters_of_html_are_escaped() -> None:
    text = "<a href='x'>&\u2028\u2029é 🙂 \x01\x7f\b\f\t/"
    written = rb'"\u003ca href=' + b"'x'" + rb"\u003e\u0026\u2028\u2029" + "é 🙂 ".encode() + b"\\u0001\x7f\\b\\f\\t/"
    assert encode_as_server({"<": text}) == rb'{"\u003c":' + written + b'"}'
