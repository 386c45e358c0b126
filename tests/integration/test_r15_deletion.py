"""R15: the three cascade options of `kubectl delete` for a set."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, owner_uid, stays

pytestmark = pytest.mark.cluster


def exists(sets: ReplicaSetNamespace) -> bool:
    return sets.set_exists()


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_r15_the_vmis_of_a_deleted_set_are_deleted_and_not_replaced(sets: ReplicaSetNamespace, cascade: str) -> None:
    sets.make_set(5)
    sets.wait_for(5)
    sets.kubectl("delete", "vmirs", "herd", f"--cascade={cascade}", "--timeout=30s")
    assert not exists(sets)
    eventually(lambda: not sets.vmis(), what="all VMIs go")
    stays(lambda: not sets.vmis(), what="no VMI is created")
    assert len(sets.requests("create")) == 5
    assert not sets.requests("delete"), "it is the garbage collector that deletes"


def test_r15_a_foreground_deletion_waits_for_the_vmis(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    name = next(iter(sets.wait_for(2)))
    sets.change_vmi(name, {"metadata": {"finalizers": ["test.vmherd.dev/hold"]}})
    sets.kubectl("delete", "vmirs", "herd", "--cascade=foreground", "--wait=false")
    eventually(lambda: set(sets.vmis()) == {name}, what="the other VMI goes")
    stays(lambda: exists(sets) and set(sets.vmis()) == {name}, what="the set, and no replacement")
    sets.change_vmi(name, {"metadata": {"finalizers": None}})
    eventually(lambda: not exists(sets), what="the set goes")


def test_r15_orphans_stay_unchanged_and_a_recreated_set_adopts_them(sets: ReplicaSetNamespace) -> None:
    sets.make_set(3)
    before = sets.wait_for(3)
    sets.kubectl("delete", "vmirs", "herd", "--cascade=orphan", "--timeout=30s")
    assert not exists(sets)
    eventually(lambda: not any(owner_uid(vmi) for vmi in sets.vmis().values()), what="the VMIs have no owner")
    stays(lambda: sets.alive().keys() == before.keys(), what="the orphans")
    owner = sets.make_set(3)
    eventually(lambda: {owner_uid(vmi) for vmi in sets.vmis().values()} == {owner["metadata"]["uid"]})
    assert sets.wait_for(3).keys() == before.keys()
    eventually(lambda: sets.status().get("updatedReplicas") == 3, what="the VMIs count as up to date")
