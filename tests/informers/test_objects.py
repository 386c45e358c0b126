"""Answers are read: `read_version` finds the same version and the same errors as `read_meta`, and values that are
nested too deeply for the decoder are replaced.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from informers.errors import TransportError
from informers.objects import read_meta, read_version
from informers.resource import DEEPEST, TOO_DEEP, cut_deep_values

DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
OBJECT = b'{"kind":"VM","metadata":{"name":"vm-0","resourceVersion":"7","labels":{"a":"b"}},"spec":%b}'


@pytest.mark.parametrize(
    ("answer", "version"),
    [(OBJECT % b"{}", "7"), (OBJECT % DEEP, "7"), (b'{"metadata":{"name":"vm-0"}}', ""), (b'{"kind":"Status"}', "")],
)
def test_the_version_is_read_without_the_other_metadata(answer: bytes, version: str):
    assert (read_version(answer), read_meta(answer).resource_version) == (version, version)


@pytest.mark.parametrize("answer", [b"", b"[]", b"<html>", b"\xff", b'{"metadata":{"resourceVersion":7}}'])
def test_an_answer_that_is_not_an_object_may_be_the_answer_to_a_sent_request(answer: bytes):
    for read in (read_meta, read_version):
        with pytest.raises(TransportError) as raised:
            read(answer)
        assert raised.value.sent


MARK = json.loads(TOO_DEEP)
VALUES = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def nested(levels: int, inside: str = "1") -> str:
    return '{"a":' * levels + inside + "}" * levels


@settings(max_examples=40)
@given(VALUES)
def test_a_shallow_document_stays_as_it_is(value: object):
    document = json.dumps(value, ensure_ascii=False).encode()
    assert cut_deep_values(document) is document


@pytest.mark.long
@given(VALUES, VALUES)
def test_only_the_deep_value_is_replaced(before: object, after: object):
    document = f'{{"before":{json.dumps(before)},"deep":{nested(20_000)},"after":{json.dumps(after)}}}'
    cut = json.loads(cut_deep_values(document.encode()))
    assert (cut["before"], cut["after"]) == (before, after)
    deep, levels = cut["deep"], 1
    while deep != MARK:
        deep, levels = deep["a"], levels + 1
    assert levels == DEEPEST


@pytest.mark.parametrize("text", [b"}" * 50, b"[" * 5_000, b'"' + b"[" * 5_000, b"[{" * 400 + b'"\\'])
def test_a_document_that_is_not_json_raises_nothing(text: bytes):
    cut_deep_values(text)
