"""Every example works without changes with `kubectl apply -f`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import Kubectl
from tests.manifests.documents import EXAMPLES, ROOT, load

REPLICASET = "VirtualMachineInstanceReplicaSet"
POOL = "VirtualMachinePool"
MACHINES = {REPLICASET: "template", POOL: "virtualMachineTemplate"}
"""The kinds that create machines, and the path of their template."""

OF_THE_GUIDES = {
    "hpa-v1alpha1-vm-pool-cirros",
    "pool-v1alpha1-vm-pool-cirros",
    "service-vm-pool-cirros-ssh",
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
    """The document without null fields, which kubectl drops."""
    match value:
        case dict():
            return {key: without_nulls(field) for key, field in value.items() if field is not None}
        case list():
            return [without_nulls(item) for item in value]
        case _:
            return value


def test_all_examples_of_the_guides_exist() -> None:
    assert {path.stem for path in EXAMPLES} >= OF_THE_GUIDES


def test_each_example_pool_has_disks_with_names_of_its_own() -> None:
    """Pools of a namespace with the same name of a dataVolumeTemplate would use the same disks."""
    texts = (path.read_text() for path in (ROOT / "docs" / "examples").glob("*.yaml"))
    pools = [*of_kind(POOL), *(each for text in texts for each in yaml.safe_load_all(text))]
    specs = [pool["spec"]["virtualMachineTemplate"]["spec"] for pool in pools if pool["kind"] == POOL]
    names = [disk["metadata"]["name"] for spec in specs for disk in spec.get("dataVolumeTemplates") or ()]
    assert len({*names}) == len(names) >= 3


@each_example
def test_an_example_begins_with_one_line_that_says_what_it_is(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()
    assert first.startswith("# ")
    assert second.startswith("apiVersion: ")


@each_example
def test_an_example_is_named_after_its_kind_and_version(path: Path) -> None:
    """The version in a file's name is the version of the file's object. In the name of an `autoscaling/v1` file, it is
    the version of the target.
    """
    document = load(path)
    guides = document["apiVersion"] == "autoscaling/v1"
    version = (document["spec"]["scaleTargetRef"] if guides else document)["apiVersion"].rpartition("/")[2]
    names = {REPLICASET: f"replicaset-{version}", POOL: f"pool-{version}", "HorizontalPodAutoscaler": f"hpa-{version}"}
    assert path.stem.startswith(names.get(document["kind"], document["kind"].lower()))


@pytest.mark.cluster
@each_example
def test_an_example_can_be_applied_and_applied_again(kubectl: Kubectl, path: Path) -> None:
    """R13: an example can be applied twice without warnings, and the second time changes nothing."""
    for _ in range(2):
        assert kubectl("apply", "--validate=strict", "-f", str(path)).stderr == ""
    document = load(path)
    stored = kubectl.json("get", document["kind"], document["metadata"]["name"])
    assert stored["metadata"].get("generation", 1) == 1
    if document["kind"] in MACHINES:
        default = {"maxUnavailable": "100%"} if document["kind"] == POOL else {}
        assert without_nulls(stored["spec"]) == without_nulls({**default, **document["spec"]})


def test_an_autoscaler_has_its_target_among_the_examples() -> None:
    targets = {
        (document["apiVersion"], kind, document["metadata"]["name"]) for kind in MACHINES for document in of_kind(kind)
    }
    autoscalers = of_kind("HorizontalPodAutoscaler")
    assert {document["spec"]["scaleTargetRef"]["kind"] for document in autoscalers} == set(MACHINES)
    for document in autoscalers:
        target = document["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"], target["name"]) in targets


def test_a_service_selects_the_machines_of_one_example() -> None:
    labels = [document["spec"]["template"]["metadata"]["labels"] for document in of_kind(REPLICASET)]
    vm_specs = [document["spec"]["virtualMachineTemplate"]["spec"] for document in of_kind(POOL)]
    labels += [spec["template"]["metadata"]["labels"] for spec in vm_specs]
    services = of_kind("Service")
    assert services
    for service in services:
        selected = [each for each in labels if service["spec"]["selector"].items() <= each.items()]
        assert len(selected) == 1


def test_the_examples_include_the_secret_and_the_config_map_of_each_vm() -> None:
    [document] = [each for each in of_kind(POOL) if each["spec"].get("appendPostfixToSecretReferences")]
    names = {kind: {each["metadata"]["name"] for each in of_kind(kind)} for kind in ("Secret", "ConfigMap")}
    volumes = {
        volume["name"]: volume
        for volume in document["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["volumes"]
    }
    for ordinal in range(document["spec"]["replicas"]):
        assert f"{volumes['cloudinitdisk']['cloudInitNoCloud']['secretRef']['name']}-{ordinal}" in names["Secret"]
        assert f"{volumes['settings']['configMap']['name']}-{ordinal}" in names["ConfigMap"]
