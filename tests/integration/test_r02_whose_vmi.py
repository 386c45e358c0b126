"""R2: adoption and release. The controller never changes VMIs of other owners."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import LABELS, ReplicaSetNamespace, eventually, owned_by, owner_uid
from tests.integration.witness import wait_until_seen

pytestmark = pytest.mark.cluster


def test_r2_an_orphan_that_matches_is_adopted_and_counts(sets: ReplicaSetNamespace) -> None:
    orphan = sets.make_vmi("orphan")
    wait_until_seen(sets)
    owner = sets.make_set(2)
    alive = sets.wait_for(2)
    assert alive["orphan"]["metadata"]["uid"] == orphan["metadata"]["uid"]
    assert sorted(owned_by(alive.values(), owner)) == sorted(alive)
    assert len(sets.requests("create")) == 1


def test_r2_a_vmi_whose_labels_stop_matching_is_released_and_replaced(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(2)
    name = next(iter(sets.wait_for(2)))
    sets.change_vmi(name, {"metadata": {"labels": {"app": None, "kept": "yes"}}})
    eventually(lambda: len(owned_by(sets.alive().values(), owner)) == 2 and len(sets.alive()) == 3)
    released = sets.vmis()[name]
    assert owner_uid(released) == ""
    assert released["metadata"]["labels"]["kept"] == "yes"
    assert "vmherd.dev/template-hash" in released["metadata"]["labels"]


def test_r2_a_released_vmi_that_matches_again_is_adopted_and_the_surplus_is_deleted(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(1)
    name = next(iter(sets.wait_for(1)))
    sets.change_vmi(name, {"metadata": {"labels": {"app": None}}})
    eventually(lambda: len(sets.alive()) == 2)
    sets.change_vmi(name, {"metadata": {"labels": LABELS}})
    eventually(lambda: len(sets.alive()) == 1, what="one of the two is deleted")
    assert len(owned_by(sets.alive().values(), owner)) == 1


def test_r2_a_vmi_of_another_controller_is_never_changed(sets: ReplicaSetNamespace) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "controller": True}
    uid = sets.make_config_map("boss")["metadata"]["uid"]
    before = sets.make_vmi("foreign", owner={**reference, "uid": uid})
    sets.make_set(1)
    eventually(lambda: len(sets.vmis()) == 2)
    sets.change_set({"spec": {"replicas": 0}})
    eventually(lambda: len(sets.vmis()) == 1)
    assert sets.vmis()["foreign"]["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_r2_a_set_that_is_being_deleted_adopts_and_releases_nothing(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(1)
    (member,) = sets.wait_for(1)
    sets.change_set({"metadata": {"finalizers": ["test.vmherd.dev/hold"]}})
    sets.kubectl("delete", "vmirs", "herd", "--wait=false", "--cascade=orphan")
    eventually(lambda: "deletionTimestamp" in sets.set()["metadata"])
    eventually(lambda: owner_uid(sets.vmis()[member]) == "", what="the garbage collector removes its reference")
    sets.make_vmi("orphan")
    generation = sets.change_set({"spec": {"replicas": 2}})["metadata"]["generation"]
    eventually(lambda: sets.status().get("observedGeneration") == generation, what="a pass for the last generation")
    assert owned_by(sets.vmis().values(), owner) == []
    assert len(sets.vmis()) == 2
    assert not sets.requests("delete")
    sets.change_set({"metadata": {"finalizers": None}})
