"""R2: adoption and release. The controller never changes VMIs of other owners."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, owned_by, owner_uid

pytestmark = pytest.mark.cluster


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
