"""What happens in the cluster while Prometheus scrapes: rollouts, scaling, failures, and a change of the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from controller.kubevirt.annotations import PROGRESS_DEADLINE, ROLLING_UPDATE
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.integration.controller_process import ControllerProcess
from tests.integration.pool_namespace import BEHAVIOR, READY_AFTER, PoolNamespace, vm_template

SECONDS: Final = 330.0
"""The length of the story."""

SOON: Final = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "20s"}
DEADLINE: Final = {PROGRESS_DEADLINE: "25"}
NAMESPACES: Final = ("shop", "batch", "clinic")


def machine(behavior: str = "normal", *, ready_after: str = "4s", memory: str = "64M") -> dict[str, Any]:
    return vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: ready_after}, memory=memory)


class Story:
    """The steps of the story. `leader` is ended in the middle, and the standby takes over."""

    def __init__(self, plane: ControlPlane, leader: ControllerProcess) -> None:
        admin = Kubectl(plane.kubeconfig)
        for name in NAMESPACES:
            admin("create", "namespace", name)
        self._shop, self._batch, self._clinic = (PoolNamespace(plane, name) for name in NAMESPACES)
        self._leader = leader

    def steps(self) -> Iterator[tuple[float, Callable[[], object]]]:
        """Yield each step with its time, in seconds after the start."""
        yield 5, self._begin
        yield 40, lambda: self._shop.change_template(machine(memory="128M"), name="web")
        yield 80, lambda: self._batch.change_set({"spec": {"replicas": 14}}, name="workers")
        yield 110, self._leader.process.kill
        yield (
            160,
            lambda: self._batch.change_set(
                {"spec": {"template": {"metadata": {"annotations": {READY_AFTER: "6s"}}}}}, name="workers"
            ),
        )
        yield 180, lambda: self._shop.change_template(machine("never-ready"), name="api")
        yield 235, lambda: self._shop.change_template(machine(memory="96M"), name="api")
        yield 250, lambda: self._batch.change_set({"spec": {"replicas": 10}}, name="workers")
        yield 270, lambda: self._shop.change_template(machine("never-ready"), name="web")
        yield 290, lambda: self._clinic.change_pool({"spec": {"paused": True}}, name="lab")

    def _begin(self) -> None:
        self._shop.make_pool(8, name="web", template=machine(), maxUnavailable="25%", annotations=DEADLINE)
        self._shop.make_pool(6, name="api", template=machine(ready_after="9s"), maxUnavailable=2, annotations=DEADLINE)
        rolling = {ROLLING_UPDATE: "maxUnavailable=25%"}
        slow = {"annotations": {READY_AFTER: "2s"}}
        self._batch.make_set(8, name="workers", annotations=rolling, template_metadata=slow)
        self._clinic.make_pool(1, name="lab", template=machine("image-error"), autohealing=SOON)
        self._clinic.make_pool(4, name="ward", template=machine("image-error"), autohealing=SOON, maxUnavailable=1)

    def play(self) -> None:
        """Do all steps at their times, and wait until the end."""
        started = time.monotonic()
        for at, step in self.steps():
            time.sleep(max(started + at - time.monotonic(), 0))
            step()
        time.sleep(max(started + SECONDS - time.monotonic(), 0))
