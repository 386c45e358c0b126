"""R14: if the set has no rolling update, a new template changes no running VMI."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster

HASH = "vmherd.dev/template-hash"
ROLLING = "vmherd.dev/rolling-update"
NOTED = "vmherd.dev/adopted-template"
DEADLINE = "vmherd.dev/progress-deadline-seconds"


def more_memory(sets: ReplicaSetNamespace, **metadata: Any) -> None:
    domain = {"resources": {"requests": {"memory": "128M"}}}
    sets.change_set({"metadata": metadata, "spec": {"template": {"spec": {"domain": domain}}}})


def hashes(sets: ReplicaSetNamespace) -> dict[str, str]:
    return {name: vmi["metadata"]["labels"][HASH] for name, vmi in sets.alive().items()}


def uids(sets: ReplicaSetNamespace) -> dict[str, str]:
    """The names of the VMIs by UID. A replacement may have the name of the deleted VMI."""
    return {vmi["metadata"]["uid"]: name for name, vmi in sets.alive().items()}


def memory_of(vmi: dict[str, Any]) -> str:
    memory: str = vmi["spec"]["domain"]["resources"]["requests"]["memory"]
    return memory


def unavailable(sets: ReplicaSetNamespace, wanted: int) -> int:
    """The number of wanted VMIs that are not ready."""
    ready = [
        vmi
        for vmi in sets.alive().values()
        if any(c["type"] == "Ready" and c["status"] == "True" for c in (vmi.get("status") or {}).get("conditions", ()))
    ]
    return wanted - len(ready)


def test_r14_a_new_template_changes_no_running_vmi_and_applies_to_new_vmis(sets: ReplicaSetNamespace) -> None:
    sets.make_set(3)
    before = sets.wait_for(3)
    eventually(lambda: sets.status().get("updatedReplicas") == 3)
    (old,) = set(hashes(sets).values())
    more_memory(sets)
    eventually(lambda: sets.status().get("updatedReplicas", 0) == 0, what="all are outdated")
    versions = {name: vmi["metadata"]["resourceVersion"] for name, vmi in before.items()}
    stays(
        lambda: {name: vmi["metadata"]["resourceVersion"] for name, vmi in sets.vmis().items()} == versions,
        what="the running VMIs",
    )
    sets.change_set({"spec": {"replicas": 4}})
    after = sets.wait_for(4)
    (name,) = after.keys() - before.keys()
    assert memory_of(after[name]) == "128M"
    assert hashes(sets)[name] != old
    eventually(lambda: sets.status().get("updatedReplicas") == 1)


def test_r14_vmis_are_up_to_date_again_after_a_return_to_their_template(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    sets.wait_for(2)
    more_memory(sets)
    eventually(lambda: sets.status().get("updatedReplicas", 0) == 0)
    sets.change_set({"spec": {"template": {"spec": {"domain": {"resources": {"requests": {"memory": "64M"}}}}}}})
    eventually(lambda: sets.status().get("updatedReplicas") == 2)


def test_r14_a_rolling_update_replaces_all_vmis_within_its_limit(sets: ReplicaSetNamespace) -> None:
    sets.make_set(4)
    sets.wait_for(4)
    before = uids(sets).keys()
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 4)
    played = set(before)
    more_memory(sets, annotations={ROLLING: "maxUnavailable=1"})

    def proceed() -> bool:
        assert unavailable(sets, 4) <= 1
        for uid, name in uids(sets).items():
            if uid not in played:
                sets.play(name)
                played.add(uid)
        made = sets.set()
        status = made.get("status") or {}
        seen = status.get("observedGeneration") == made["metadata"]["generation"]
        return seen and status.get("updatedReplicas") == 4 and len(sets.alive()) == 4

    eventually(proceed, what="all are replaced")
    assert not before & uids(sets).keys()
    assert {memory_of(vmi) for vmi in sets.alive().values()} == {"128M"}
    assert len(sets.requests("delete")) == 4


def test_r14_a_template_that_does_not_come_up_stops_its_rollout_and_is_reported(sets: ReplicaSetNamespace) -> None:
    sets.make_set(4)
    sets.wait_for(4)
    before = uids(sets).keys()
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 4)
    more_memory(sets, annotations={ROLLING: "maxUnavailable=25%", DEADLINE: "1"})
    eventually(lambda: sets.reasons()["RolloutStalled"] == 1, what="the Event")
    stays(lambda: len(before & uids(sets).keys()) == 3, what="the other three VMIs")
    stays(lambda: sets.reasons()["RolloutStalled"] == 1, what="one Event")


def test_r14_a_set_that_is_taken_over_replaces_its_vmis_only_for_a_new_template(sets: ReplicaSetNamespace) -> None:
    for name in ("one", "two"):
        sets.make_vmi(name)
    sets.make_set(2, annotations={ROLLING: "maxUnavailable=2"})
    eventually(lambda: NOTED in sets.set()["metadata"].get("annotations", {}), what="the template is noted")
    eventually(lambda: sets.status().get("updatedReplicas") == 2)
    stays(lambda: sets.alive().keys() == {"one", "two"}, what="the VMIs of an unchanged template")
    more_memory(sets)
    eventually(lambda: sets.status().get("updatedReplicas") == 2 and not {"one", "two"} & sets.alive().keys())


def test_p20_a_refused_successor_holds_a_rolling_update_on_the_real_api_server(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    before = sets.wait_for(2).keys()
    allow(sets, 1)
    more_memory(sets, annotations={ROLLING: "maxUnavailable=2"})
    eventually(lambda: sets.reasons()["UpdateHeld"] == 1, what="an Event names the VMI")
    eventually(lambda: "would be refused" in sets.status().get("problem", ""), what="PROBLEM says it")
    assert (sets.alive().keys(), sets.requests("delete")) == (before, [])
    allow(sets, 9)
    eventually(lambda: sets.status().get("updatedReplicas") == 2, what="both are replaced")
