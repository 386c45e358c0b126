"""R1: invalid sets, stored under a definition without validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.integration.controller_process import (
    ControllerProcess,
    ReplicaSetNamespace,
    eventually,
    quiet_down,
    stays,
)
from tests.integration.unchecked import GROUP, unchecked_controller
from tests.manifests.documents import REPLICASETS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def unchecked(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """A controller for sets of a test's API group. The CRD of this group has no validation."""
    directory = tmp_path_factory.mktemp("unchecked")
    with unchecked_controller(control_plane, directory, REPLICASETS, "--replicaset-group") as program:
        yield program


@pytest.fixture
def sets(control_plane: ControlPlane, unchecked: ControllerProcess, namespace: str) -> ReplicaSetNamespace:
    assert unchecked.working
    return ReplicaSetNamespace(control_plane, namespace, group=GROUP)


FLAWS: dict[str, dict[str, Any]] = {
    "no-template": {"template": None},
    "no-selector": {"selector": None},
    "empty-selector": {"selector": {}},
    "unknown-operator": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
    "no-labels": {"template": {"metadata": {}, "spec": {"domain": {}}}},
    "other-labels": {"selector": {"matchLabels": {"app": "other"}}},
}


def test_r1_an_invalid_set_changes_nothing_and_is_reported_once_for_each_generation(
    sets: ReplicaSetNamespace, unchecked: ControllerProcess
) -> None:
    orphan = sets.make_vmi("orphan", labels={"app": "other"})
    for name, flaw in FLAWS.items():
        sets.make_set(3, name=name, **flaw)

    def told() -> Counter[str]:
        counted: Counter[str] = Counter()
        for event in sets.events():
            counted[event["involvedObject"]["name"]] += event["count"] if event["reason"] == "InvalidSpec" else 0
        return counted

    def generations() -> dict[str, Any]:
        return {name: sets.status(name).get("observedGeneration") for name in FLAWS}

    once, twice = dict.fromkeys(FLAWS, 1), dict.fromkeys(FLAWS, 2)
    eventually(lambda: told() == once, what="an Event for each set")
    eventually(lambda: generations() == once)
    passes = quiet_down(sets, unchecked)
    stays(lambda: told() == once, for_s=1.5)
    assert unchecked.passes(sets.namespace) <= passes + len(FLAWS), "at most one further pass for each set"
    for name in FLAWS:
        sets.change_set({"spec": {"replicas": 2}}, name=name)
    eventually(lambda: told() == twice, what="Events for the next generation")
    eventually(lambda: generations() == twice)
    assert list(sets.vmis()) == ["orphan"]
    assert sets.vmis()["orphan"]["metadata"]["resourceVersion"] == orphan["metadata"]["resourceVersion"]
    assert not sets.requests("create", "delete")


def test_r1_a_corrected_set_is_reconciled(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2, selector={"matchLabels": {"app": "other"}})
    eventually(lambda: sets.reasons()["InvalidSpec"] == 1)
    sets.change_set({"spec": {"selector": {"matchLabels": {"app": "herd"}}}})
    sets.wait_for(2)


def test_r1_r10_a_create_that_the_server_refuses_as_invalid_is_a_failure_and_no_hot_loop(
    sets: ReplicaSetNamespace,
) -> None:
    sets.make_set(1, template={"metadata": {"labels": {"app": "herd", "bad key!": "x"}}, "spec": {"domain": {}}})
    condition = eventually(lambda: sets.condition("ReplicaFailure"), what="the failure is in the status")
    assert condition["reason"] == "FailedCreate"
    assert "bad key!" in condition["message"]
    stays(lambda: len(sets.requests("create")) < 15, for_s=2.0, what="a few tries, with backoff")
    assert not sets.vmis()
