"""R3, R4a, P7, P20, P22, P31: what must not be deleted or created now waits, and says why. The others go on.

P18: what the server refuses is in the status and in Events.
"""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.kubevirt.annotations import HISTORY
from tests.controlplane.documents import FIXED_SIZE, vm_template, with_disk
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.refusals import MESSAGE, allow, denied
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

AGAIN_S = 150.0
"""The time until the controller tries again after many refusals, and finishes an update."""


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
    pools.change_template(with_disk(storageClassName=FIXED_SIZE))
    pools.wait_ready(3, within_s=AGAIN_S)
    assert {each["spec"].get("storageClassName") for each in pools.claims().values()} == {FIXED_SIZE}
    assert pools.messages("UpdateHeld") == []


def test_p22_a_vm_whose_update_is_refused_does_not_delay_the_others(pools: PoolNamespace) -> None:
    pools.make(3, maxUnavailable=1)
    pools.wait_ready(3)
    with denied(pools, pools.vms, name="pool-0", unless="object.metadata.name != 'pool-0'"):
        pools.change_template(vm_template(memory="128M"))
        eventually(lambda: pools.status().get("updatedReplicas") == 2, within_s=30, what="the others are updated")
        reacts(lambda: any("pool-0" in each for each in pools.messages("UpdateHeld")), what="an Event")
        pools.settle()
        problem = pools.status()["problem"]
        assert "pool-0" in problem
        assert MESSAGE in problem
        specs = {name: vm["spec"]["template"]["spec"] for name, vm in pools.vms().items()}
        memories = {name: each["domain"]["resources"]["requests"]["memory"] for name, each in specs.items()}
        assert memories == {"pool-0": "64M", "pool-1": "128M", "pool-2": "128M"}
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


FAILURES = "vmherd.dev/early-failures"
OBSERVED = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}


def fail(sets: SetNamespace, name: str, *, ahead_s: float = 0) -> None:
    """Let a VMI fail. The clock of its node is ahead by `ahead_s` seconds, and the delay begins at its time."""
    moment = (datetime.now(UTC) + timedelta(seconds=ahead_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = [{"phase": "Failed", "phaseTransitionTimestamp": moment}]
    sets.vmis.change(name, {"status": {"phase": "Failed", "phaseTransitionTimestamps": times}})


def record_of(vmi: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads((vmi["metadata"].get("annotations") or {}).get(FAILURES, "{}")))


def uid_of(vmi: dict[str, Any]) -> str:
    return str(vmi["metadata"]["uid"])


def test_r4a_failing_vmis_are_replaced_with_a_delay_and_the_set_reports_it(sets: SetNamespace) -> None:
    sets.make(1)
    ((first, made),) = sets.wait_for(1).items()
    sets.change({"metadata": {"annotations": OBSERVED}})
    fail(sets, first)
    second = reacts(
        lambda: next((name for name, vmi in sets.alive().items() if uid_of(vmi) != uid_of(made)), None),
        what="the first failure is replaced",
    )
    assert not sets.reasons()["BackOff"], "it is replaced at once"
    replacement = sets.alive()[second]
    assert record_of(replacement)["failures"] == 1
    assert record_of(replacement)["since"] == made["metadata"]["creationTimestamp"]

    # So a slow test also sees the state during the delay.
    fail(sets, second, ahead_s=10)
    condition = reacts(lambda: sets.condition("ReplicaBackOff"))
    assert (condition["status"], condition["reason"]) == ("True", "CrashLoopBackOff")
    assert second in condition["message"]
    reacts(lambda: sets.reasons()["BackOff"] == 1)
    sets.settle(events=True)
    assert sets.created().total() == 2, "no third VMI"
    assert uid_of(sets.vmis()[second]) == uid_of(replacement)

    third = eventually(
        lambda: next((vmi for vmi in sets.alive().values() if uid_of(vmi) != uid_of(replacement)), None),
        what="the third VMI after the delay",
    )
    assert record_of(third)["failures"] == 2
    assert record_of(third)["since"] == made["metadata"]["creationTimestamp"]
    sets.play(third["metadata"]["name"])
    reacts(lambda: sets.condition("ReplicaBackOff") is None, what="the condition goes")
    reacts(lambda: len(sets.vmis()) == 1, what="the failed VMI is deleted")
    assert sets.reasons()["BackOff"] == 1
    notes = sets.read()["metadata"]["annotations"]
    assert {name: value for name, value in notes.items() if name != HISTORY} == OBSERVED


def plain(**claim: Any) -> dict[str, Any]:
    """A template as a person writes it."""
    template = vm_template(disks=("root",), claim={"size": "1024Mi", **claim})
    machine = template["spec"]["template"]["spec"]
    machine["domain"] = {"devices": machine["domain"]["devices"], "memory": {"guest": "1024Mi"}}
    return template


def test_p16_a_new_pool_gets_its_finalizer_first_then_revision_vms_and_status(pools: PoolNamespace) -> None:
    pools.make(5)
    pools.wait_ready(5)
    written = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    first = list(dict.fromkeys((each.resource, each.subresource) for each in written))
    assert first == [
        ("virtualmachinepools", ""),
        ("controllerrevisions", ""),
        ("virtualmachines", ""),
        ("virtualmachinepools", "status"),
    ]
    assert Counter(each.code for each in pools.requests("create")) == {201: 6}, "nothing is asked for twice"


def test_p31_an_update_that_waits_for_its_user_says_so_in_the_status_and_in_an_event(pools: PoolNamespace) -> None:
    pools.make(1, template=plain())
    pools.wait_ready(1)
    pools.kubectl("annotate", "vm/pool-0", "vmherd.dev/protect=true")
    pools.change_template(plain(storageClassName="other"))
    stalled = reacts(lambda: pools.condition("Stalled"), what="the update is stalled")
    text = "update: pool-0 waits: it is protected by vmherd.dev/protect"
    assert (stalled["reason"], stalled["message"], pools.status()["problem"]) == ("UpdateHeld", text, text)
    assert any("it is protected" in each for each in pools.messages("UpdateHeld"))
    pools.kubectl("annotate", "vm/pool-0", "vmherd.dev/protect-")
    reacts(lambda: pools.condition("Stalled") is None, what="the update goes on")
