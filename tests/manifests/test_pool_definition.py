"""The definition of pools in kubectl: names, columns, explanations, versions, subresources."""

from __future__ import annotations

import pytest

from tests.cluster import Kubectl
from tests.integration.waits import eventually
from tests.manifests.documents import POOLS, columns, load, pool, status_patch, undescribed_fields

pytestmark = pytest.mark.cluster

EXPLAINED = {
    "vmpool": "keeps a number of VirtualMachines",
    "vmpool.spec.virtualMachineTemplate.spec": "a VirtualMachine spec",
    "vmpool.spec.maxUnavailable": "The maximum number of VMs that updates and healing",
    "vmpool.spec.appendPostfixToSecretReferences": "The old name of nameGeneration.appendIndexToSecretRefs",
    "vmpool.status": "The state of the pool in one word",
}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_a_pool_can_be_written_and_read_in_both_versions(kubectl: Kubectl, version: str) -> None:
    kubectl.create(pool({"apiVersion": f"pool.kubevirt.io/{version}"}))
    for other in ("v1beta1", "v1alpha1"):
        document = kubectl.json("get", f"virtualmachinepools.{other}.pool.kubevirt.io", "web")
        assert (document["apiVersion"], document["spec"]) == (f"pool.kubevirt.io/{other}", pool()["spec"])


def test_pools_are_stored_in_the_newer_version(kubectl: Kubectl) -> None:
    assert kubectl.json("get", "crd", load(POOLS)["metadata"]["name"])["status"]["storedVersions"] == ["v1beta1"]


@pytest.mark.parametrize("name", ["vmpool", "vmpools", "virtualmachinepool"])
def test_each_name_prints_the_columns_of_a_pool(kubectl: Kubectl, name: str) -> None:
    kubectl.create(pool())
    kubectl("patch", "vmpool", "web", *status_patch('{"replicas": 4, "readyReplicas": 3}', spec='{"replicas": 8}'))
    header, row = kubectl("get", name).stdout.splitlines()
    assert columns(header) == "NAME DESIRED CURRENT READY AGE"
    assert columns(row).startswith("web 2 4 3 ")


def test_get_all_shows_pools(kubectl: Kubectl) -> None:
    kubectl.create(pool())
    assert kubectl("get", "all", "-o", "name").stdout.split() == ["virtualmachinepool.pool.kubevirt.io/web"]


@pytest.mark.parametrize(("field", "words"), EXPLAINED.items(), ids=EXPLAINED)
def test_kubectl_explains_a_field_of_a_pool(kubectl: Kubectl, field: str, words: str) -> None:
    # The API server publishes the schema of a new kind after a delay.
    eventually(lambda: words in columns(kubectl("explain", field, check=False).stdout), what=field)


def test_every_field_of_a_pool_is_explained() -> None:
    assert undescribed_fields(POOLS) == []


def test_kubectl_autoscale_makes_an_autoscaler_for_a_pool(kubectl: Kubectl) -> None:
    kubectl.create(pool())
    kubectl("autoscale", "vmpool", "web", "--min=3", "--max=10", "--cpu=50%")
    spec = kubectl.json("get", "hpa", "web")["spec"]
    target = spec["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("VirtualMachinePool", "web")
    assert target["apiVersion"] == "pool.kubevirt.io/v1beta1"
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 10)


def test_the_status_of_a_pool_is_written_only_through_its_subresource(kubectl: Kubectl) -> None:
    kubectl.create(pool({"status": {"replicas": 9}}))
    assert kubectl.json("get", "vmpool", "web")["status"] == {"observedGeneration": -1}
    kubectl("patch", "vmpool", "web", *status_patch('{"replicas": 9}', spec='{"replicas": 8}'))
    document = kubectl.json("get", "vmpool", "web")
    assert (document["status"]["replicas"], document["spec"]["replicas"]) == (9, 2)


def test_the_status_of_a_pool_has_every_reported_field(kubectl: Kubectl) -> None:
    """P17: the schema knows every reported field, and prunes none."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": "exceeded quota"}
    times = {"lastProbeTime": "2026-08-01T12:00:00Z", "lastTransitionTime": "2026-08-01T12:00:00Z"}
    status = {
        "replicas": 3,
        "readyReplicas": 2,
        "updatedReplicas": 1,
        "observedGeneration": 4,
        "labelSelector": "app=web",
        "currentRevision": "web-1",
        "updateRevision": "web-4",
        "printableStatus": "Updating",
        "problem": "web-3: ImagePullBackOff, Back-off pulling image",
        "conditions": [{**condition, **times}],
    }
    kubectl.create(pool())
    kubectl("replace", "--subresource=status", "--validate=strict", "-f", "-", stdin=pool({"status": status}))
    assert kubectl.json("get", "vmpool", "web")["status"] == status
