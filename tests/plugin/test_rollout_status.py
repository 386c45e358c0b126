"""`kubectl vmherd rollout status`: its output in kubectl's words, the live line on a terminal, and the exit codes."""

from collections.abc import Callable

import pytest

from controller.kubevirt.resources import VMIS, VMS
from informers.errors import ServerError, TransportError
from informers.meta import ObjectKey
from tests.plugin import herds
from tests.plugin.cluster import POOL, Cluster, Shell

WEB = ObjectKey("default", "web")


pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin.commands.rollout_status.INTERVAL_S", 0.01)


def updates(cluster: Cluster, *names: str) -> Callable[[], None]:
    """A change after which these VMs have the new template and are ready."""

    def change() -> None:
        label = {"metadata": {"labels": {"kubevirt.io/vm-pool-revision-name": "web-3"}}}
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        for name in names:
            key = ObjectKey("default", name)
            cluster.server.change(VMS, key, {**label, "status": {**ready["status"], "printableStatus": "Running"}})
            cluster.server.change(VMIS, key, {**label, **ready})

    return change


def test_a_piped_rollout_prints_one_line_for_each_change(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    cluster.on_read = [lambda: None, updates(cluster, "web-1", "web-2"), updates(cluster, "web-3")]
    assert shell.output("rollout status vmpool/web").splitlines() == [
        'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated... '
        "(web-1: ImagePullBackOff, Back-off pulling image)",
        'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated...',
        'Waiting for vmpool "web" rollout to finish: 3 out of 4 new VMs have been updated...',
        'vmpool "web" successfully rolled out',
    ]


def test_a_timeout_names_the_problem_and_ends_the_command_with_code_1(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    code, out, err = shell("rollout status vmpool/web --timeout=500ms")
    assert (code, out.count("\n")) == (1, 1)
    problem = "web-1: ImagePullBackOff, Back-off pulling image"
    assert err == f"error: timed out waiting for the condition: {problem}\n"


def test_a_timeout_without_a_controller_says_so(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, status={"observedGeneration": 0})
    code, _, err = shell("rollout status vmpool/web --timeout=500ms")
    said = "no controller has seen it; see kubectl vmherd why vmpool/web"
    assert (code, err) == (1, f"error: timed out waiting for the condition: {said}\n")


def test_a_terminal_shows_one_live_line(cluster: Cluster, shell: Shell, terminal: None):
    herds.pool_in_update(cluster)
    cluster.on_read = [lambda: None, updates(cluster, "web-1", "web-2", "web-3")]
    code, out, err = shell("rollout status vmpool/web")
    assert (code, err) == (0, "")
    assert "web  rev 2->3  ######......  2/4 updated  3 ready  1/1 unavailable  0s" in out
    assert out.endswith('vmpool "web" successfully rolled out\n')
    assert "Waiting" not in out


def test_a_partition_ends_the_rollout_early(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster, annotations={"vmherd.dev/partition": "4"})
    updates(cluster, "web-1")()
    line = "partitioned roll out complete: 2 new VMs have been updated...\n"
    assert shell.output("rollout status vmpool/web") == line


def test_a_short_outage_of_the_server_does_not_end_the_watch(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    down = TransportError("cannot connect to 10.0.0.1:6443: Connection refused", sent=False)
    faults = iter([down, ServerError("etcd is down", code=500, reason="InternalError"), down])

    def away() -> None:
        cluster.server.fault_for = lambda request: next(faults, None) if request.resource is POOL else None
        updates(cluster, "web-1", "web-2", "web-3")()

    cluster.on_read = [away]
    code, out, err = shell("rollout status vmpool/web")
    assert (code, out.splitlines()[-1]) == (0, 'vmpool "web" successfully rolled out')
    assert err == ("Warning: cannot connect to 10.0.0.1:6443: Connection refused; trying again for 30 seconds\n")


def test_a_long_outage_ends_the_watch(cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("plugin.commands.rollout_status.OUTAGE_S", 0.05)
    herds.pool_in_update(cluster)
    down = TransportError("cannot connect", sent=False)

    def away() -> None:
        cluster.server.fault_for = lambda request: down if request.resource is POOL else None

    cluster.on_read = [away]
    code, _, err = shell("rollout status vmpool/web")
    assert (code, err.splitlines()[-1]) == (1, "error: cannot connect")


REPLACES_NONE = (
    "KubeVirt's own controller runs this set, and replaces no VMI of an old template (KubeVirt reconciles "
    "virtualmachineinstancereplicasets.kubevirt.io (Deployment kubevirt/virt-controller has no "
    "--rs-controller-threads=0))"
)


def test_a_watched_set_fails_when_kubevirts_controller_starts_again(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plugin.commands.rollout_status.CHECK_S", 0.01)
    herds.replica_set(cluster, outdated=1, updated=1)
    cluster.on_read = [lambda: None, cluster.install_kubevirt]
    code, out, err = shell("rollout status vmirs/testreplicaset --timeout=5s")
    assert (code, out.count("\n")) == (1, 1)
    assert REPLACES_NONE in err
