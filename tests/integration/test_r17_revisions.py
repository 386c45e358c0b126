"""R17: ControllerRevisions keep the templates of a set, so that a user can return to an earlier template."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    GROUP_VERSION,
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)

pytestmark = pytest.mark.cluster

HASH = "vmherd.dev/template-hash"


def revisions(sets: ReplicaSetNamespace) -> dict[str, dict[str, Any]]:
    items = sets.ask("GET", f"/apis/apps/v1/namespaces/{sets.namespace}/controllerrevisions")["items"]
    return {each["metadata"]["name"]: each for each in items}


def memories(sets: ReplicaSetNamespace) -> set[str]:
    """The amounts of memory in the stored templates."""
    return {
        each["data"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"]
        for each in revisions(sets).values()
    }


def change_memory(sets: ReplicaSetNamespace, memory: str) -> None:
    domain = {"resources": {"requests": {"memory": memory}}}
    sets.change_set({"spec": {"template": {"spec": {"domain": domain}}}})


def written(sets: ReplicaSetNamespace) -> Counter[tuple[str, int]]:
    """The number of the controller's writes of revisions, by verb and status code."""
    return Counter(
        (each.verb, each.code)
        for each in sets.plane.audit_records(sets.since)
        if each.resource == "controllerrevisions"
        and each.namespace == sets.namespace
        and each.user_agent.startswith("vmherd/")
    )


def test_r17_a_revision_stores_the_template_of_a_set_and_goes_with_the_set(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(2)
    [hashed] = {vmi["metadata"]["labels"][HASH] for vmi in sets.wait_for(2).values()}
    eventually(lambda: revisions(sets), what="the revision")
    [(name, revision)] = revisions(sets).items()
    assert name == f"herd-{hashed}"
    assert revision["metadata"]["labels"] == {HASH: hashed}
    assert revision["revision"] == owner["metadata"]["generation"]
    assert revision["data"] == {"template": owner["spec"]["template"]}
    assert revision["metadata"]["ownerReferences"] == [
        {
            "apiVersion": GROUP_VERSION,
            "kind": "VirtualMachineInstanceReplicaSet",
            "name": "herd",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    for replicas in (4, 0, 1):
        sets.change_set({"spec": {"replicas": replicas}})
        sets.wait_for(replicas)
    assert written(sets) == {("create", 201): 1}
    sets.kubectl("delete", "vmirs", "herd", "--timeout=30s")
    eventually(lambda: not revisions(sets), what="the revision goes with the set")
    assert written(sets) == {("create", 201): 1}, "it is the garbage collector that deletes"


def test_r17_with_cascade_orphan_the_controller_deletes_the_revisions(sets: ReplicaSetNamespace) -> None:
    # The garbage collector's patch fails if the API server would encode the data in another way.
    sets.make_set(2, template_metadata={"annotations": {"note": "<1>"}})
    before = sets.wait_for(2)
    change_memory(sets, "128M")
    eventually(lambda: len(revisions(sets)) == 2, what="both templates are stored")
    sets.kubectl("delete", "vmirs", "herd", "--cascade=orphan", "--timeout=30s")
    eventually(lambda: not revisions(sets), what="the revisions are deleted")
    stays(lambda: sets.alive().keys() == before.keys(), what="the VMIs")


def test_r17_each_new_template_is_stored_and_the_oldest_are_pruned_also_after_crashes(
    idle_namespace: ReplicaSetNamespace, tmp_path: Path
) -> None:
    flags = ("--no-leader-elect", "--revision-history=2")
    with controller_process(idle_namespace.plane, tmp_path, *flags) as program:
        idle_namespace.make_set(1)
        idle_namespace.wait_for(1)
        eventually(lambda: memories(idle_namespace) == {"64M"}, what="the first template")
        change_memory(idle_namespace, "65M")
        eventually(lambda: memories(idle_namespace) == {"64M", "65M"}, what="the second template")
        eventually(lambda: written(idle_namespace) == {("create", 201): 2}, what="no write is under way")
        program.kill()
    change_memory(idle_namespace, "66M")
    with controller_process(idle_namespace.plane, tmp_path, *flags) as program:
        eventually(lambda: memories(idle_namespace) == {"64M", "65M", "66M"}, what="the template changed meanwhile")
        change_memory(idle_namespace, "67M")
        eventually(lambda: "67M" in memories(idle_namespace), what="the fourth template")
        eventually(lambda: written(idle_namespace) == {("create", 201): 4}, what="no write is under way")
        program.kill()
    with controller_process(idle_namespace.plane, tmp_path, *flags):
        for memory in ("68M", "69M"):
            change_memory(idle_namespace, memory)
            eventually(lambda memory=memory: memory in memories(idle_namespace), what=memory)
        # The VMI was created from the first template.
        left = {"64M", "67M", "68M", "69M"}
        eventually(lambda: memories(idle_namespace) == left, what="the older templates are pruned")
        change_memory(idle_namespace, "67M")
        eventually(lambda: idle_namespace.status().get("observedGeneration") == 7, what="the undo is seen")
        stays(lambda: memories(idle_namespace) == left, what="an undo creates no revision")
    assert written(idle_namespace) == {("create", 201): 6, ("delete", 200): 2}


def test_r17_a_flag_switches_the_history_of_sets_off(idle_namespace: ReplicaSetNamespace, tmp_path: Path) -> None:
    with controller_process(idle_namespace.plane, tmp_path, *PATIENT_LEASE, "--no-replicaset-history"):
        idle_namespace.make_set(1)
        idle_namespace.wait_for(1)
        change_memory(idle_namespace, "128M")
        eventually(lambda: idle_namespace.status().get("observedGeneration") == 2)
        stays(lambda: not revisions(idle_namespace), what="no revision")
    assert written(idle_namespace) == {}
