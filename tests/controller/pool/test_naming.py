"""P3: the names `<pool>-<ordinal>`, and the ordinals that are free."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.pool.spec.naming import free_ordinals, name_of, ordinal_of, parse_name

NAMES = {
    "the first": ("web-0", ("web", 0)),
    "a later one": ("web-17", ("web", 17)),
    "a pool whose name ends like a VM's": ("web-1-0", ("web-1", 0)),
    "a pool with dashes": ("a-b-c-3", ("a-b-c", 3)),
    "no ordinal": ("web", None),
    "no number": ("web-a", None),
    "a leading zero": ("web-01", None),
    "a negative number belongs to another name": ("web--1", ("web-", 1)),
    "no pool": ("-1", None),
    "digits of another script": ("web-\u0663", None),
    "an ordinal with too many digits": ("web-" + "9" * 30, None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("name", "parsed"), NAMES.values(), ids=NAMES)
def test_a_name_contains_the_pool_and_the_ordinal(name, parsed):
    assert parse_name(name) == parsed


@given(st.text(min_size=1, max_size=12), st.integers(0, 10**9))
def test_every_generated_name_can_be_parsed(pool, ordinal):
    assert parse_name(name_of(pool, ordinal)) == (pool, ordinal)
    assert ordinal_of(name_of(pool, ordinal), pool) == ordinal


TEXTS = st.text(alphabet="w-019\u0663", max_size=6)


@given(TEXTS, TEXTS)
def test_the_ordinal_is_the_one_in_the_parsed_name(name, pool):
    for each in (name, pool + name, f"{pool}-{name}"):
        parsed = parse_name(each)
        expected = parsed[1] if parsed is not None and parsed[0] == pool else None
        assert ordinal_of(each, pool) == expected


def test_gaps_are_filled_before_higher_ordinals_are_used():
    assert list(islice(free_ordinals("web", {"web-0", "web-2", "web-3", "other-1"}), 4)) == [1, 4, 5, 6]
    assert list(islice(free_ordinals("web", ()), 2)) == [0, 1]
