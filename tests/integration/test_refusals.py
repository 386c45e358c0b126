"""R3, P7, P20, P22: what must not be deleted now stays, and says why. The others go on.

P18: what the server refuses is in the status and in Events.
"""

import pytest

from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.refusals import MESSAGE, allow, denied
from tests.controlplane.waits import eventually, reacts
from tests.integration.renewal import FIXED_SIZE, VMS, classes_of, memories, with_disk

pytestmark = pytest.mark.cluster

AGAIN_S = 150.0
"""The time until the controller tries again after many refusals, and finishes an update."""


NEW_DISKS = with_disk(storageClassName=FIXED_SIZE)


def test_r3_a_vmi_whose_status_cannot_be_decoded_counts_and_does_not_disturb_its_siblings(sets: SetNamespace) -> None:
    sets.make(3)
    bad, lost, _ = sets.wait_for(3)
    sets.play_all()
    reacts(lambda: sets.status().get("readyReplicas") == 3)
    sets.vmis.change(bad, {"status": {"phase": 7}, "metadata": {"labels": {"seen": "yes"}}})
    reacts(lambda: sets.reasons()["UndecodableVirtualMachine"], what="an Event names the VMI")
    sets.vmis.delete(lost)
    sets.settle()
    assert (sets.status()["replicas"], sets.status()["readyReplicas"]) == (3, 1), "the unreadable VMI is not ready"
    assert sets.created().total() == 4, "the deleted VMI is replaced"
    assert sets.reasons()["UndecodableVirtualMachine"] <= 6, "one Event each time the age doubles"
    sets.vmis.change(bad, {"metadata": {"labels": {"app": None}}})
    eventually(lambda: sets.created().total() == 5, within_s=40, what="its labels still count")
    assert not sets.requests("delete")


def test_p20_a_quota_that_is_exactly_full_does_not_hold_a_rollout(pools: PoolNamespace) -> None:
    pools.make(3, template=with_disk(), maxUnavailable=1)
    pools.wait_ready(3)
    allow(pools, 3)
    pools.change_template(NEW_DISKS)
    pools.wait_ready(3, within_s=AGAIN_S)
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    assert pools.messages("UpdateHeld") == []


def test_p22_a_vm_whose_update_is_refused_does_not_delay_the_others(pools: PoolNamespace) -> None:
    pools.make(3, maxUnavailable=1)
    pools.wait_ready(3)
    with denied(pools, "UPDATE", VMS, name="pool-0", unless="object.metadata.name != 'pool-0'"):
        pools.change_memory("128M")
        eventually(lambda: pools.status().get("updatedReplicas") == 2, within_s=30, what="the others are updated")
        reacts(lambda: any("pool-0" in each for each in pools.messages("UpdateHeld")), what="an Event")
        pools.settle()
        problem = pools.status()["problem"]
        assert "pool-0" in problem
        assert MESSAGE in problem
        assert memories(pools.vms()) == {"pool-0": "64M", "pool-1": "128M", "pool-2": "128M"}
    pools.wait_ready(3, within_s=AGAIN_S)


def test_r4b_a_set_whose_new_vmis_another_writer_takes_away_makes_few_and_says_so(sets: SetNamespace) -> None:
    sets.make(2)
    sets.wait_for(2)
    taken: set[str] = set()

    def has_said_so() -> bool:
        for name in sets.created().keys() - taken:
            sets.vmis.change(name, {"metadata": {"labels": {"app": None}, "ownerReferences": None}})
            taken.add(name)
        return "soon after their creation" in str(sets.status().get("conditions"))

    eventually(has_said_so, within_s=60, what="ReplicaFailure")
    assert len(taken) <= 2 * 2 + 6 + 2, "the number at once, and those of a round"
