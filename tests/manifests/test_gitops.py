"""The health checks for Argo CD and Flux in manifests/gitops, in the interpreters of these tools: gopher-lua and
cel-go. The Go module `tools/gitops` pins both.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kinds import KINDS
from tests.gomodules import GITOPS, check_or_skip

DIRECTORY = Path(__file__).resolve().parents[2] / "manifests" / "gitops"
CHECKS = yaml.safe_load((DIRECTORY / "argocd-cm.yaml").read_text())["data"]
EXPRESSIONS = yaml.safe_load((DIRECTORY / "flux-takeover.yaml").read_text())["spec"]["healthCheckExprs"]
[HEALTH] = set(CHECKS.values())

pytestmark = pytest.mark.e2e

PROBLEM = "web-3: ImagePullBackOff, Back-off pulling image"


def evaluate(**task: Any) -> Any:
    """Return the result of a task, which is an `object`, and a script `lua` or an expression `cel`."""
    program, line = check_or_skip("gitops", GITOPS), json.dumps(task)
    done = subprocess.run([str(program)], input=line, capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stdout)


def pool(status: dict[str, Any] | None, *, paused: bool = False, **metadata: Any) -> dict[str, Any]:
    item = {"metadata": {"name": "web", "generation": 2, **metadata}, "spec": {"replicas": 2, "paused": paused}}
    return item if status is None else {**item, "status": status}


def counted(**fields: Any) -> dict[str, Any]:
    return {"replicas": 2, "readyReplicas": 2, **fields}


def condition(type_: str, *, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": "Degraded", "message": PROBLEM}


RECONCILING, STALLED, PAUSED = (condition(type_) for type_ in ("Reconciling", "Stalled", "ReplicaPaused"))

FINE, WORKING = (("Healthy", ""), "Current"), (("Progressing", PROBLEM), "InProgress")
OBJECTS: dict[str, tuple[dict[str, Any], tuple[str, str], str]] = {
    "at rest": (pool(counted(observedGeneration=2)), *FINE),
    "with no VM": (pool({"replicas": 0, "observedGeneration": 2}), *FINE),
    "in progress": (pool(counted(observedGeneration=2, conditions=[RECONCILING])), *WORKING),
    "stalled": (pool(counted(observedGeneration=2, conditions=[STALLED])), ("Degraded", PROBLEM), "Failed"),
    "paused": (
        pool(counted(observedGeneration=2, conditions=[PAUSED]), paused=True),
        ("Suspended", "paused"),
        "Current",
    ),
    "with conditions that are not true": (
        pool(counted(observedGeneration=2, conditions=[condition("Stalled", status="False")])),
        *FINE,
    ),
    "with KubeVirt's CRD": (pool(counted()), *FINE),
    "in progress with KubeVirt's CRD": (pool(counted(conditions=[RECONCILING])), *WORKING),
    "new": (pool({"observedGeneration": -1}), ("Progressing", "vmherd has not read the object yet"), "InProgress"),
}


@pytest.mark.parametrize(("item", "expected", "_"), OBJECTS.values(), ids=OBJECTS)
def test_argo_cd_shows_the_health_of_an_object(item: dict[str, Any], expected: tuple[str, str], _: str) -> None:
    found = evaluate(lua=HEALTH, object=item)
    assert (found["status"], found["message"]) == expected


UNREAD = {
    "an object without a status": (pool(None), "vmherd has not read the object yet"),
    "a changed object": (pool(counted(observedGeneration=1)), "vmherd has not read the newest spec yet"),
    "a terminating object": (pool(counted(), deletionTimestamp="2026-08-01T12:00:00Z"), "being deleted"),
}


@pytest.mark.parametrize(("item", "message"), UNREAD.values(), ids=UNREAD)
def test_argo_cd_waits_for(item: dict[str, Any], message: str) -> None:
    assert evaluate(lua=HEALTH, object=item) == {"status": "Progressing", "message": message}


def test_argo_cd_has_a_health_check_for_each_kind_in_each_group() -> None:
    names = {
        f"resource.customizations.health.{group}_{kind.kind}"
        for kind in KINDS
        for group in (kind.group, kind.own_group)
    }
    assert set(CHECKS) == names


def flux_status_of(item: dict[str, Any]) -> str:
    """The status that Flux derives from the expressions. It checks progress first, then failure."""
    values = {name: evaluate(cel=EXPRESSIONS[0][name], object=item) for name in ("inProgress", "failed", "current")}
    if values["inProgress"] is True:
        return "InProgress"
    return "Failed" if values["failed"] is True else "Current" if values["current"] is True else "InProgress"


@pytest.mark.parametrize(("item", "_", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_flux_waits_for_an_object_with_the_expressions(item: dict[str, Any], _: object, expected: str) -> None:
    assert flux_status_of(item) == expected


def test_the_expressions_of_flux_are_for_kubevirts_groups_and_newest_versions() -> None:
    assert {(each["apiVersion"], each["kind"]) for each in EXPRESSIONS} == {
        (f"{kind.group}/{kind.version}", kind.kind) for kind in KINDS
    }
    assert len({(each["inProgress"], each["failed"], each["current"]) for each in EXPRESSIONS}) == 1
