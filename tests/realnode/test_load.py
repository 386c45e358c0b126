"""The chart's default memory limit and CPU request, with as many VMIs as the chart allows for one set."""

import os

import pytest

from tests.controlplane.waits import eventually
from tests.realnode.release import Release, container_of, document

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HERD = int(os.environ.get("VMHERD_TEST_NODE_HERD", "10000"))
LARGE = {"annotations": {"note": "x" * 2000}}
MIB = 2**20


def test_the_default_limits_are_enough_for_the_largest_set(idle: Release) -> None:
    release, sets = idle, idle.sets()
    leader = release.leader()
    sets.make(HERD, template_metadata={"labels": {"app": "herd"}, **LARGE})
    eventually(lambda: sets.status().get("replicas") == HERD, within_s=180, what=f"{HERD} VMIs")
    assert release.leader() == leader

    # The API server starts with an empty watch cache, so both Pods list all VMIs again.
    release.site.plane.restart_apiserver()
    sets.scale(HERD - 10)
    eventually(lambda: sets.status().get("replicas") == HERD - 10, what="ten VMIs less")
    release.kill(leader)
    release.site.kubectl.apply(document("hog"))
    sets.scale(HERD)
    eventually(lambda: sets.status().get("replicas") == HERD, what="ten VMIs more")
    release.wait_until_ready()

    pods = release.pods()
    peaks, limits = zip(*(release.node.memory(container_of(pod)) for pod in pods.values()), strict=True)
    print([f"{peak / MIB:.0f} MiB" for peak in peaks])
    assert set(limits) == {1024 * MIB}
    assert max(peaks) < 192 * MIB, "a Pod needs no more than its request"
    assert release.restarts() == {name: int(name == leader) for name in pods}
