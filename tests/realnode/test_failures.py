"""Pods of the chart that are deleted and killed, and a node that fails. The other Pod goes on with the work."""

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.waits import eventually
from tests.realnode.release import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


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


def test_if_the_leader_is_killed_the_other_pod_takes_over_when_the_lease_has_ended(
    release: Release, sets: SetNamespace
) -> None:
    before = release.leader()
    sets.make(3)
    sets.wait_ready(3)
    release.kill(before)
    sets.scale(6)
    sets.wait_ready(6, within_s=40)
    after = release.leader()
    assert after not in ("", before)
    eventually(lambda: release.restarts()[before] == 1, what="the kubelet starts the container again")
    release.wait_until_ready()
    assert set(sets.created().values()) == {1}
    assert release.writers(sets.since, sets.namespace) == [before, after]
