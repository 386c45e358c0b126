"""The faults of the soak: a restart of the API server, a cut of all connections, and a network that stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from benchmarks.soak.network import Network
from benchmarks.soak.plots import Mark
from sandbox.controlplane import ControlPlane

INTERVAL_S: Final = 150.0
STILL_S: Final = 8.0
"""The time for which the network stands still.

It is shorter than the renew deadline, so the controller keeps its lease.
"""


class Fault(NamedTuple):
    label: str
    inject: Callable[[], object]


def faults_of(plane: ControlPlane, network: Network) -> Sequence[Fault]:
    def stand_still() -> None:
        network.pause(flowing=False)
        time.sleep(STILL_S)
        network.pause(flowing=True)

    return (
        Fault("API server restarts", plane.restart_apiserver),
        Fault("all connections cut", network.cut),
        Fault("network stands still for 8 s", stand_still),
    )


class FaultSchedule:
    """Injects the faults in turn, one in each interval. `marks` has the times of all injected faults."""

    def __init__(self, faults: Sequence[Fault], *, interval_s: float = INTERVAL_S) -> None:
        self.marks: list[Mark] = []
        self._faults = faults
        self._interval_s = interval_s

    def run_due(self, elapsed_s: float) -> None:
        number = len(self.marks)
        if elapsed_s < (number + 1) * self._interval_s:
            return
        fault = self._faults[number % len(self._faults)]
        self.marks.append(Mark(elapsed_s, fault.label))
        fault.inject()
