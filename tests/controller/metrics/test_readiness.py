"""The time from create to ready counts once for each member, and only if the change was observed."""

from __future__ import annotations

from collections.abc import Callable
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
        self.timer: ReadyTimer[Any] = ReadyTimer(
            kind, self.owners, is_new=is_new, ready_at=ready_at, observe=self.seconds.append
        )

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


def test_the_time_between_creation_and_the_condition_is_measured():
    setup, scheduled = of_sets(), young("Scheduled")
    assert setup.see(Added(young()), Updated(young(), scheduled), Updated(scheduled, ready())) == [60]


def test_a_guest_that_runs_after_its_pod_is_ready_counts_from_the_phase():
    late = ready(entered_s={"Running": 30})
    assert of_sets().see(Added(young()), Updated(young(), late)) == [70]


def test_a_member_that_loses_its_readiness_and_gets_it_back_counts_once():
    setup, lost = of_sets(), young("Running", ready_for_s=20)
    setup.see(Added(young()), Updated(young(), ready()), Updated(ready(), lost))
    assert setup.see(Updated(lost, ready(ready_for_s=5))) == [60]


@pytest.mark.parametrize("phase", ["Running", "Failed", "Unknown"])
def test_after_a_restart_a_member_that_may_have_been_ready_does_not_count(phase: str):
    assert of_sets().see(Added(young(phase)), Updated(young(phase), ready())) == []


def test_after_a_restart_a_ready_member_does_not_count():
    lost = young("Running", ready_for_s=20)
    assert of_sets().see(Added(ready()), Updated(ready(), lost), Updated(lost, ready(ready_for_s=5))) == []


@pytest.mark.parametrize("phase", NEVER_READY)
def test_after_a_restart_a_member_that_was_never_ready_counts(phase: str):
    assert of_sets().see(Added(young(phase)), Updated(young(phase), ready())) == [60]


def test_a_change_that_a_new_list_shows_late_has_the_time_of_the_condition():
    """The store compares the lists, so the handler gets one update from never ready to ready."""
    setup, store = of_sets(), Store[Any]()
    setup.see(*store.apply(young(version="1")))
    listed = store.begin_replace()
    listed.put(ready(version="9"))
    store.commit(listed, "9")
    for changes in listed.changes(at_once=10):
        setup.see(*changes)
    assert setup.seconds == [60]


def test_a_new_list_without_a_change_counts_nothing():
    setup, store = of_sets(), Store[Any]()
    setup.see(*store.apply(young(version="1")), *store.apply(ready(version="2")))
    for version in ("3", "4"):
        listed = store.begin_replace()
        listed.put(ready(version=version))
        store.commit(listed, version)
        for changes in listed.changes(at_once=10):
            setup.see(*changes)
    assert setup.seconds == [60]


def test_another_member_with_the_same_name_counts_for_itself():
    setup, store = of_sets(), Store[Any]()
    setup.see(*store.apply(young(version="1")), *store.apply(ready(version="2")))
    setup.see(*store.apply(young(version="3", uid="second")), *store.apply(ready(version="4", uid="second")))
    assert setup.seconds == [60, 60]


def test_a_member_of_another_owner_does_not_count():
    stranger = replicaset(uid="another")
    assert of_sets().see(Added(young(owner=stranger)), Updated(young(owner=stranger), ready(owner=stranger))) == []
    assert of_sets().see(Added(young(owner=None)), Updated(young(owner=None), ready(owner=None))) == []


def test_a_member_that_left_before_it_was_ready_does_not_count():
    assert of_sets().see(Added(young()), Updated(young(), ready(owner=None))) == []


def test_a_removed_member_is_forgotten():
    setup = of_sets()
    setup.see(Added(young()))
    assert len(setup.timer) == 1
    setup.see(Removed(young()))
    assert len(setup.timer) == 0


def test_a_clock_that_is_behind_gives_no_negative_time():
    assert of_sets().see(Added(young()), Updated(young(), ready(age_s=10))) == [0]


def vm_of_pool(**changes: Any) -> Any:
    return vm(**{"owner": POOL, "age_s": 100, "ready": False, "printable": "Starting", **changes})


NEW_VM = vm_of_pool(ready=None, printable=None)
READY_VM = vm_of_pool(ready=True, printable="Running", ready_for_s=40)


def test_a_new_vm_of_a_pool_counts_when_it_becomes_ready():
    assert of_pools().see(Added(NEW_VM), Updated(NEW_VM, vm_of_pool()), Updated(vm_of_pool(), READY_VM)) == [60]


def test_a_vm_counts_from_the_phase_of_its_vmi_if_the_pod_was_ready_first():
    assert of_pools(vmi(entered_s={"Running": 30})).see(Added(NEW_VM), Updated(NEW_VM, READY_VM)) == [70]


def test_after_a_restart_a_vm_that_may_have_been_ready_does_not_count():
    """A VM that restarts goes through the same states as a new VM."""
    assert of_pools().see(Added(vm_of_pool()), Updated(vm_of_pool(), READY_VM)) == []


def test_a_vm_that_restarts_counts_once():
    setup = of_pools()
    setup.see(Added(NEW_VM), Updated(NEW_VM, READY_VM), Updated(READY_VM, vm_of_pool()))
    assert setup.see(Updated(vm_of_pool(), READY_VM)) == [60]
