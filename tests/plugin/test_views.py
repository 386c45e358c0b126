"""Ages, tables and edits: small pure functions of the plugin."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.views.edits import ABSENT, Edit, edited, field, json_patch
from plugin.views.tables import age, printable, short, shortened
from tests.builders import NOW, seconds_ago
from tests.fakes.patches import json_patch as apply

FIELDS = st.sampled_from(["a", "b", "a/b", "x~y"])
VALUES = st.one_of(st.integers(0, 3), st.just(ABSENT), st.just({"a": 1}))
DOCUMENTS = st.recursive(st.integers(0, 3), lambda inner: st.dictionaries(FIELDS, inner, max_size=3), max_leaves=6)
EDITS = st.lists(st.builds(Edit, st.tuples(FIELDS, FIELDS) | st.tuples(FIELDS, FIELDS, FIELDS), VALUES), max_size=4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (10 * 3600, "10h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 7200, "3d2h"),
        (30 * 86400, "30d"),
        (-5, "0s"),
    ],
)
def test_durations_have_the_form_of_kubectl(seconds: float, text: str):
    assert short(seconds) == text


def test_an_unknown_time_has_no_age():
    assert age(None, NOW) == "<unknown>"
    assert age(seconds_ago(90).replace(tzinfo=None), NOW) == "90s"


def test_a_long_line_ends_at_the_width():
    assert shortened("abcdefgh", 6) == "abc..."
    assert shortened("abcdef", 6) == "abcdef"
    assert printable("a\n b\x1b[31mc") == "a b?[31mc"


@given(st.dictionaries(FIELDS, DOCUMENTS, max_size=3), EDITS)
def test_the_patch_does_on_the_server_what_the_edits_do_here(content: dict[str, object], edits: list[Edit]):
    document = {**content, "metadata": {"uid": "u"}}
    steps = msgspec.json.decode(json_patch(document, edits))
    assert steps[0] == {"op": "test", "path": "/metadata/uid", "value": "u"}
    assert apply(document, steps) == edited(document, edits)


def test_a_null_field_counts_as_missing():
    assert field({"a": None}, ("a", "b")) is ABSENT
    steps = msgspec.json.decode(json_patch({"metadata": {"uid": "u"}, "a": None}, [Edit(("a", "b"), 1)]))
    assert steps[1] == {"op": "add", "path": "/a", "value": {"b": 1}}
