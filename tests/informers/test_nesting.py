"""Values that are nested too deeply for the decoder are replaced, and nothing else in the document changes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from informers.objects import read_meta
from informers.resource import DEEPEST, TOO_DEEP, cut_deep_values

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


def test_the_answer_to_a_write_may_contain_a_deep_object():
    answer = f'{{"metadata":{{"name":"x","resourceVersion":"7"}},"spec":{nested(5_000)}}}'
    assert read_meta(answer.encode()).resource_version == "7"
