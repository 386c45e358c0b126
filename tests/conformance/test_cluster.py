"""Discovery of the group and version of each kind, and of the controller that reconciles the kind."""

from typing import Any

import pytest

from conformance.case import Kind
from conformance.cluster import changes_running_vms, expands_claims, find_subject, probe, serves
from tests.conformance.stored_objects import StoredObjects, case_namespace

pytestmark = pytest.mark.looptime

POOLS = "virtualmachinepools"


def serving(server: StoredObjects, group: str, *versions: str, plural: str = POOLS) -> None:
    """Let the server serve the resource in these versions of the group."""
    resource = {"name": plural, "kind": "VirtualMachinePool", "shortNames": ["vmpool"]}
    server.objects[f"/apis/{group}"] = {"versions": [{"version": version} for version in versions]}
    for version in versions:
        server.objects[f"/apis/{group}/{version}"] = {"resources": [resource, {"name": f"{plural}/scale"}]}


async def test_the_first_group_that_serves_the_kind_is_used(server: StoredObjects):
    serving(server, "pool.kubevirt.io", "v1beta1", "v1alpha1")
    found = await find_subject(server.api, Kind.POOLS, ["pool.vmherd.dev", "pool.kubevirt.io"])
    assert found is not None
    assert (found.group, found.version, found.short_names) == ("pool.kubevirt.io", "v1beta1", ("vmpool",))
    assert found.path("here") == "/apis/pool.kubevirt.io/v1beta1/namespaces/here/virtualmachinepools"
    serving(server, "pool.vmherd.dev", "v1beta1")
    own = await find_subject(server.api, Kind.POOLS, ["pool.vmherd.dev", "pool.kubevirt.io"])
    assert own is not None
    assert own.group == "pool.vmherd.dev"


async def test_a_cluster_that_serves_pools_only_as_v1alpha1_is_used(server: StoredObjects):
    serving(server, "pool.kubevirt.io", "v1alpha1")
    found = await find_subject(server.api, Kind.POOLS, ["pool.kubevirt.io"])
    assert found is not None
    assert found.api_version == "pool.kubevirt.io/v1alpha1"


async def test_a_group_without_the_kind_does_not_serve_it(server: StoredObjects):
    serving(server, "pool.kubevirt.io", "v1beta1", plural="others")
    assert await find_subject(server.api, Kind.POOLS, ["pool.kubevirt.io"]) is None
    assert await serves(server.api, "pool.kubevirt.io/v1beta1", "others")
    assert not await serves(server.api, "cdi.kubevirt.io/v1beta1", "datavolumes")


@pytest.mark.parametrize(
    ("is_default", "grows", "expected"), [("true", True, True), ("true", False, False), (None, True, False)]
)
async def test_only_the_default_storage_class_shows_whether_claims_grow(
    is_default: str | None, grows: bool, expected: bool, server: StoredObjects
):
    marks = {"storageclass.kubernetes.io/is-default-class": is_default} if is_default else None
    found = {"metadata": {"name": "standard", "annotations": marks}, "allowVolumeExpansion": grows}
    server.objects["/apis/storage.k8s.io/v1/storageclasses"] = {"items": [found]}
    assert await expands_claims(server.api) is expected


@pytest.mark.parametrize(("strategy", "expected"), [("LiveUpdate", True), ("Stage", False), (None, False)])
async def test_the_kubevirt_object_says_whether_running_vms_are_changed(
    strategy: str | None, expected: bool, server: StoredObjects
):
    assert not await changes_running_vms(server.api), "the kind is not served"
    server.objects["/apis/kubevirt.io/v1"] = {"resources": [{"name": "kubevirts"}]}
    kubevirt = {"spec": {"configuration": {"vmRolloutStrategy": strategy}}}
    server.objects["/apis/kubevirt.io/v1/kubevirts"] = {"items": [kubevirt]}
    assert await changes_running_vms(server.api) is expected


def fields(manager: str, subresource: str = "") -> dict[str, Any]:
    return {"managedFields": [{"manager": manager, "subresource": subresource}]}


@pytest.mark.parametrize(
    ("controller", "runner", "found"),
    [("virt-controller", "virt-handler", ("virt-controller", False)), ("vmherd", "vmherd-simulator", ("vmherd", True))],
)
async def test_the_probe_finds_the_controller_and_the_simulator(
    controller: str, runner: str, found: tuple[str, bool], server: StoredObjects
):
    space = case_namespace(server)

    def reconcile(method: str, path: str) -> None:
        if len(server.requests) == 4:
            server.objects[space.path("probe")]["metadata"].update(fields(controller, "status"))
            server.put(f"{space.vmi_path}/vmi", {"metadata": fields(runner), "status": {"phase": "Running"}})

    server.on_request = reconcile
    assert await probe(space) == found


async def test_without_a_controller_the_probe_finds_no_controller(server: StoredObjects):
    assert await probe(case_namespace(server)) == ("", False)
