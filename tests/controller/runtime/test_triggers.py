"""Which owners wake after a change: an update of the version alone wakes nothing, and is not looked at."""

from typing import NoReturn

import pytest

from controller.runtime.triggers import COUNT_DELAY_S, wakes_of
from informers.meta import ObjectKey
from informers.store import Added, Change, Removed, Updated
from tests.informers.subjects import ConfigMap, config_map

OWNER = ObjectKey("ns", "owner")
OLD, NEW = config_map("a", 5, color="red"), config_map("a", 6, color="blue")


def never(_: ConfigMap) -> NoReturn:
    raise AssertionError("the function was called")


def test_an_update_that_changes_only_the_version_wakes_nothing():
    change = Updated(OLD, config_map("a", 6, color="red"), only_version=True)
    assert wakes_of(change, never, decides_by=never, counts_by=never) == []


@pytest.mark.parametrize("change", [Added(NEW), Removed(OLD)])
def test_an_object_that_is_added_or_removed_wakes_its_owners_at_once(change: Change[ConfigMap]):
    assert wakes_of(change, lambda _: (OWNER,), decides_by=never, counts_by=never) == [(OWNER, 0.0)]


def test_a_change_that_decides_wakes_its_owners_at_once():
    assert wakes_of(Updated(OLD, NEW), lambda _: (OWNER,), decides_by=lambda each: each.data) == [(OWNER, 0.0)]


def test_a_change_that_counts_wakes_its_owners_later():
    assert wakes_of(Updated(OLD, NEW), lambda _: (OWNER,), counts_by=lambda each: each.data) == [(OWNER, COUNT_DELAY_S)]
