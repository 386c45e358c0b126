"""A simulated KubeVirt for the VMIs of a simulated set, in virtual time. The test decides how each VMI develops."""

from collections.abc import Callable
from typing import Any, TypeAlias

from controller.kubevirt.resources import VMIS
from controller.runtime.result import After
from informers.meta import ObjectKey
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.fakes.requests import Document
from tests.fakes.rules import wire

STEP_S = 1.0
Fate: TypeAlias = Callable[[Document, float], str]
"""A function from a VMI and its age in seconds to the new state of the VMI: a phase, or "Ready"."""


def fails(document: Document, age_s: float) -> str:
    """The launcher fails at once."""
    return "Failed" if age_s >= STEP_S else "Scheduling"


class Launcher:
    """Acts as virt-controller and the nodes. `fate` decides the state of each VMI. Tests may replace `fate`."""

    def __init__(self, simulation: ReplicaSetSimulation, fate: Fate = fails) -> None:
        self.simulation = simulation
        self.fate = fate
        self._born: dict[str, float] = {}
        self.created: list[tuple[float, str]] = []
        """For each created VMI: the time in seconds, and the name."""

    @property
    def seconds(self) -> float:
        return self.simulation.elapsed.total_seconds()

    async def live(self, seconds: float) -> None:
        end = self.seconds + seconds
        while self.seconds < end:
            before = len(self.simulation.server.events)
            self.simulation.process.catch_up()
            report = await self.simulation.reconcile()
            starting = self._act()
            if starting or len(self.simulation.server.events) > before:
                self.simulation.advance(STEP_S)
                continue
            wait_s = report.result.seconds if isinstance(report.result, After) else end - self.seconds
            self.simulation.advance(max(min(wait_s, end - self.seconds), 0.001))

    def _act(self) -> bool:
        """Set the present state of each VMI.

        Return True if at least one VMI will change its state within five seconds.
        """
        changing = False
        for name, document in self.simulation.server.documents(VMIS, self.simulation.key.namespace).items():
            uid = document["metadata"]["uid"]
            if uid not in self._born:
                self._born[uid] = self.seconds
                self.created.append((self.seconds, name))
            age_s = self.seconds - self._born[uid]
            status = document.get("status") or {}
            if status.get("phase") in ("Failed", "Succeeded"):
                continue
            state = self.fate(document, age_s)
            changing = changing or any(self.fate(document, age_s + later) != state for later in (STEP_S, 5))
            changed = self._status(status, state)
            if changed != status:
                key = ObjectKey(self.simulation.key.namespace, name)
                self.simulation.server.change(VMIS, key, {"status": changed})
        return changing

    def _status(self, status: dict[str, Any], state: str) -> dict[str, Any]:
        phase = "Running" if state == "Ready" else state
        entered = list(status.get("phaseTransitionTimestamps") or ())
        if status.get("phase") != phase:
            entered.append({"phase": phase, "phaseTransitionTimestamp": wire(self.simulation.now)})
        word = "True" if state == "Ready" else "False"
        conditions = list(status.get("conditions") or ())
        if not conditions or conditions[0]["status"] != word:
            conditions = [{"type": "Ready", "status": word, "lastTransitionTime": wire(self.simulation.now)}]
        return {**status, "phase": phase, "phaseTransitionTimestamps": entered, "conditions": conditions}


def change_template(simulation: ReplicaSetSimulation, **labels: str) -> None:
    change = {"spec": {"template": {"metadata": {"annotations": labels}}}}
    simulation.server.change(REPLICASETS, simulation.key, change)
