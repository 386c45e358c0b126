import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import (
    LabelSelector,
    Selector,
    SelectorCache,
    SelectorRequirement,
    parse_selector,
)


def selector(labels=None, *expressions: tuple) -> Selector:
    parsed = parse_selector(LabelSelector(labels, tuple(SelectorRequirement(*e) for e in expressions)))
    assert isinstance(parsed, Selector)
    return parsed


MATCHES = {
    "equal label": (selector({"app": "web"}), {"app": "web", "more": "x"}, True),
    "other value": (selector({"app": "web"}), {"app": "db"}, False),
    "label missing": (selector({"app": "web"}), {}, False),
    "one of several labels missing": (selector({"app": "web", "tier": "a"}), {"app": "web"}, False),
    "in": (selector(None, ("tier", "In", ("a", "b"))), {"tier": "b"}, True),
    "in, but missing": (selector(None, ("tier", "In", ("a", "b"))), {}, False),
    "not in": (selector(None, ("tier", "NotIn", ("a",))), {"tier": "b"}, True),
    "not in holds for a missing label": (selector(None, ("tier", "NotIn", ("a",))), {}, True),
    "not in, but it is": (selector(None, ("tier", "NotIn", ("a",))), {"tier": "a"}, False),
    "exists": (selector(None, ("tier", "Exists")), {"tier": ""}, True),
    "exists, but does not": (selector(None, ("tier", "Exists")), {"app": "web"}, False),
    "does not exist": (selector(None, ("canary", "DoesNotExist")), {"app": "web"}, True),
    "does not exist, but does": (selector(None, ("canary", "DoesNotExist")), {"canary": ""}, False),
    "labels and expressions must both hold": (selector({"app": "web"}, ("tier", "Exists")), {"app": "web"}, False),
    "an empty selector matches everything": (selector({}), {}, True),
}


@pytest.mark.parametrize(("parsed", "labels", "expected"), MATCHES.values(), ids=MATCHES)
def test_a_selector_matches_as_in_kubernetes(parsed, labels, expected):
    assert parsed.matches(labels) is expected


TEXTS = {
    "labels by key": (selector({"b": "2", "a": "1"}), "a=1,b=2"),
    "one value in brackets": (selector(None, ("tier", "In", ("a",))), "tier in (a)"),
    "values in order, once": (selector(None, ("tier", "NotIn", ("b", "a", "b"))), "tier notin (a,b)"),
    "existence": (selector(None, ("canary", "DoesNotExist"), ("app", "Exists")), "app,!canary"),
    "labels before expressions of one key": (selector({"a": "1"}, ("a", "Exists")), "a=1,a"),
    "everything": (selector({}), ""),
}


@pytest.mark.parametrize(("parsed", "text"), TEXTS.values(), ids=TEXTS)
def test_a_selector_prints_as_kubernetes_prints_it(parsed, text):
    assert str(parsed) == text


FLAWS = {
    "unknown operator": (LabelSelector(None, (SelectorRequirement("a", "Gt", ("1",)),)), "operator"),
    "In without values": (LabelSelector(None, (SelectorRequirement("a", "In"),)), "values is empty"),
    "Exists with values": (LabelSelector(None, (SelectorRequirement("a", "Exists", ("1",)),)), "must be empty"),
    "no key": (LabelSelector(None, (SelectorRequirement("", "Exists"),)), "label key"),
    "bad prefix": (LabelSelector({"Not A Domain/app": "web"}), "label key"),
    "empty prefix": (LabelSelector({"/app": "web"}), "label key"),
    "long key": (LabelSelector({"a" * 64: "web"}), "label key"),
    "bad value": (LabelSelector({"app": "web server"}), "label value"),
    "long value": (LabelSelector({"app": "w" * 64}), "label value"),
}


@pytest.mark.parametrize(("wire", "part"), FLAWS.values(), ids=FLAWS)
def test_a_selector_that_the_api_server_rejects_is_a_field_error_with_the_field(wire, part):
    flaw = parse_selector(wire)
    assert isinstance(flaw, FieldError)
    assert flaw.message.startswith("spec.selector.")
    assert part in flaw.message


EXPRESSIONS = st.lists(
    st.builds(
        lambda key, operator, values: SelectorRequirement(key, operator, values if "In" in operator else None),
        st.sampled_from("abc"),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(st.sampled_from("xyz"), min_size=1).map(tuple),
    ),
    max_size=5,
).map(tuple)
LABELS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "x", "y", "z"]))


@given(LABELS, EXPRESSIONS, LABELS)
def test_a_selector_matches_if_each_of_its_terms_holds(match_labels, expressions, labels):
    parsed = parse_selector(LabelSelector(match_labels, expressions))
    assert isinstance(parsed, Selector)
    every = all(labels.get(key) == value for key, value in match_labels.items())
    assert parsed.matches(labels) is (every and all(each.accepts(labels) for each in parsed.requirements))


def test_a_selector_with_thousands_of_terms_is_a_field_error():
    wire = LabelSelector({f"key-{number}": "x" for number in range(25_000)})
    flaw = parse_selector(wire)
    assert isinstance(flaw, FieldError)
    assert flaw.message == "spec.selector has 25000 labels, expressions and values: at most 2000 are allowed"


def test_a_cached_selector_is_parsed_again_only_after_a_change():
    cache, wire = SelectorCache(capacity=2), LabelSelector({"app": "web"})
    first = cache.parse("a", wire)
    assert cache.parse("a", wire) is first
    assert str(cache.parse("a", LabelSelector({"app": "db"}))) == "app=db"
    for other in ("b", "c"):
        cache.parse(other, wire)
    assert cache.parse("a", wire) is not first
    assert len(cache._parsed) == 2
