"""What `why` says about the future: the controller's own functions do exactly this at these times."""

from typing import Any

import pytest

from controller.kinds import POOLS
from controller.kubevirt.annotations import BUSY_UNTIL
from controller.kubevirt.resources import VMS
from informers.meta import ObjectKey
from plugin.flags import Flags
from plugin.reading import Reader
from plugin.subjects import Subject
from plugin.views.upcoming import upcoming_of
from tests.builders import seconds_ago
from tests.fakes.rules import wire
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Session


async def snapshot_of_web(cluster: Cluster) -> Any:
    reader = Reader(Session(cluster, Flags()), "default")
    return await reader.snapshot(await reader.target(Subject(POOLS, POOLS.group, "web")))


@pytest.mark.parametrize("busy_s", [300, 1200])
async def test_nothing_is_foretold_after_a_write(cluster: Cluster, busy_s: int):
    """The healing at 240 s replaces the VM that would be late at 540 s. The end of a busy mark begins an update."""
    states.POOLS["rollout"](cluster)
    assert upcoming_of(await snapshot_of_web(cluster)) == ()
    change = {"spec": {"autohealing": None, "maxUnavailable": 2}}
    cluster.server.change(POOL, ObjectKey("default", "web"), change)
    for name in ("web-2", "web-3"):
        mark = {"metadata": {"annotations": {BUSY_UNTIL: wire(seconds_ago(-busy_s))}}}
        cluster.server.change(VMS, ObjectKey("default", name), mark)
    *_, last = upcoming_of(await snapshot_of_web(cluster))
    assert (last.is_write, last.seconds) == (True, busy_s)
