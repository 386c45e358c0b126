"""The running controller of replica sets, in virtual time, with stale caches and failing requests."""

import asyncio
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import looptime
import pytest
from hypothesis import given, settings

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VMIStatus
from controller.replicas.triggers import wakes_of_owner
from controller.replicaset.triggers import replicasets_of_vmi
from controller.runtime.workers.controller import Controller
from informers.errors import TransportError
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import KEY, ReplicaSetSimulation, replicaset_document
from tests.fakes.requests import Fault, Garbled, Lost, Request, refusal
from tests.fakes.rules import wire

FAULTS = st.sampled_from(
    [
        None,
        Lost.BEFORE,
        Lost.AFTER,
        Garbled(),
        TransportError("cannot connect", sent=False),
        refusal(500, "InternalError", "etcdserver: request timed out"),
        refusal(429, "TooManyRequests", "too many requests", retry_after_s=3),
        refusal(403, "Forbidden", "exceeded quota: few"),
    ]
)
STEPS = st.tuples(st.sampled_from(["scale", "finish", "delete", "ready"]), st.integers(0, 6), st.floats(0.0, 8.0))
"""A step of a random sequence: its kind, the index of the VMI or the number of replicas, and the delay before the step.
"""

LONG_S = 600.0
"""A time that is longer than any backoff in these tests."""

STARTS = 20
"""How often the test makes all VMIs ready. Then the set must be at rest."""

IDLE_S = 5.0
"""The seconds between two checks of the caches for new events."""


class NoMetrics:
    """Instruments that discard all metrics. They fail the test if a reconciliation raises an exception."""

    def workers(self, controller: str, *, most: int) -> None: ...

    def worker_busy(self, controller: str, *, change: int) -> None: ...

    def reconciled(self, controller: str, *, result: str, seconds: float) -> None: ...

    def panicked(self, controller: str) -> None:
        raise AssertionError("a reconcile raised")


class RunningController:
    """A controller with an API server in memory. `lags` are delays of the caches, `faults` are failures of requests."""

    def __init__(self, *, lags: list[float], faults: list[Fault | None]) -> None:
        self.queue: WorkQueue[ObjectKey] = WorkQueue("replicaset")
        self.simulation = ReplicaSetSimulation(
            vmi_handler=lambda change: self.enqueue(replicasets_of_vmi(change, self.simulation.sets.store)),
            set_handler=lambda change: self.enqueue(wakes_of_owner(change)),
        )
        self.controller = Controller(
            "replicaset", self.queue, self.simulation.process.reconciler, workers=3, instruments=NoMetrics()
        )
        self._lags = lags
        self._faults: Iterator[Fault | None] = iter(faults)
        self.simulation.server.fault_for = self.fault_for

    def enqueue(self, triggers: Any) -> None:
        for key, delay_s in triggers:
            self.queue.add_after(key, delay_s)

    def fault_for(self, request: Request) -> Fault | None:
        return next(self._faults, None)

    async def feed(self) -> None:
        """Deliver one event after the other to the caches, each with a delay."""
        turn = 0
        while True:
            turn += 1
            behind = self.simulation.vmis.behind() or self.simulation.sets.behind()
            await asyncio.sleep(self._lags[turn % len(self._lags)] if behind else IDLE_S)
            self.simulation.vmis.catch_up(1)
            self.simulation.sets.catch_up(1)

    async def run(self, story: list[tuple[str, int, float]]) -> None:
        feeder = asyncio.create_task(self.feed())
        worker = asyncio.create_task(self.controller.run())
        self.simulation.clock = asyncio.get_running_loop().time
        for kind, number, after_s in story:
            await asyncio.sleep(after_s)
            self.apply(kind, number)
        for _ in range(STARTS):
            await asyncio.sleep(LONG_S / STARTS)
            for number in range(len(self.simulation.server.objects(VMIS))):
                self.apply("ready", number)
        await asyncio.sleep(LONG_S)
        sent = len(self.simulation.server.requests)
        await asyncio.sleep(LONG_S)
        assert self.simulation.server.requests[sent:] == [], "guarantee 4: at rest no request is sent"
        self.queue.shut_down()
        await worker
        feeder.cancel()
        await asyncio.wait([feeder])

    def apply(self, kind: str, number: int) -> None:
        vmis = self.simulation.server.objects(VMIS)
        if kind == "scale":
            self.simulation.server.change(REPLICASETS, KEY, {"spec": {"replicas": number}})
        elif vmis:
            key = vmis[number % len(vmis)].metadata.key
            since = wire(self.simulation.now)
            ready = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            }
            match kind:
                case "finish":
                    self.simulation.server.change(VMIS, key, {"status": {"phase": "Failed"}})
                case "ready" if (vmis[number % len(vmis)].status or VMIStatus()).phase != "Failed":
                    self.simulation.server.change(VMIS, key, {"status": ready})
                case "delete":
                    self.simulation.server.remove(VMIS, key)


@pytest.mark.long
@settings(max_examples=40)
@given(
    story=st.lists(STEPS, max_size=12),
    lags=st.lists(st.sampled_from([0.001, 0.02, 0.5, 7.0]), min_size=1, max_size=6),
    faults=st.lists(FAULTS, max_size=12),
)
def test_guarantee_1_after_any_faults_the_set_has_the_wanted_vmis_and_sends_no_more_requests(
    story: list[tuple[str, int, float]], lags: list[float], faults: list[Fault | None]
):
    async def run() -> RunningController:
        controller = RunningController(lags=lags, faults=faults)
        controller.simulation.server.put(REPLICASETS, replicaset_document(replicas=3))
        await controller.run(story)
        return controller

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
        simulation = runner.run(run()).simulation
    assert len(simulation.active) == simulation.owner.spec.replicas
    assert simulation.owner.status.replicas == simulation.owner.spec.replicas
    assert simulation.conditions == {}
