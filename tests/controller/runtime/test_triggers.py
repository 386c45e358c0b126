"""An update of the version alone wakes nothing, and is not looked at."""

from typing import NoReturn

from controller.runtime.triggers import wakes_of
from informers.store import Updated
from tests.informers.subjects import ConfigMap, config_map


def never(_: ConfigMap) -> NoReturn:
    raise AssertionError("the function was called")


def test_an_update_that_changes_only_the_version_wakes_nothing():
    change = Updated(config_map("a", 5, color="red"), config_map("a", 6, color="red"), only_version=True)
    assert wakes_of(change, never, decides_by=never, counts_by=never) == []
