"""Autoscalers of the guides and examples: Kubernetes' own autoscaler, a metrics API, virt-launcher Pods, and the
controller. tests/integration/test_lab.py scales a set with the load.
"""

import pytest

from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import eventually
from tests.integration.metrics_api import MetricsAPI
from tests.manifests.documents import EXAMPLES, load

pytestmark = pytest.mark.cluster

SET, POOL = "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"
AUTOSCALERS = [path for path in EXAMPLES if path.stem.startswith("hpa-")]
SCALED_WITHIN_S = 60.0


def conditions(objects: Namespace) -> dict[str, dict[str, str]]:
    items = objects.kubectl.json("get", "hpa")["items"]
    return {
        item["metadata"]["name"]: {
            each["type"]: each["status"] for each in (item.get("status") or {}).get("conditions") or ()
        }
        for item in items
    }


@pytest.mark.parametrize(
    ("kind", "command", "target"),
    [
        (SET, "autoscale vmirs vmi-replicaset-cirros --min=3 --max=10", 80),
        (POOL, "autoscale vmpool vm-pool-cirros --min=3 --max=10 --cpu-percent=50", 50),
    ],
    ids=["vmirs", "vmpool"],
)
def test_kubectl_autoscale_in_the_guides_brings_up_the_minimum_of_replicas(
    kind: str, command: str, target: int, launched: PoolNamespace, metrics: MetricsAPI
) -> None:
    """The guide's command for sets has no CPU target. Kubernetes then uses 80 %."""
    owner, name = launched if kind == POOL else launched.sets, command.split()[2]
    owner.make(1, name=name)
    assert owner.kubectl(*command.split()).stdout.endswith(" autoscaled\n")
    made = owner.kubectl.json("get", "hpa", name)["spec"]
    assert (made["minReplicas"], made["maxReplicas"]) == (3, 10)
    assert [each["resource"]["target"]["averageUtilization"] for each in made["metrics"]] == [target]
    eventually(
        lambda: owner.status(name).get("readyReplicas") == 3, within_s=SCALED_WITHIN_S, what="the minimum of replicas"
    )


def test_every_autoscaler_of_the_examples_scales_its_target(launched: PoolNamespace) -> None:
    """R13: the autoscalers refer to sets and pools by the API versions that the guides use."""
    targets = {load(path)["metadata"]["name"]: path for path in EXAMPLES if path.stem.startswith(("replica", "pool"))}
    for path in AUTOSCALERS:
        target = load(path)["spec"]["scaleTargetRef"]["name"]
        launched.kubectl("apply", "-f", str(targets[target]), "-f", str(path))
    names = {load(path)["metadata"]["name"] for path in AUTOSCALERS}
    works = {"AbleToScale": "True", "ScalingActive": "True"}
    eventually(
        lambda: {name for name, said in conditions(launched).items() if said.items() >= works.items()} == names,
        within_s=SCALED_WITHIN_S,
        what="all of them can count and scale",
    )
