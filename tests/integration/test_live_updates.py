"""P13 and P21 on the real API server: with `vmRolloutStrategy: LiveUpdate`, running VMs of a pool keep their VMIs."""

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, running_plane
from tests.controlplane.documents import vm_template
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import KubeVirtInstallation

pytestmark = pytest.mark.cluster

KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "default"},
    "spec": {
        "configuration": {"vmRolloutStrategy": "LiveUpdate"},
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
    },
    "status": {"observedKubeVirtVersion": "v1.9.0"},
}
MASQUERADE = {"interfaces": [{"name": "default", "masquerade": {}}]}


@pytest.fixture(scope="module")
def live_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControlPlane, ControllerProcess]]:
    """A cluster with a KubeVirt that changes running VMs, with nodes, and with a controller."""
    with running_plane(control_plane_binaries) as plane, simulator(plane, "--webhooks", "--launchers"):
        KubeVirtInstallation(plane).define()
        Kubectl(plane.kubeconfig, "default").apply(KUBEVIRT)
        directory = tmp_path_factory.mktemp("controller")
        with controller_process(plane.kubeconfig, directory, "--mode", "standalone", "--no-leader-elect") as program:
            yield plane, program


@pytest.fixture
def pools(live_plane: tuple[ControlPlane, ControllerProcess]) -> Iterator[PoolNamespace]:
    plane, program = live_plane
    with new_pool_namespace(plane, program) as namespace:
        yield namespace


def template(*, sockets: int = 1, guest: str = "1Gi", **spec: Any) -> dict[str, Any]:
    domain = {"devices": MASQUERADE, "cpu": {"sockets": sockets}, "memory": {"guest": guest}}
    networks = [{"name": "default", "pod": {}}]
    return vm_template(vmi_spec={"domain": domain, "networks": networks, **spec})


def uids(pools: PoolNamespace) -> dict[str, str]:
    return {name: vmi["metadata"]["uid"] for name, vmi in pools.vmis().items()}


def made(pools: PoolNamespace, **annotations: str) -> dict[str, str]:
    """Make a pool of two VMs that are ready. Return the UIDs of their VMIs."""
    pools.make(2, template=template(), annotations=annotations or None)
    pools.wait_ready(2)
    return uids(pools)


def changing(pools: PoolNamespace) -> list[str]:
    """The VMIs with a hot-plug that has not ended."""
    types = {"HotVCPUChange", "HotMemoryChange"}
    return [
        name
        for name, vmi in pools.vmis().items()
        if types & {each["type"] for each in vmi["status"].get("conditions", []) if each["status"] == "True"}
    ]


def migrate(pools: PoolNamespace, name: str, number: int) -> None:
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
    pools.kubectl.apply({**kind, "metadata": {"name": f"{name}-{number}"}, "spec": {"vmiName": name}})


@pytest.mark.parametrize("change", [{"sockets": 2}, {"guest": "2Gi"}], ids=["sockets", "memory"])
def test_p13_running_vms_get_sockets_and_memory_one_after_the_other_and_keep_their_instances(
    pools: PoolNamespace, change: dict[str, Any]
) -> None:
    before = made(pools)
    pools.change_template(template(**change))
    for number in range(2):
        [name] = eventually(lambda: changing(pools) if len(changing(pools)) == 1 else None, what="one VM changes")
        assert pools.status()["updatedReplicas"] == number
        migrate(pools, name, number)
        eventually(lambda done=number + 1: pools.status()["updatedReplicas"] == done, what=f"{name} is updated")
    assert uids(pools) == before
    pools.settle()
    assert not pools.deleted()


@pytest.fixture(scope="module")
def default_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControlPlane, ControllerProcess]]:
    """A cluster with KubeVirt's default: it starts no migration. The controller may."""
    flags = ("--mode", "standalone", "--no-leader-elect", "--migrations")
    with running_plane(control_plane_binaries) as plane, simulator(plane, "--webhooks", "--launchers"):
        KubeVirtInstallation(plane).define()
        Kubectl(plane.kubeconfig, "default").apply(KUBEVIRT | {"spec": {}})
        with controller_process(plane.kubeconfig, tmp_path_factory.mktemp("controller"), *flags) as program:
            yield plane, program


@pytest.fixture
def by_default(default_plane: tuple[ControlPlane, ControllerProcess]) -> Iterator[PoolNamespace]:
    plane, program = default_plane
    with new_pool_namespace(plane, program) as namespace:
        yield namespace


@pytest.mark.parametrize("change", [{"sockets": 2}, {"guest": "2Gi"}], ids=["sockets", "memory"])
@pytest.mark.parametrize("migrates", [True, False], ids=["migrate", "restart"])
def test_p13_with_the_annotation_the_pool_starts_the_migrations_that_kubevirt_does_not_start(
    by_default: PoolNamespace, change: dict[str, Any], migrates: bool
) -> None:
    """The change is done in time with and without the annotation."""
    before = made(by_default, **({"vmherd.dev/migrate": "true"} if migrates else {}))
    migrations = by_default.all_of("virtualmachineinstancemigrations", "kubevirt.io/v1")
    by_default.change_template(template(**change))
    eventually(lambda: by_default.status()["updatedReplicas"] == 0, what="the update begins")
    eventually(lambda: by_default.status()["updatedReplicas"] == 2, what="both VMs are updated", within_s=90)
    eventually(lambda: not migrations(), what="no migration is left")
    assert (uids(by_default) == before) is migrates
    by_default.settle()
    states = [vmi["status"].get("migrationState", {}) for vmi in by_default.vmis().values()]
    assert [bool(each.get("completed")) for each in states] == [migrates] * 2


def test_p13_running_vms_get_a_volume_and_keep_their_instances(pools: PoolNamespace) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    made_claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "more"}, "spec": claim}
    pools.kubectl.apply(made_claim)
    before = made(pools)
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more", "hotpluggable": True}}
    new = template(volumes=[volume])
    new["spec"]["template"]["spec"]["domain"]["devices"] = MASQUERADE | {"disks": [{"name": "more", "disk": {}}]}
    pools.change_template(new)
    eventually(lambda: pools.status()["updatedReplicas"] == 0, what="the update begins")
    eventually(lambda: pools.status()["updatedReplicas"] == 2, what="both VMs are updated")
    assert [each["spec"]["volumes"] for each in pools.vmis().values()] == [[volume]] * 2
    assert uids(pools) == before
    pools.settle()
    assert not pools.deleted()
