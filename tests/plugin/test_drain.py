"""`kubectl vmherd drain`: what a node's pools and sets lose, and how many VMs leave at the same time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.resources import VMIS
from informers.errors import TooManyRequests
from informers.meta import ObjectKey
from plugin.commands.drain import NODE_LABEL, NODES
from plugin.views.draining import Budget, Evictee, choose
from tests.plugin.cluster import Cluster, Shell
from tests.plugin.scenes import pool_on_one_node

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin.commands.drain.INTERVAL_S", 0.01)


def restarts_elsewhere(cluster: Cluster) -> list[int]:
    """An evicted VMI becomes unready. A few reads later, it is ready on another node.

    Each eviction adds the number of unready VMIs to the returned list.
    """
    unready: list[int] = []

    def evict(pod: str) -> None:
        key = ObjectKey("default", pod.removeprefix("pod-"))
        cluster.server.change(VMIS, key, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        states = [each["status"]["conditions"][0]["status"] for each in cluster.server.documents(VMIS).values()]
        unready.append(states.count("False"))
        ready = {"nodeName": "node-2", "conditions": [{"type": "Ready", "status": "True"}]}
        moved = {"metadata": {"labels": {NODE_LABEL: "node-2"}}, "status": ready}
        cluster.on_read = [lambda: None, lambda: None, lambda: cluster.server.change(VMIS, key, moved)]

    cluster.on_eviction = evict
    return unready


def test_a_drain_takes_no_more_from_a_pool_than_its_limit(cluster: Cluster, shell: Shell):
    pool_on_one_node(cluster)
    unready = restarts_elsewhere(cluster)
    lines = shell.output("drain node-1").splitlines()
    assert lines[:3] == [
        "NAMESPACE   OWNER        LOSES   MAY BE UNAVAILABLE   VMS",
        "default     vmpool/web   3       1 (0 now)            web-0, web-1, web-2",
        "node/node-1 cordoned",
    ]
    assert lines[-1] == "node/node-1 drained"
    assert [line for line in lines if line.startswith("evicting")] == [
        f"evicting vmi default/web-{number}" for number in range(3)
    ]
    assert unready == [1, 1, 1]
    assert cluster.server.document(NODES, ObjectKey("", "node-1"))["spec"] == {"unschedulable": True}


def test_a_timeout_says_how_many_vmis_are_left(cluster: Cluster, shell: Shell):
    pool_on_one_node(cluster)
    code, _, err = shell("drain node-1 --timeout=200ms")
    assert (code, err) == (1, "error: timed out: 3 VMIs are still on node-1\n")
    assert cluster.evictions == ["pod-web-0"]


def test_a_denied_eviction_is_repeated_and_a_migration_is_not(cluster: Cluster, shell: Shell):
    pool_on_one_node(cluster, 1)
    denials = [
        TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", code=429),
        TooManyRequests('Eviction triggered evacuation of VMI "default/web-0"', code=429),
    ]

    def deny(pod: str) -> None:
        if len(denials) == 1:
            moved = {"metadata": {"labels": {NODE_LABEL: "node-2"}}, "status": {"nodeName": "node-2"}}
            cluster.server.change(VMIS, ObjectKey("default", "web-0"), moved)
        raise denials.pop(0)

    cluster.on_eviction = deny
    lines = shell.output("drain node-1").splitlines()
    assert lines[3].startswith("waiting: the eviction of default/web-0 is denied: Cannot evict pod")
    assert lines[4:] == ["migrating vmi default/web-0", "node/node-1 drained"]


EVICTEES = st.lists(
    st.builds(
        lambda number, owner, ready: Evictee(
            namespace="a", name=f"vm-{number}", uid=str(number), owner=owner, is_ready=ready
        ),
        st.integers(0, 20),
        st.sampled_from(["", "x", "y"]),
        st.booleans(),
    ),
    max_size=10,
    unique_by=lambda each: each.uid,
)


@given(EVICTEES, st.integers(1, 4), st.integers(0, 4), st.sets(st.integers(0, 20).map(str)))
def test_no_round_exceeds_a_limit(evictees: list[Evictee], limit: int, unavailable: int, evicted: set[str]):
    budgets = {owner: Budget(limit, unavailable) for owner in ("x", "y")}
    round_ = choose(evictees, budgets, evicted)
    for owner in budgets:
        leaving = [each for each in round_.now if each.owner == owner and each.is_ready]
        begun = [each for each in evictees if each.owner == owner and each.is_ready and each.uid in evicted]
        assert not leaving or unavailable + len(begun) + len(leaving) <= limit
    chosen = {each.uid for each in round_.now}
    assert not chosen & evicted
    assert {each.uid for each in evictees if not each.is_ready} <= chosen | evicted
    waiting = len(evictees) - len(chosen) - len({each.uid for each in evictees} & evicted)
    assert sum(round_.waiting.values()) == waiting
