"""The version of a kind in which the controller reads and writes objects."""

import pytest

from controller.config.settings import Config
from controller.kinds import POOLS, REPLICA_SETS
from controller.preflight.versions import served_resource, with_served_versions
from tests.controller.takeover.answers import Answers

GROUP = "/apis/pool.kubevirt.io"


def serving(*versions: str) -> Answers:
    """An API server that serves pools in these versions."""
    server = Answers()
    server.by_path = {f"{GROUP}/{version}": [{"resources": [{"name": "virtualmachinepools"}]}] for version in versions}
    return server


CHOICES = {
    "both": (("v1beta1", "v1alpha1"), "v1beta1"),
    "KubeVirt up to 1.6": (("v1alpha1",), "v1alpha1"),
    "a KubeVirt with v1": (("v1", "v1beta1"), "v1beta1"),
    "a KubeVirt with only v1": (("v1",), "v1"),
    "only v1beta1": (("v1beta1",), "v1beta1"),
    "none": ((), "v1beta1"),
}


@pytest.mark.parametrize(("served", "chosen"), CHOICES.values(), ids=CHOICES)
async def test_the_first_served_version_is_chosen(served: tuple[str, ...], chosen: str) -> None:
    config = await with_served_versions(serving(*served), Config())
    assert config.versions == {"pool": chosen}
    assert config.resource_of(POOLS).api_version == f"pool.kubevirt.io/{chosen}"
    assert config.resource_of(REPLICA_SETS).api_version == "kubevirt.io/v1"
    resource = await served_resource(serving(*served), POOLS)
    assert resource.api_version == f"pool.kubevirt.io/{chosen}"


async def test_a_kind_with_one_version_needs_no_request() -> None:
    server = serving()
    await served_resource(server, REPLICA_SETS)
    assert server.asked == []
