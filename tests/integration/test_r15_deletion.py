"""R15: the three ways in which `kubectl delete` deletes a set."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, owner_uid, stays

pytestmark = pytest.mark.cluster


def exists(place: Place) -> bool:
    return place.kubectl("get", "vmirs", "herd", check=False).returncode == 0


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_r15_the_vmis_of_a_deleted_set_go_and_nobody_replaces_them(place: Place, cascade: str) -> None:
    place.make_set(5)
    place.wait_for(5)
    place.kubectl("delete", "vmirs", "herd", f"--cascade={cascade}", "--timeout=30s")
    assert not exists(place)
    eventually(lambda: not place.vmis(), what="all VMIs go")
    stays(lambda: not place.vmis(), what="none comes back")
    assert len(place.requests("create")) == 5
    assert not place.requests("delete"), "it is the garbage collector that deletes"


def test_r15_a_foreground_deletion_waits_for_the_vmis(place: Place) -> None:
    place.make_set(2)
    name = next(iter(place.wait_for(2)))
    place.change_vmi(name, {"metadata": {"finalizers": ["test.vmherd.dev/hold"]}})
    place.kubectl("delete", "vmirs", "herd", "--cascade=foreground", "--wait=false")
    eventually(lambda: set(place.vmis()) == {name}, what="the other VMI goes")
    stays(lambda: exists(place) and set(place.vmis()) == {name}, what="the set, and no replacement")
    place.change_vmi(name, {"metadata": {"finalizers": None}})
    eventually(lambda: not exists(place), what="the set goes")


def test_r15_orphans_stay_as_they_are_and_a_set_made_anew_takes_them_back(place: Place) -> None:
    place.make_set(3)
    before = place.wait_for(3)
    place.kubectl("delete", "vmirs", "herd", "--cascade=orphan", "--timeout=30s")
    assert not exists(place)
    eventually(lambda: not any(owner_uid(vmi) for vmi in place.vmis().values()), what="nobody owns them")
    stays(lambda: place.alive().keys() == before.keys(), what="the orphans")
    owner = place.make_set(3)
    eventually(lambda: {owner_uid(vmi) for vmi in place.vmis().values()} == {owner["metadata"]["uid"]})
    assert place.wait_for(3).keys() == before.keys()
    eventually(lambda: place.status().get("updatedReplicas") == 3, what="its template made them")
