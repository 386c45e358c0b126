"""What `why` says about the future: the controller's own functions do exactly this at these times."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import BUSY_UNTIL
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status
from controller.replicaset.plan import plan as plan_set
from controller.runtime.dry_run import dry_run_report
from informers.meta import ObjectKey
from plugin.flags import Flags
from plugin.reading import Reader
from plugin.subjects import Subject
from plugin.views.upcoming import Upcoming, upcoming_of
from tests.builders import seconds_ago
from tests.fakes.rules import wire
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Session


async def snapshot_of(cluster: Cluster, kind: Any, name: str) -> Any:
    reader = Reader(Session(cluster, Flags()), "default")
    [target] = await reader.targets([Subject(kind, kind.group, name)])
    return await reader.snapshot(target)


def plan_after(snapshot: Any, seconds: float, plan: Callable[[Any], Any]) -> Any:
    return plan(replace(snapshot, now=snapshot.now + timedelta(seconds=seconds)))


@pytest.mark.parametrize("state", ["back-off", "unready"])
async def test_a_set_writes_at_the_time_of_why_and_not_before(cluster: Cluster, state: str):
    states.SETS[state](cluster)
    snapshot = await snapshot_of(cluster, REPLICA_SETS, states.SET_NAME)
    writes = [each for each in upcoming_of(snapshot) if each.is_write]
    assert len(writes) == 2
    for each in writes:
        assert each.seconds is not None
        text = each.text.partition(": ")[2]
        assert text in dry_run_report(plan_after(snapshot, each.seconds, plan_set), status=False).actions
        assert text not in dry_run_report(plan_after(snapshot, each.seconds - 1, plan_set), status=False).actions


async def test_a_rollout_stalls_at_the_time_of_why_and_not_before(cluster: Cluster):
    states.POOLS["partition"](cluster)
    snapshot = await snapshot_of(cluster, POOLS, "web")
    assert upcoming_of(snapshot) == (Upcoming(seconds=540, text="Stalled in 9m"),)
    for seconds, expected in ((540, True), (539, False)):
        later = replace(snapshot, now=snapshot.now + timedelta(seconds=seconds))
        conditions = next_status(later, (), plan_pool(later).waits).conditions
        assert (find_true(conditions, "Stalled") is not None) is expected


@pytest.mark.parametrize("busy_s", [300, 1200])
async def test_nothing_is_foretold_after_a_write(cluster: Cluster, busy_s: int):
    """The healing at 240 s replaces the VM that would be late at 540 s. The end of a busy mark begins an update."""
    states.POOLS["rollout"](cluster)
    assert upcoming_of(await snapshot_of(cluster, POOLS, "web")) == ()
    change = {"spec": {"autohealing": None, "maxUnavailable": 2}}
    cluster.server.change(POOL, ObjectKey("default", "web"), change)
    for name in ("web-2", "web-3"):
        mark = {"metadata": {"annotations": {BUSY_UNTIL: wire(seconds_ago(-busy_s))}}}
        cluster.server.change(VMS, ObjectKey("default", name), mark)
    *_, last = upcoming_of(await snapshot_of(cluster, POOLS, "web"))
    assert (last.is_write, last.seconds) == (True, busy_s)


async def test_a_vm_is_healed_at_the_time_of_why_and_not_before(cluster: Cluster):
    states.POOLS["before-healing"](cluster)
    snapshot = await snapshot_of(cluster, POOLS, "web")
    [wait] = plan_pool(snapshot).waits
    assert wait.text == "healing: web-1 fails, and is replaced at 2026-08-01T12:04:00Z"
    assert (wait.names, wait.until) == (("web-1",), snapshot.now + timedelta(seconds=240))
    assert plan_after(snapshot, 240, plan_pool).held.startswith("healing: failed virtual machines are replaced")
    assert plan_after(snapshot, 239, plan_pool).waits == (wait,)


@pytest.mark.parametrize("state", ["paused", "deleted", "invalid", "at-rest"])
async def test_nothing_comes_next_without_a_change(cluster: Cluster, state: str):
    states.POOLS[state](cluster)
    assert upcoming_of(await snapshot_of(cluster, POOLS, "web")) == ()
    states.SETS[state](cluster)
    assert upcoming_of(await snapshot_of(cluster, REPLICA_SETS, states.SET_NAME)) == ()
