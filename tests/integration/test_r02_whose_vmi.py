"""R2: whose VMI is it. Adoption, release, and everybody else's VMIs."""

from __future__ import annotations

import pytest

from tests.integration.herd import LABELS, Place, eventually, owned_by, owner_uid

pytestmark = pytest.mark.cluster


def test_r2_an_orphan_that_matches_is_adopted_and_counts(place: Place) -> None:
    orphan = place.make_vmi("orphan")
    owner = place.make_set(2)
    alive = place.wait_for(2)
    assert alive["orphan"]["metadata"]["uid"] == orphan["metadata"]["uid"]
    assert sorted(owned_by(alive.values(), owner)) == sorted(alive)
    assert len(place.requests("create")) == 1


def test_r2_an_orphan_that_does_not_match_is_left_alone(place: Place) -> None:
    place.make_vmi("stranger", labels={"app": "other"})
    place.make_set(1)
    eventually(lambda: len(place.vmis()) == 2, what="the stranger and one VMI")
    assert owner_uid(place.vmis()["stranger"]) == ""


def test_r2_a_vmi_whose_labels_stop_matching_is_released_and_replaced(place: Place) -> None:
    owner = place.make_set(2)
    name = next(iter(place.wait_for(2)))
    place.change_vmi(name, {"metadata": {"labels": {"app": None, "kept": "yes"}}})
    eventually(lambda: len(owned_by(place.alive().values(), owner)) == 2 and len(place.alive()) == 3)
    released = place.vmis()[name]
    assert owner_uid(released) == ""
    assert released["metadata"]["labels"]["kept"] == "yes"
    assert "vmherd.dev/template-hash" in released["metadata"]["labels"]


def test_r2_a_released_vmi_that_matches_again_comes_back_and_the_surplus_goes(place: Place) -> None:
    owner = place.make_set(1)
    name = next(iter(place.wait_for(1)))
    place.change_vmi(name, {"metadata": {"labels": {"app": None}}})
    eventually(lambda: len(place.alive()) == 2)
    place.change_vmi(name, {"metadata": {"labels": LABELS}})
    eventually(lambda: len(place.alive()) == 1, what="one of the two goes")
    assert len(owned_by(place.alive().values(), owner)) == 1


def test_r2_a_vmi_that_somebody_else_controls_is_never_touched(place: Place) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "controller": True}
    place.kubectl("create", "configmap", "boss")
    uid = place.kubectl.json("get", "configmap", "boss")["metadata"]["uid"]
    before = place.make_vmi("foreign", owner={**reference, "uid": uid})
    place.make_set(1)
    eventually(lambda: len(place.vmis()) == 2)
    place.change_set({"spec": {"replicas": 0}})
    eventually(lambda: len(place.vmis()) == 1)
    assert place.vmis()["foreign"]["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_r2_a_set_that_is_being_deleted_adopts_and_releases_nothing(place: Place) -> None:
    owner = place.make_set(1)
    (member,) = place.wait_for(1)
    place.change_set({"metadata": {"finalizers": ["test.vmherd.dev/hold"]}})
    place.kubectl("delete", "vmirs", "herd", "--wait=false", "--cascade=orphan")
    eventually(lambda: "deletionTimestamp" in place.set()["metadata"])
    eventually(lambda: owner_uid(place.vmis()[member]) == "", what="the garbage collector lets go of it")
    place.make_vmi("orphan")
    generation = place.change_set({"spec": {"replicas": 2}})["metadata"]["generation"]
    eventually(lambda: place.status().get("observedGeneration") == generation, what="a pass has seen it all")
    assert owned_by(place.vmis().values(), owner) == []
    assert len(place.vmis()) == 2
    assert not place.requests("delete")
    place.change_set({"metadata": {"finalizers": None}})
