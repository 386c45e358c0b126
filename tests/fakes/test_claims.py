"""The claims of the simulated KubeVirt in memory. `tests/sandbox/test_storage.py` asks the real API server the same."""

import json

import pytest

from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from informers.errors import ApiError
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests.fakes.apiserver import CREATED, FakeApiServer
from tests.fakes.kubevirt import FakeKubeVirt
from tests.fakes.virtual_time import run

DISK = ObjectKey("default", "disk")


def with_claim(*, cdi: bool = True) -> tuple[FakeApiServer, FakeKubeVirt]:
    server = FakeApiServer(latency_s=0)
    kubevirt = FakeKubeVirt(server, now=lambda: CREATED, cdi=cdi)
    template = {"metadata": {"name": "disk"}, "spec": {"storage": {"resources": {"requests": {"storage": "2Gi"}}}}}
    spec = {"runStrategy": "Halted", "dataVolumeTemplates": [template], "template": {"spec": {}}}
    server.put(VMS, {"metadata": {"name": "vm"}, "spec": spec})
    kubevirt.act()
    return server, kubevirt


def resize(server: FakeApiServer, size: str) -> None:
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": size}}}}).encode()
    run(server.patch(PVCS, DISK, patch, content_type=PatchType.MERGE))


@pytest.mark.parametrize("cdi", [True, False])
def test_a_claim_has_the_size_of_its_template_and_its_capacity_follows_the_request(cdi: bool) -> None:
    server, kubevirt = with_claim(cdi=cdi)
    assert server.document(PVCS, DISK)["status"] == {"phase": "Bound", "capacity": {"storage": "2Gi"}}
    resize(server, "3Gi")
    assert server.document(PVCS, DISK)["status"]["capacity"] == {"storage": "2Gi"}
    kubevirt.act()
    assert server.document(PVCS, DISK)["status"]["capacity"] == {"storage": "3Gi"}
    if cdi:
        assert server.document(DATA_VOLUMES, DISK)["spec"]["storage"]["resources"]["requests"] == {"storage": "2Gi"}


def test_a_claim_neither_shrinks_nor_grows_in_a_class_of_fixed_size() -> None:
    server, kubevirt = with_claim()
    with pytest.raises(ApiError, match=r"field can not be less than status\.capacity"):
        resize(server, "1Gi")
    kubevirt.fixed_classes.add("standard")
    with pytest.raises(ApiError, match='"disk" is forbidden: only dynamically provisioned pvc can be resized'):
        resize(server, "3Gi")
    assert server.document(PVCS, DISK)["spec"]["resources"]["requests"] == {"storage": "2Gi"}
