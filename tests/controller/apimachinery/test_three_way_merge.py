"""A three-way merge without merge rules for a kind: values are compared as JSON, and a list is replaced as a whole."""

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.three_way_merge import MergeRules, NamedList
from controller.kubevirt.normal_form import UNKNOWN, normal_form

PLAIN = MergeRules(UNKNOWN, normal_form, {}, frozenset(), lambda merged, *_: merged)


def patch_of(current: object, old: object, new: object, rules: MergeRules = PLAIN) -> object:
    live = {"metadata": {"uid": "uid-1", "resourceVersion": "7"}, "spec": current}
    documents = (msgspec.json.encode(each) for each in (live, {"spec": old}, {"spec": new}))
    body = rules.merge(*documents)
    return None if body is None else msgspec.json.decode(body)["spec"]


@pytest.mark.parametrize(
    ("current", "old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "own": 1}, {"a": 1}, {}, {"a": None}),
        ({"a": {"x": 1, "own": 1}}, {"a": {"x": 1}}, {}, {"a": {"x": None}}),
        ({"a": 1, "b": 5}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2}),
        ({"a": True}, {"a": True}, {"a": 1}, {"a": 1}),
        ({"a": "1Gi"}, {"a": "1Gi"}, {"a": "1024Mi"}, {"a": "1024Mi"}),
        ({"l": [1, 2, 3]}, {"l": [1, 2]}, {"l": [2]}, {"l": [2]}),
    ],
)
def test_a_change_of_the_template_is_applied(current, old, new, patch):
    assert patch_of(current, old, new) == patch


def test_a_named_list_is_merged_by_element():
    one, two, own = ({"id": {"name": name}, "x": 1} for name in ("one", "two", "own"))
    rules = replace(PLAIN, named_lists={"parts": NamedList(name=("id", "name"))})
    current = {"parts": [{**one, "noted": 9}, own]}
    patch = patch_of(current, {"parts": [one]}, {"parts": [{**one, "x": 2}, two]}, rules)
    assert patch == {"parts": [{**one, "x": 2, "noted": 9}, two, own]}


def test_a_whole_object_is_replaced():
    rules = replace(PLAIN, whole=frozenset({"source"}))
    merged = patch_of({"source": {"a": 1, "noted": 9}}, {"source": {"a": 1}}, {"source": {"a": 2}}, rules)
    assert merged == {"source": {"a": 2, "noted": None}}
