"""KubeVirt's simulated webhooks on the real API server. vmherd works behind the webhooks."""

import pytest

from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import is_ready
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.integration.launcher_plane import VALIDATING, is_served

pytestmark = pytest.mark.cluster

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/virt-api-mutator"


def test_a_pool_and_a_set_run_behind_the_webhooks_and_nothing_is_updated_for_the_defaults(
    launched: PoolNamespace,
) -> None:
    launched.make(2)
    launched.sets.make(2)
    eventually(lambda: len(launched.vmis()) == 4 and all(map(is_ready, launched.vmis().values())))
    vm = launched.vms.get("pool-0")["spec"]["template"]["spec"]
    assert (vm["architecture"], vm["domain"]["machine"]) == ("amd64", {"type": "q35"})
    vmi = launched.vmis()["pool-0"]["spec"]
    assert vmi["domain"]["firmware"]["uuid"] == vm["domain"]["firmware"]["uuid"]
    assert vmi["evictionStrategy"] == "None"
    before = {name: vmi["metadata"]["uid"] for name, vmi in launched.vmis().items()}
    launched.scale(3)
    eventually(lambda: len(launched.vmis()) == 5)
    assert before.items() <= {name: vmi["metadata"]["uid"] for name, vmi in launched.vmis().items()}.items()


def test_a_simulator_that_stops_leaves_no_webhooks(idle_plane: ControlPlane) -> None:
    with simulator(idle_plane, "--webhooks"):
        eventually(lambda: is_served(idle_plane, VALIDATING))
    assert not is_served(idle_plane, MUTATING)
    assert not is_served(idle_plane, VALIDATING)
    assert not is_served(idle_plane, "/apis/subresources.kubevirt.io/v1")
