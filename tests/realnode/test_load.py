"""The chart's default memory limit and CPU request, with as many VMIs as the chart allows for one set."""

import os

import pytest

from tests.controlplane.waits import eventually
from tests.realnode.release import VALUES, Release, container_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HERD = int(os.environ.get("VMHERD_TEST_NODE_HERD", "10000"))
LARGE = {"annotations": {"note": "x" * 2000}}
BUSY = "import multiprocessing as m; [m.Process(target=exec, args=('while True: pass',)).start() for _ in range(4)]"
MIB = 2**20


def hog() -> dict[str, object]:
    """A Pod that takes all CPUs that it can get. It asks for fifteen times as much as the controller."""
    image = VALUES["image"]
    container = {
        "name": "hog",
        "image": f"{image['registry']}/{image['repository']}:{image['tag']}",
        "imagePullPolicy": "Never",
        "command": ["python", "-c", BUSY],
        "resources": {"requests": {"cpu": "1500m"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": context, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hog"}, "spec": spec}


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
    release.site.kubectl.apply(hog())
    sets.scale(HERD)
    eventually(lambda: sets.status().get("replicas") == HERD, what="ten VMIs more")
    release.wait_until_ready()

    pods = release.pods()
    peaks = {name: release.node.memory(container_of(pod), "max_usage_in_bytes") for name, pod in pods.items()}
    limits = {release.node.memory(container_of(pod), "limit_in_bytes") for pod in pods.values()}
    print({name: f"{peak / MIB:.0f} MiB" for name, peak in peaks.items()})
    assert limits == {1024 * MIB}
    assert max(peaks.values()) < 192 * MIB, "a Pod needs no more than its request"
    assert release.restarts() == {name: int(name == leader) for name in pods}
