"""What `why` says about the future: the controller's own functions do exactly this at these times."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kinds import POOLS, REPLICA_SETS
from controller.pool.plan import plan as plan_pool
from controller.replicaset.plan import plan as plan_set
from controller.runtime.dry_run import dry_run_report
from plugin.flags import Flags
from plugin.reading import Reader
from plugin.subjects import Subject
from plugin.views.upcoming import Upcoming, upcoming_of
from tests.plugin import states
from tests.plugin.cluster import Cluster, Session


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


@pytest.mark.parametrize("state", ["rollout", "partition"])
async def test_a_rollout_stalls_at_the_time_of_why_and_not_before(cluster: Cluster, state: str):
    states.POOLS[state](cluster)
    snapshot = await snapshot_of(cluster, POOLS, "web")
    [stall] = [each for each in upcoming_of(snapshot) if each.text.startswith("RolloutStalled in ")]
    assert stall == Upcoming(seconds=540, text="RolloutStalled in 9m")
    at, before = (plan_after(snapshot, seconds, plan_pool).notices for seconds in (540, 539))
    assert "RolloutStalled" in {notice.reason for notice in at}
    assert "RolloutStalled" not in {notice.reason for notice in before}


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
