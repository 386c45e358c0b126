"""P13 and P21 on the real API server: with `vmRolloutStrategy: LiveUpdate`, running VMs of a pool keep their VMIs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, running_plane
from tests.controlplane.documents import Document, claim_document, uids, vm_template
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually, reacts
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


Planes = Iterator[tuple[ControlPlane, ControllerProcess]]
FLAGS = ("--mode", "standalone", "--no-leader-elect")


@contextmanager
def plane_with(kubevirt: Document, binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster with this KubeVirt and with nodes."""
    with running_plane(binaries) as plane, simulator(plane, "--webhooks", "--launchers"):
        KubeVirtInstallation(plane).define()
        Kubectl(plane.kubeconfig, "default").apply(kubevirt)
        yield plane


@pytest.fixture(scope="module")
def live_plane(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Planes:
    """A cluster with a KubeVirt that changes running VMs, and a controller."""
    directory = tmp_path_factory.mktemp("controller")
    with (
        plane_with(KUBEVIRT, control_plane_binaries) as plane,
        controller_process(plane.kubeconfig, directory, *FLAGS) as program,
    ):
        yield plane, program


@pytest.fixture
def pools(live_plane: tuple[ControlPlane, ControllerProcess]) -> Iterator[PoolNamespace]:
    with new_pool_namespace(*live_plane) as namespace:
        yield namespace


def template(*, sockets: int = 1, guest: str = "1Gi", **spec: Any) -> dict[str, Any]:
    domain = {"devices": MASQUERADE, "cpu": {"sockets": sockets}, "memory": {"guest": guest}}
    networks = [{"name": "default", "pod": {}}]
    return vm_template(vmi_spec={"domain": domain, "networks": networks, **spec})


def template_with(volume: Document) -> Document:
    new = template(volumes=[volume])
    new["spec"]["template"]["spec"]["domain"]["devices"] = MASQUERADE | {"disks": [{"name": "more", "disk": {}}]}
    return new


def made(pools: PoolNamespace, **annotations: str) -> dict[str, str]:
    """Make a pool of two VMs that are ready. Return the UIDs of their VMIs."""
    pools.make(2, template=template(), annotations=annotations or None)
    pools.wait_ready(2)
    return uids(pools.vmis())


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
    assert uids(pools.vmis()) == before
    pools.settle()
    assert not pools.deleted()


@pytest.fixture(scope="module")
def default_plane(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Planes:
    """A cluster with KubeVirt's default: it starts no migration. The controller may."""
    directory = tmp_path_factory.mktemp("controller")
    with (
        plane_with(KUBEVIRT | {"spec": {}}, control_plane_binaries) as plane,
        controller_process(plane.kubeconfig, directory, *FLAGS, "--migrations") as program,
    ):
        yield plane, program


@pytest.fixture
def by_default(default_plane: tuple[ControlPlane, ControllerProcess]) -> Iterator[PoolNamespace]:
    with new_pool_namespace(*default_plane) as namespace:
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
    assert (uids(by_default.vmis()) == before) is migrates
    by_default.settle()
    states = [vmi["status"].get("migrationState", {}) for vmi in by_default.vmis().values()]
    assert [bool(each.get("completed")) for each in states] == [migrates] * 2


def test_p13_running_vms_get_a_volume_and_keep_their_instances(pools: PoolNamespace) -> None:
    claim = claim_document("more")
    pools.claims.make(claim | {"spec": claim["spec"] | {"accessModes": ["ReadWriteMany"]}})
    before = made(pools)
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more", "hotpluggable": True}}
    new = template_with(volume)
    pools.change_template(new)
    eventually(lambda: pools.status()["updatedReplicas"] == 0, what="the update begins")
    eventually(lambda: pools.status()["updatedReplicas"] == 2, what="both VMs are updated")
    assert [each["spec"]["volumes"] for each in pools.vmis().values()] == [[volume]] * 2
    assert uids(pools.vmis()) == before
    pools.settle()
    assert not pools.deleted()


@pytest.fixture
def uncontrolled(control_plane_binaries: Binaries) -> Iterator[PoolNamespace]:
    with plane_with(KUBEVIRT, control_plane_binaries) as plane, new_pool_namespace(plane) as namespace:
        yield namespace


def generations(pools: PoolNamespace) -> dict[str, int]:
    """How often each VM has got a spec."""
    return {name: vm["metadata"]["generation"] for name, vm in pools.vms().items()}


def test_p21_the_cap_live_tries_a_change_with_one_vm_and_forgets_nothing_in_a_restart(
    uncontrolled: PoolNamespace, tmp_path: Path
) -> None:
    """KubeVirt asks for a restart of one VM. The VM gets its old spec back, and also the next controller tries no other
    VM with the same template.
    """
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
    new = template_with(volume)
    with controlled(uncontrolled, tmp_path) as program:
        before = made(uncontrolled, **{"vmherd.dev/most-disruptive-action": "live"})
        first, specs = generations(uncontrolled), {name: vm["spec"] for name, vm in uncontrolled.vms().items()}
        uncontrolled.change_template(new)
        [scout] = eventually(
            lambda: [name for name, vm in uncontrolled.vms().items() if vm["spec"]["template"]["spec"].get("volumes")],
            what="one VM is tried",
        )
        program.kill()
    with controlled(uncontrolled, tmp_path):
        eventually(lambda: "needs a restart" in uncontrolled.status().get("problem", ""), what="the update is held")
        reacts(lambda: not any(map(asks_for_restart, uncontrolled.vms().values())), what="KubeVirt asks no more")
        uncontrolled.settle()
    with controlled(uncontrolled, tmp_path):
        uncontrolled.settle()
        assert f"KubeVirt asked for it when {scout} had the change" in uncontrolled.status()["problem"]
    assert {name: vm["spec"] for name, vm in uncontrolled.vms().items()} == specs
    assert generations(uncontrolled) == first | {scout: first[scout] + 2}
    assert uids(uncontrolled.vmis()) == before


@contextmanager
def controlled(pools: PoolNamespace, directory: Path) -> Iterator[ControllerProcess]:
    with controller_process(pools.plane.kubeconfig, directory, *FLAGS) as pools.controller:
        yield pools.controller


def asks_for_restart(vm: dict[str, Any]) -> bool:
    return any(each["type"] == "RestartRequired" for each in vm["status"].get("conditions", []))
