"""R1: objects that are invalid all the same, stored under a definition that does not check them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.integration.herd import Herd, Place, eventually, herd, stays

pytestmark = pytest.mark.cluster

GROUP = "unchecked.vmherd.dev"
DEFINITION = Path(__file__).parents[2] / "manifests/crds/kubevirt.io_virtualmachineinstancereplicasets.yaml"


@pytest.fixture(scope="module")
def unchecked(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    """A controller for sets of a group whose definition accepts anything."""
    definition = yaml.safe_load(DEFINITION.read_text())
    spec = definition["spec"]
    definition["metadata"]["name"] = f"{spec['names']['plural']}.{GROUP}"
    spec["group"] = GROUP
    spec["names"] |= {"shortNames": ["uvmirs"], "categories": []}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in spec["versions"]:
        properties = {"spec": anything, "status": anything}
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    kubectl = Kubectl(control_plane.kubeconfig)
    kubectl.apply(definition)
    kubectl("wait", "--for=condition=Established", "crd", definition["metadata"]["name"])
    flags = ("--replicaset-group", GROUP, "--leader-election-id", "unchecked")
    with herd(control_plane, tmp_path_factory.mktemp("unchecked"), *flags) as program:
        yield program
    kubectl("delete", "crd", definition["metadata"]["name"])


@pytest.fixture
def place(control_plane: ControlPlane, unchecked: Herd, namespace: str) -> Place:
    assert unchecked.working
    return Place(control_plane, namespace, group=GROUP)


FLAWS: dict[str, dict[str, Any]] = {
    "no template": {"template": None},
    "no selector": {"selector": None},
    "an empty selector": {"selector": {}},
    "an unknown operator": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
    "no labels": {"template": {"metadata": {}, "spec": {"domain": {}}}},
    "labels that do not match": {"selector": {"matchLabels": {"app": "other"}}},
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_r1_an_invalid_set_does_nothing_and_says_so_once_a_generation(place: Place, unchecked: Herd, flaw: str) -> None:
    orphan = place.make_vmi("orphan", labels={"app": "other"})
    place.make_set(3, **FLAWS[flaw])
    eventually(lambda: place.reasons()["InvalidSpec"] == 1, what="an Event says what is wrong")
    eventually(lambda: place.status().get("observedGeneration") == 1)
    passes = unchecked.passes(place.namespace)
    stays(lambda: place.reasons()["InvalidSpec"] == 1, for_s=1.5)
    assert unchecked.passes(place.namespace) <= passes + 1
    place.change_set({"spec": {"replicas": 2}})
    eventually(lambda: place.reasons()["InvalidSpec"] == 2, what="the next generation is told again")
    eventually(lambda: place.status().get("observedGeneration") == 2)
    assert list(place.vmis()) == ["orphan"]
    assert place.vmis()["orphan"]["metadata"]["resourceVersion"] == orphan["metadata"]["resourceVersion"]
    assert not place.requests("create", "delete")


def test_r1_a_set_that_is_mended_goes_to_work(place: Place) -> None:
    place.make_set(2, selector={"matchLabels": {"app": "other"}})
    eventually(lambda: place.reasons()["InvalidSpec"] == 1)
    place.change_set({"spec": {"selector": {"matchLabels": {"app": "herd"}}}})
    place.wait_for(2)


def test_r1_r10_a_create_that_the_server_refuses_as_invalid_is_a_failure_and_no_hot_loop(place: Place) -> None:
    place.make_set(1, template={"metadata": {"labels": {"app": "herd", "bad key!": "x"}}, "spec": {"domain": {}}})
    condition = eventually(lambda: place.condition("ReplicaFailure"), what="the failure is shown")
    assert condition["reason"] == "FailedCreate"
    assert "bad key!" in condition["message"]
    stays(lambda: len(place.requests("create")) < 15, for_s=2.0, what="a few tries, with backoff")
    assert not place.vmis()
