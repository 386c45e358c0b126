"""Every example works as it stands: `kubectl apply -f` and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Kubectl
from tests.manifests.documents import EXAMPLES, load

REPLICASET = "VirtualMachineInstanceReplicaSet"
OF_THE_GUIDES = {
    "hpa-v1-lab05-cirros",
    "hpa-v1alpha3-myhpa",
    "replicaset-v1-lab05-cirros",
    "replicaset-v1-vmi-ephemeral",
    "replicaset-v1alpha2-containerdisk",
    "replicaset-v1alpha2-registrydisk",
    "replicaset-v1alpha3",
    "replicaset-v1alpha3-vmi-replicaset-cirros",
    "service-vmiservice",
}

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for path in EXAMPLES if (document := load(path))["kind"] == kind]


def without_nulls(value: Any) -> Any:
    """What is left of a document when kubectl has applied it: it drops null fields on the way."""
    match value:
        case dict():
            return {key: without_nulls(field) for key, field in value.items() if field is not None}
        case list():
            return [without_nulls(item) for item in value]
        case _:
            return value


def test_the_examples_of_the_guides_are_all_there() -> None:
    assert {path.stem for path in EXAMPLES} >= OF_THE_GUIDES


@each_example
def test_an_example_begins_with_one_line_that_says_what_it_is(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()
    assert first.startswith("# ")
    assert second.startswith("apiVersion: ")


@each_example
def test_an_example_is_named_after_its_kind_and_version(path: Path) -> None:
    document = load(path)
    reference = document["spec"].get("scaleTargetRef", document)
    version = reference["apiVersion"].removeprefix("kubevirt.io/")
    prefix = {REPLICASET: f"replicaset-{version}", "HorizontalPodAutoscaler": f"hpa-{version}", "Service": "service"}
    assert path.stem.startswith(prefix[document["kind"]])


@pytest.mark.cluster
@each_example
def test_an_example_can_be_applied_and_applied_again(kubectl: Kubectl, path: Path) -> None:
    """R13 among others: no manifest of any age needs a change."""
    for _ in range(2):
        assert kubectl("apply", "--validate=strict", "-f", str(path)).stderr == ""
    document = load(path)
    stored = kubectl.json("get", document["kind"], document["metadata"]["name"])
    assert stored["metadata"].get("generation", 1) == 1
    if document["kind"] == REPLICASET:
        assert without_nulls(stored["spec"]) == without_nulls(document["spec"])


@pytest.mark.cluster
@each_example
def test_an_example_can_be_created_as_the_guides_do_it(kubectl: Kubectl, path: Path) -> None:
    assert kubectl("create", "-f", str(path)).stdout.endswith(" created\n")
    document = load(path)
    if document["kind"] == REPLICASET:
        stored = kubectl.json("get", document["kind"], document["metadata"]["name"])
        assert stored["spec"] == document["spec"]


def test_an_autoscaler_has_its_set_among_the_examples() -> None:
    sets = {(document["apiVersion"], document["metadata"]["name"]) for document in of_kind(REPLICASET)}
    targets = [document["spec"]["scaleTargetRef"] for document in of_kind("HorizontalPodAutoscaler")]
    assert targets
    for target in targets:
        assert (target["apiVersion"], target["name"]) in sets


def test_a_service_selects_the_vmis_of_one_set() -> None:
    labels = [document["spec"]["template"]["metadata"]["labels"] for document in of_kind(REPLICASET)]
    services = of_kind("Service")
    assert services
    for service in services:
        selected = [each for each in labels if service["spec"]["selector"].items() <= each.items()]
        assert len(selected) == 1
