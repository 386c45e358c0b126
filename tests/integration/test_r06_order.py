"""R6: the order in which VMIs are deleted, criterion by criterion, and the preconditions of a delete request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.controller_process import GROUP_VERSION, LABELS, SPEC, ReplicaSetNamespace, eventually
from tests.integration.denied import denied

pytestmark = pytest.mark.cluster

JANUARY, FEBRUARY = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def state(phase: str = "Running", *, node: str = "", ready: bool = True, since: str = JANUARY, **more: Any) -> Any:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    return {"phase": phase, "conditions": [condition], **({"nodeName": node} if node else {}), **more}


def worth(cost: int, **marks: str) -> dict[str, str]:
    return {"vmherd.dev/deletion-cost": str(cost)} | {f"vmherd.dev/{mark}": value for mark, value in marks.items()}


MOVING = {"migrationState": {"completed": False, "failed": False}}

# The order of the deletions. Every later criterion would choose the successor of a VMI: the names are in the opposite
# order, and no VMI is younger than its successor.
ORDER: dict[str, tuple[Any, dict[str, str]]] = {
    "z-marked": (state(node="n1"), worth(9, remove="true")),
    "y-no-node": (state("Pending", ready=False), worth(8)),
    "x-starting": (state("Scheduled", node="n1", ready=False), worth(7)),
    "w-not-ready": (state(node="n2", ready=False), worth(6)),
    "v-migrating": (state(node="n3", **MOVING), worth(5)),
    "u-cheap": (state(node="n4"), worth(-5)),
    "t-ready-for-a-shorter-time": (state(node="n5", since=FEBRUARY), {}),
    "s-first-by-name": (state(node="n6"), {}),
    "r-last": (state(node="n7"), worth(1)),
}


def put(sets: ReplicaSetNamespace, owner: dict[str, Any], vmis: Mapping[str, tuple[Any, dict[str, str]]]) -> None:
    """Create complete VMIs of the set, so that the controller never sees a partial VMI."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    path = f"/apis/{GROUP_VERSION}/namespaces/{sets.namespace}/virtualmachineinstances"
    for name, (status, marks) in vmis.items():
        metadata = {"name": name, "labels": LABELS, "annotations": marks, "ownerReferences": [reference]}
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
        sets.ask("POST", path, {**kind, "metadata": metadata, "spec": SPEC, "status": status})


def now_at_the_server(sets: ReplicaSetNamespace) -> str:
    """The creation timestamp that a new object would get."""
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    answer = sets.ask("POST", f"/api/v1/namespaces/{sets.namespace}/configmaps?dryRun=All", probe)
    time: str = answer["metadata"]["creationTimestamp"]
    return time


def shrink_to(sets: ReplicaSetNamespace, count: int, *, seen: int) -> list[str]:
    """Wait until the status of the paused set counts `seen` VMIs. Resume the set with `count` replicas. Return the
    names of the VMIs that stay.
    """
    eventually(lambda: sets.status().get("replicas") == seen, what="all VMIs are seen")
    sets.change_set({"spec": {"paused": False, "replicas": count}})
    return sorted(sets.wait_for(count))


def test_r6_each_criterion_outweighs_all_that_come_after_it(sets: ReplicaSetNamespace) -> None:
    put(sets, sets.make_set(len(ORDER), paused=True), ORDER)
    left = list(ORDER)
    while len(left) > 1:
        seen = len(left)
        del left[0]
        assert shrink_to(sets, len(left), seen=seen) == sorted(left)


def test_r6_of_two_equal_vmis_the_younger_is_deleted(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(2, paused=True)
    put(sets, owner, {"a": (state(node="n1"), {})})
    born = sets.vmis()["a"]["metadata"]["creationTimestamp"]
    eventually(lambda: now_at_the_server(sets) > born, what="a later creation timestamp")
    put(sets, owner, {"z": (state(node="n2"), {})})
    assert shrink_to(sets, 1, seen=2) == ["a"]


def test_r6_a_delete_has_the_uid_as_precondition(sets: ReplicaSetNamespace) -> None:
    has_uid = "has(request.options.preconditions) && has(request.options.preconditions.uid)"
    sets.make_set(2)
    first, second = sets.wait_for(2)
    # The set deletes one of the two. Then the dry run for the other shows that the policy is gone.
    sets.play(second)
    eventually(lambda: sets.status().get("readyReplicas") == 1, what="the ready VMI is seen")
    with denied(sets, "DELETE", "virtualmachineinstances", name=second, unless=has_uid, message="which one?"):
        sets.change_set({"spec": {"replicas": 1}})
        assert sets.wait_for(1).keys() == {second}
        assert first not in sets.vmis()
        assert "FailedDelete" not in sets.reasons()
