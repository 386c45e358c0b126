"""Pods of the chart that are deleted and killed, and a node that fails. The other Pod goes on with the work.

The tests share a release. At the end of each test, both Pods are ready.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.realnode.conftest import opened
from tests.realnode.node import Node
from tests.realnode.release import TOKEN_ID, Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def release(real_node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Two running Pods of the chart, with its default values. The simulator plays KubeVirt."""
    with opened(real_node, tmp_path_factory.mktemp("release")) as release, simulator(real_node.plane):
        release.install()
        yield release


@pytest.fixture
def sets(release: Release) -> Iterator[SetNamespace]:
    sets = release.sets()
    yield sets
    release.site.kubectl("delete", "vmirs", "--all")
    eventually(lambda: not sets.vmis(), what="the VMIs are gone")


def test_if_the_leaders_pod_is_deleted_the_other_pod_goes_on_at_once(release: Release, sets: SetNamespace) -> None:
    before = release.leader()
    sets.make(3)
    sets.wait_ready(3)
    release.site.kubectl("delete", "pod", before)
    sets.scale(6)
    sets.wait_ready(6)
    assert release.leader() not in ("", before)
    release.wait_until_ready()
    assert set(sets.created().values()) == {1}
    assert release.writers(sets.since, sets.namespace) == [before, release.leader()]


def test_if_the_leader_is_killed_another_process_takes_over_when_the_lease_has_ended(
    release: Release, sets: SetNamespace
) -> None:
    before, killed = release.leader(), release.holder()
    restarts = release.restarts()[before]
    sets.make(3)
    sets.wait_ready(3)
    release.kill(before)
    sets.scale(6)
    sets.wait_ready(6, within_s=40)
    # The kubelet may start the container again so soon that its new process is the first.
    after = release.leader()
    assert release.holder() not in ("", killed)
    eventually(lambda: release.restarts()[before] == restarts + 1, what="the kubelet starts the container again")
    release.wait_until_ready()
    assert set(sets.created().values()) == {1}
    assert release.writers(sets.since, sets.namespace) == list(dict.fromkeys((before, after)))


def test_while_the_kubelet_is_down_the_leader_works_on_and_then_uses_its_new_token(
    release: Release, sets: SetNamespace
) -> None:
    leader, restarts = release.leader(), release.restarts()
    token = release.python(leader, TOKEN_ID)
    sets.make(3)
    release.node.stop_kubelet()
    eventually(lambda: not release.node.ready, what="the node is lost")
    sets.scale(6)
    sets.wait_ready(6)
    assert release.leader() == leader
    since = release.site.plane.audit_position()
    release.node.start_kubelet()
    eventually(lambda: release.node.ready, what="the node is ready again")
    release.wait_until_ready()
    assert release.restarts() == restarts
    renewed = eventually(lambda: {release.python(leader, TOKEN_ID)} - {token}, what="a new token")
    eventually(lambda: renewed & release.tokens(since), within_s=90, what="a request with the new token")
    assert release.refused(since) == set()
    assert release.leader() == leader


def test_a_drain_of_the_only_node_leaves_one_pod_at_work(release: Release, sets: SetNamespace) -> None:
    drain = ("drain", "real", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=8s")
    done = release.node.kubectl(*drain, check=False)
    try:
        assert "would violate the pod's disruption budget" in done.stderr
        release.wait_until_ready(1)
        sets.make(3)
        sets.wait_ready(3)
    finally:
        release.node.kubectl("uncordon", "real")
    release.wait_until_ready()
    assert set(sets.created().values()) == {1}
