"""KubeVirt's simulated webhooks on the real API server: defaults and rejections. vmherd works behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.integration.controller_process import controller_process, eventually
from tests.integration.pool_namespace import PoolNamespace, is_vm_ready, new_pool_namespace, simulator, vm_template

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/virt-api-mutator"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-api-validator"


def is_served(plane: ControlPlane, path: str) -> bool:
    try:
        Admin(plane.kubeconfig).get(path)
    except Rejected:
        return False
    return True


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with webhooks, a simulator, and vmherd."""
    with running_plane(control_plane_binaries) as plane, simulator(plane, "--webhooks"):
        eventually(lambda: is_served(plane, VALIDATING), what="the webhooks are registered")
        with controller_process(plane, tmp_path_factory.mktemp("controller")):
            yield plane


@pytest.fixture
def kubevirt(plane: ControlPlane) -> Iterator[PoolNamespace]:
    with new_pool_namespace(plane) as pools:
        yield pools


def test_a_pool_and_a_set_run_behind_the_webhooks_and_nothing_is_updated_for_the_defaults(
    kubevirt: PoolNamespace,
) -> None:
    kubevirt.make_pool(2)
    kubevirt.make_set(2)
    eventually(lambda: len(kubevirt.vmis()) == 4 and all(map(is_vm_ready, kubevirt.vmis().values())))
    vm = kubevirt.vm("pool-0")["spec"]["template"]["spec"]
    assert (vm["architecture"], vm["domain"]["machine"]) == ("amd64", {"type": "q35"})
    vmi = kubevirt.vmis()["pool-0"]["spec"]
    assert vmi["domain"]["firmware"]["uuid"] == vm["domain"]["firmware"]["uuid"]
    assert vmi["evictionStrategy"] == "None"
    before = {name: vmi["metadata"]["uid"] for name, vmi in kubevirt.vmis().items()}
    kubevirt.scale(3)
    eventually(lambda: len(kubevirt.vmis()) == 5)
    assert before.items() <= {name: vmi["metadata"]["uid"] for name, vmi in kubevirt.vmis().items()}.items()


def test_a_wrong_vm_is_rejected_with_the_message_of_kubevirt(kubevirt: PoolNamespace) -> None:
    with pytest.raises(Rejected, match="Running and RunStrategy are mutually exclusive") as rejected:
        kubevirt.make_vm("wrong", template=vm_template(running=True, runStrategy="Always"))
    assert rejected.value.status == 422


def test_a_user_changes_neither_spec_nor_status_of_a_vmi(kubevirt: PoolNamespace) -> None:
    kubevirt.make_vm("vm")
    eventually(lambda: "vm" in kubevirt.vmis() and is_vm_ready(kubevirt.vmis()["vm"]))
    with pytest.raises(Rejected, match="update of VMI object is restricted"):
        kubevirt.change_vmi("vm", {"spec": {"nodeSelector": {"zone": "a"}}})
    kubevirt.change_vmi("vm", {"status": {"phase": "Failed"}})
    assert kubevirt.vmis()["vm"]["status"]["phase"] == "Running"


def test_a_simulator_that_stops_leaves_no_webhooks(control_plane_binaries: Binaries, tmp_path: Path) -> None:
    with running_plane(control_plane_binaries) as plane:
        with simulator(plane, "--webhooks"):
            eventually(lambda: is_served(plane, VALIDATING))
        assert not is_served(plane, MUTATING)
        assert not is_served(plane, VALIDATING)
        assert not is_served(plane, "/apis/subresources.kubevirt.io/v1")
