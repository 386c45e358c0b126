"""Autoscaling end to end: Kubernetes' own autoscaler, a metrics API, virt-launcher Pods, and the controller.

A Pod requests a tenth of a core. The target is 50 % of the request. So the autoscaler wants one Pod for each 50
millicores of the total load, rounded up.
"""

from typing import Any

import pytest
from msgspec import Struct

from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import eventually
from tests.integration.metrics_api import MetricsAPI
from tests.manifests.documents import EXAMPLES, load

pytestmark = pytest.mark.cluster

SET, POOL = "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"
AUTOSCALERS = [path for path in EXAMPLES if path.stem.startswith("hpa-")]
SCALED_WITHIN_S = 60.0


class NotYet(dict[str, int]):
    """Counts that are not the wanted counts. A `NotYet` is falsy, so `eventually` goes on waiting. After a timeout,
    `eventually` prints the counts.
    """

    def __bool__(self) -> bool:
        return False


class Scene(Struct, frozen=True):
    """A set or a pool. No other set or pool is in its namespace."""

    objects: Namespace
    metrics: MetricsAPI
    name: str = "web"

    def make(self, replicas: int) -> dict[str, Any]:
        """Create the set or pool. Return a reference to it for the autoscaler."""
        made = self.objects.make(replicas, name=self.name)
        self.reaches(replicas)
        return {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": self.name}

    def load(self, millicores: int) -> None:
        self.metrics.load(self.objects.namespace, millicores)

    def census(self) -> dict[str, int]:
        """The replica counts from each source: status, VMIs and, for a pool, VMs."""
        item = self.objects.read(self.name)
        status = item.get("status") or {}
        return {
            "wanted": item["spec"]["replicas"],
            "replicas": status.get("replicas", 0),
            "ready": status.get("readyReplicas", 0),
            "VMIs": len(self.objects.vmis()),
            "members": len(self.objects.all_of(self.objects.members)()),
        }

    def reaches(self, count: int) -> None:
        """Wait until all sources show this count."""

        def there() -> bool | NotYet:
            census = self.census()
            return set(census.values()) == {count} or NotYet(census)

        eventually(there, within_s=SCALED_WITHIN_S, what=f"{count} of each")

    def sizes(self, count: int) -> list[str]:
        """Wait for `count` Events of the autoscaler. Return the messages of the Events, the oldest first. A message
        names the new size and the reason.
        """

        def told() -> list[dict[str, Any]]:
            return [event for event in self.objects.events() if event["reason"] == "SuccessfulRescale"]

        eventually(lambda: len(told()) >= count, what="the autoscaler's Events")
        return [event["message"] for event in sorted(told(), key=lambda event: event["firstTimestamp"])]


def autoscaler(target: dict[str, Any], *, least: int, most: int) -> dict[str, Any]:
    """A HorizontalPodAutoscaler with a target of half the Pods' CPU requests."""
    goal = {"type": "Utilization", "averageUtilization": 50}
    spec: dict[str, Any] = {
        "scaleTargetRef": target,
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": goal}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3}},
    }
    metadata = {"name": target["name"]}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def conditions(objects: Namespace) -> dict[str, dict[str, str]]:
    items = objects.kubectl.json("get", "hpa")["items"]
    return {
        item["metadata"]["name"]: {
            each["type"]: each["status"] for each in (item.get("status") or {}).get("conditions") or ()
        }
        for item in items
    }


def scales_with_the_load(scene: Scene) -> None:
    scene.load(150)
    target = scene.make(3)
    scene.objects.kubectl.apply(autoscaler(target, least=1, most=8))
    works = {"AbleToScale": "True", "ScalingActive": "True"}
    eventually(lambda: conditions(scene.objects)["web"].items() >= works.items(), what="the autoscaler works")
    scene.load(250)
    scene.reaches(5)
    scene.load(100)
    scene.reaches(2)
    assert scene.sizes(2) == [
        "New size: 5; reason: cpu resource utilization (percentage of request) above target",
        "New size: 2; reason: All metrics below target",
    ]


def test_an_autoscaler_scales_a_pool_with_the_load(launched: PoolNamespace, metrics: MetricsAPI) -> None:
    scales_with_the_load(Scene(launched, metrics))


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
    scene = Scene(launched if kind == POOL else launched.sets, metrics, name=command.split()[2])
    scene.make(1)
    assert launched.kubectl(*command.split()).stdout.endswith(" autoscaled\n")
    made = launched.kubectl.json("get", "hpa", scene.name)["spec"]
    assert (made["minReplicas"], made["maxReplicas"]) == (3, 10)
    assert [each["resource"]["target"]["averageUtilization"] for each in made["metrics"]] == [target]
    scene.reaches(3)
    assert scene.sizes(1) == ["New size: 3; reason: Current number of replicas below Spec.MinReplicas"]


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
