"""The chart's limits on a real node: memory and CPU for the largest set, and what the kernel allows."""

import os
from typing import Any

import pytest

from tests.controlplane.waits import eventually
from tests.realnode.image import IMAGE
from tests.realnode.release import Release, container_of, document

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HERD = int(os.environ.get("VMHERD_TEST_NODE_HERD", "10000"))
LARGE = {"annotations": {"note": "x" * 2000}}
MIB = 2**20
FOREIGN = 1000700000
LOOK = """
import errno, json, os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/1/status").read_text().splitlines())
def refusal(path):
    try:
        pathlib.Path(path, "file").touch()
    except OSError as error:
        return errno.errorcode[error.errno]
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid")
seen = {name: status[name].split()[0] for name in names}
print(json.dumps({**seen, "writes": [refusal(path) for path in ("/", "/app", "/tmp")]}))
"""


@pytest.mark.parametrize(
    ("context", "user", "group"),
    [({}, 65532, 0), ({"runAsUser": FOREIGN, "fsGroup": FOREIGN}, FOREIGN, 0)],
    ids=["the image's user", "a foreign user"],
)
def test_a_pod_works_with_no_rights_on_a_read_only_root(
    bare: Release, context: dict[str, Any], user: int, group: int
) -> None:
    bare.install(podSecurityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **context})
    seen = bare.python(bare.leader(), LOOK)
    assert (seen.pop("Uid"), seen.pop("Gid")) == (str(user), str(group))
    assert seen.pop("writes") == ["EROFS"] * 3
    assert (seen.pop("NoNewPrivs"), seen.pop("Seccomp")) == ("1", "2")
    assert {int(number, 16) for number in seen.values()} == {0}
    sets = bare.sets()
    sets.make(2)
    sets.wait_ready(2)
    root = ("run", "other", f"--image={IMAGE}", "--dry-run=server")
    assert 'violates PodSecurity "restricted' in bare.site.kubectl(*root, check=False).stderr


# The last test of the node: the deletion of its VMIs goes on after the test.
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
    # Without an API server for ten seconds, the leader has given up, and the other Pod leads.
    leader, restarts = release.leader(), release.restarts()
    release.kill(leader)
    release.site.kubectl.apply(document("hog"))
    sets.scale(HERD)
    eventually(lambda: sets.status().get("replicas") == HERD, what="ten VMIs more")
    # A busy kubelet tells the end of a container later than its successor works.
    restarts[leader] += 1
    eventually(lambda: release.restarts() == restarts, what="one restart")
    release.wait_until_ready()

    pods = release.pods()
    peaks, limits = zip(*(release.node.memory(container_of(pod)) for pod in pods.values()), strict=True)
    print([f"{peak / MIB:.0f} MiB" for peak in peaks])
    assert set(limits) == {1024 * MIB}
    assert max(peaks) < 192 * MIB, "a Pod needs no more than its request"
    assert release.restarts() == restarts
