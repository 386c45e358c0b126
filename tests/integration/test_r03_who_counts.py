"""R3 and R7: which VMIs count, which are replaced, and when finished VMIs are deleted."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays

pytestmark = pytest.mark.cluster


def counts(sets: ReplicaSetNamespace) -> tuple[int, int]:
    status = sets.status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def test_r3_a_vmi_whose_pod_terminates_is_replaced_at_once(sets: ReplicaSetNamespace) -> None:
    sets.make_set(1)
    (lost,) = sets.wait_for(1)
    sets.play(lost, ready=False, reason="PodTerminating")
    eventually(lambda: lost not in sets.vmis() and len(sets.alive()) == 1, what="the replacement")


def test_r3_a_vmi_whose_status_cannot_be_decoded_counts_and_does_not_disturb_its_siblings(
    sets: ReplicaSetNamespace,
) -> None:
    sets.make_set(3)
    bad, lost, _ = sets.wait_for(3)
    sets.play_all()
    eventually(lambda: counts(sets) == (3, 3))
    sets.change_vmi(bad, {"status": {"phase": 7}, "metadata": {"labels": {"seen": "yes"}}})
    eventually(lambda: sets.reasons()["UndecodableVirtualMachine"], what="an Event names the VMI")
    sets.delete_vmi(lost)
    eventually(lambda: len(sets.requests("create")) == 4 and len(sets.alive()) == 3, what="the deleted VMI is replaced")
    eventually(lambda: counts(sets) == (3, 1), what="the new VMI and the unreadable VMI count, and are not ready")
    stays(lambda: counts(sets)[0] == 3 and len(sets.requests("create")) == 4, for_s=2, what="three VMIs")
    assert sets.reasons()["UndecodableVirtualMachine"] <= 6, "one Event each time the age doubles"
    sets.change_vmi(bad, {"metadata": {"labels": {"app": None}}})
    eventually(lambda: len(sets.requests("create")) == 5, what="its labels still count")
    assert not sets.requests("delete")
