"""The time from create to ready counts once for each member, and only if the change was observed."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt import vmis, vms
from controller.metrics.readiness import ReadyTimer
from informers.meta import KubeObject
from informers.store import Added, Change, Removed, Store, Updated
from tests.builders import replicaset, vmi
from tests.pool_builders import pool, vm

SET = replicaset()
POOL = pool()
NEVER_READY = ("", "Pending", "Scheduling", "Scheduled")


class TimerSetup:
    """A timer, a cache of the owners, and the measured times in seconds."""

    def __init__(self, kind: str, owner: KubeObject, is_new: Callable[[Any], bool], ready_at: Callable[[Any], Any]):
        self.seconds: list[float] = []
        self.owners: Store[Any] = Store()
        self.owners.apply(owner)
        self.timer: ReadyTimer[Any] = ReadyTimer(kind, self.owners, is_new, ready_at, self.seconds.append)

    def see(self, *changes: Change[Any]) -> list[float]:
        for change in changes:
            self.timer.handle(change)
        return self.seconds


def of_sets() -> TimerSetup:
    return TimerSetup(REPLICA_SETS.kind, SET, vmis.was_never_ready, vmis.became_ready_at)


def of_pools(instance: Any = None) -> TimerSetup:
    return TimerSetup(POOLS.kind, POOL, vms.was_never_ready, lambda seen: vms.became_ready_at(seen, instance))


def young(phase: str = "", **changes: Any) -> Any:
    """A VMI of the set that was created 100 s ago and is not ready."""
    return vmi(**{"owner": SET, "age_s": 100, "phase": phase, "ready": False, **changes})


def ready(**changes: Any) -> Any:
    """The same VMI, 60 s after its creation."""
    return young("Running", **{"ready": True, "ready_for_s": 40, **changes})


def vm_of_pool(**changes: Any) -> Any:
    return vm(**{"owner": POOL, "age_s": 100, "ready": False, "printable": "Starting", **changes})


NEW_VM = vm_of_pool(ready=None, printable=None)
READY_VM = vm_of_pool(ready=True, printable="Running", ready_for_s=40)
STRANGER = {"owner": replicaset(uid="another")}
LOST, AGAIN = young("Running", ready_for_s=20), ready(ready_for_s=5)

MEMBERS: dict[str, tuple[TimerSetup, list[Any], list[float]]] = {
    # name: (timer, states of one member, measured times)
    "from the creation to the condition": (of_sets(), [young(), young("Scheduled"), ready()], [60]),
    "a guest that runs after its pod is ready": (of_sets(), [young(), ready(entered_s={"Running": 30})], [70]),
    "ready twice": (of_sets(), [young(), ready(), LOST, AGAIN], [60]),
    "ready before a restart of the controller": (of_sets(), [ready(), LOST, AGAIN], []),
    "of another owner": (of_sets(), [young(**STRANGER), ready(**STRANGER)], []),
    "without an owner": (of_sets(), [young(owner=None), ready(owner=None)], []),
    "left before it was ready": (of_sets(), [young(), ready(owner=None)], []),
    "a clock that is behind": (of_sets(), [young(), ready(age_s=10)], [0]),
    "a new VM": (of_pools(), [NEW_VM, vm_of_pool(), READY_VM], [60]),
    "a VM whose pod was ready first": (of_pools(vmi(entered_s={"Running": 30})), [NEW_VM, READY_VM], [70]),
    "a VM that may restart": (of_pools(), [vm_of_pool(), READY_VM], []),
    "a VM that restarts": (of_pools(), [NEW_VM, READY_VM, vm_of_pool(), READY_VM], [60]),
}


@pytest.mark.parametrize(("setup", "states", "seconds"), MEMBERS.values(), ids=MEMBERS)
def test_a_member_is_measured_once_from_its_creation(setup: TimerSetup, states: list[Any], seconds: list[float]):
    assert setup.see(Added(states[0]), *(Updated(*pair) for pair in pairwise(states))) == seconds


@pytest.mark.parametrize("phase", ["Running", "Failed", "Unknown", *NEVER_READY])
def test_after_a_restart_only_a_member_that_was_never_ready_counts(phase: str):
    assert of_sets().see(Added(young(phase)), Updated(young(phase), ready())) == ([60] if phase in NEVER_READY else [])


def test_a_removed_member_is_forgotten():
    setup = of_sets()
    setup.see(Added(young()))
    assert len(setup.timer) == 1
    setup.see(Removed(young()))
    assert len(setup.timer) == 0
