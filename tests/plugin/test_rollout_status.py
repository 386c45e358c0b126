"""`kubectl vmherd rollout status`: its output in kubectl's words, the live line on a terminal, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.resources import VMIS, VMS
from controller.takeover.virt_controller import DEPLOYMENTS, VIRT_CONTROLLER
from informers.errors import ServerError, StatusError, TransportError
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


def test_a_finished_rollout_is_one_line(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("rollout status vmpool/web") == 'vmpool "web" successfully rolled out\n'


def test_a_piped_rollout_prints_one_line_for_each_change(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    cluster.on_read = [
        lambda: None,
        updates(cluster, "web-1", "web-2"),
        updates(cluster, "web-3"),
    ]
    assert shell.output("rollout status vmpool/web").splitlines() == [
        'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated...',
        'Waiting for vmpool "web" rollout to finish: 3 out of 4 new VMs have been updated...',
        'vmpool "web" successfully rolled out',
    ]


def test_a_stalled_rollout_fails_and_names_the_vm_with_its_problem(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster, stalled=True)
    line = 'error: vmpool "web" stalled for 15m: web-1 ImagePullBackOff (Back-off pulling image)'
    assert shell.error("rollout status vmpool/web") == line


def test_without_watch_the_present_state_is_printed_once(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    line = 'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated...\n'
    assert shell.output("rollout status vmpool web --watch=false") == line


def test_a_timeout_ends_the_command_with_code_1(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    code, out, err = shell("rollout status vmpool/web --timeout=500ms")
    assert (code, out.count("\n"), err) == (1, 1, "error: timed out waiting for the condition\n")


def test_a_terminal_shows_one_live_line(cluster: Cluster, shell: Shell, terminal: None):
    herds.pool_in_update(cluster)
    cluster.on_read = [lambda: None, updates(cluster, "web-1", "web-2", "web-3")]
    code, out, err = shell("rollout status vmpool/web")
    assert (code, err) == (0, "")
    assert "web  rev 2->3  ######......  2/4 updated  3 ready  1/1 unavailable  0s" in out
    assert out.endswith('vmpool "web" successfully rolled out\n')
    assert "Waiting" not in out


def test_json_is_one_document_at_the_end(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    document = json.loads(shell.output("rollout status vmpool/web -o json"))
    assert document["state"] == "Done"
    assert (document["wanted"], document["updated"], document["revision"]) == (2, 2, "2")
    assert shell.output("rollout status vmpool/web -o name") == "virtualmachinepool.pool.kubevirt.io/web\n"


def test_a_revision_that_is_not_the_present_one_fails(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    line = "error: desired revision (1) is different from the running revision (2)"
    assert shell.error("rollout status vmpool/web --revision=1") == line


def test_an_update_strategy_that_restarts_nothing_fails_instead_of_waiting(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster, updateStrategy={"unmanaged": {}})
    line = shell.error("rollout status vmpool/web")
    assert line == (
        'error: vmpool "web" does not finish its rollout: 2 VMs are outdated, '
        "and spec.updateStrategy unmanaged leaves them so"
    )


def test_a_partition_ends_the_rollout_early(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster, annotations={"vmherd.dev/partition": "4"})
    updates(cluster, "web-1")()
    line = "partitioned roll out complete: 2 new VMs have been updated...\n"
    assert shell.output("rollout status vmpool/web") == line


def test_a_spec_that_the_controller_has_not_seen_is_waited_for(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.server.change(POOL, WEB, {"status": {"observedGeneration": 1}})
    line = 'Waiting for vmpool "web" spec update to be observed...\n'
    assert shell.output("rollout status vmpool/web --watch=false") == line


def test_a_rolling_set_counts_its_new_vmis(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, outdated=2, updated=1)
    line = 'Waiting for vmirs "testreplicaset" rollout to finish: 1 out of 3 new VMIs have been updated...\n'
    assert shell.output("rollout status vmirs/testreplicaset --no-watch") == line


def test_a_set_without_a_rolling_update_names_the_annotation(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, outdated=2, rolls=False)
    assert shell.error("rollout status vmirs/testreplicaset").endswith(
        "2 VMIs are outdated, and without the annotation vmherd.dev/rolling-update they stay so"
    )


def test_a_set_at_rest_is_finished_without_a_rolling_update(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=2, rolls=False)
    assert shell.output("rollout status vmirs/testreplicaset") == 'vmirs "testreplicaset" successfully rolled out\n'


def test_without_permission_to_read_vms_the_status_of_the_pool_is_used(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    status = {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2}
    cluster.server.change(POOL, WEB, {"status": status})
    cluster.forbidden = {"virtualmachines"}
    code, out, err = shell("rollout status vmpool/web --watch=false")
    assert (code, out) == (0, 'Waiting for vmpool "web" rollout to finish: 1 of 2 updated VMs are available...\n')
    assert err == 'Warning: not everything is shown: virtualmachines is forbidden: User "jane" cannot list them\n'


def test_all_objects_of_a_type_are_followed_one_after_the_other(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    herds.replica_set(cluster, updated=1)
    assert shell.output("rollout status vmpool,vmirs").splitlines() == [
        'vmpool "web" successfully rolled out',
        'vmirs "testreplicaset" successfully rolled out',
    ]


def test_a_wrong_name_gets_a_suggestion(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.error("rollout status vmpool/wbe") == (
        'Error from server (NotFound): virtualmachinepools.pool.kubevirt.io "wbe" not found; did you mean "web"?'
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rollout status vmpol/web", "there is no type 'vmpol'; did you mean \"vmpool\"?"),
        ("rollout status", "name an object, such as vmpool/web"),
        ("rollout status vmpool/web api", "'api' is invalid; with TYPE/NAME, each argument has this form"),
        ("rollout status vmpool/Web", "'Web' is not the name of an object"),
        ("rollout status vmpool/web --wach", "No such option '--wach'. (Did you mean one of: "),
        ("rollout sttus vmpool/web", "No such command 'sttus'. Did you mean 'status'?"),
        ("rolout status vmpool/web", "No such command 'rolout'. Did you mean 'rollout'?"),
        ("rollout status vmpool/web --timeout=soon", "--timeout: 'soon' is invalid; expected a duration"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(shell: Shell, line: str, message: str):
    assert shell.error(line, code=2).startswith(f"error: {message}")


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


def test_an_error_of_the_server_is_printed_as_kubectl_prints_it(cluster: Cluster, shell: Shell):
    cluster.answer_with(StatusError("etcd is down", code=500, reason="InternalError"))
    assert shell.error("rollout status vmpool/web") == "Error from server (InternalError): etcd is down"


def test_a_deleted_object_ends_the_command(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, deleting=True)
    assert shell.error("rollout status vmpool/web") == 'error: vmpool "web" is being deleted'


REPLACES_NONE = (
    "KubeVirt's own controller runs this set, and replaces no VMI of an old template (KubeVirt reconciles "
    "virtualmachineinstancereplicasets.kubevirt.io (Deployment kubevirt/virt-controller has no "
    "--rs-controller-threads=0))"
)


@pytest.mark.parametrize("rolls", [True, False])
def test_behind_kubevirts_controller_a_set_with_outdated_vmis_fails_instead_of_waiting(
    cluster: Cluster, shell: Shell, rolls: bool
):
    herds.replica_set(cluster, outdated=2, updated=1, rolls=rolls)
    cluster.install_kubevirt()
    line = f'vmirs "testreplicaset" does not finish its rollout: {REPLACES_NONE}'
    assert shell.error("rollout status vmirs/testreplicaset --timeout=5s") == f"error: {line}"
    code, out, err = shell("rollout status vmirs/testreplicaset -o json")
    assert (code, err, json.loads(out)["state"]) == (1, f"error: {line}\n", "Failed")


def test_behind_kubevirts_controller_vmis_without_the_label_have_an_unknown_template(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1)
    cluster.server.change(VMIS, ObjectKey("default", "test0"), {"metadata": {"labels": {TEMPLATE_HASH: None}}})
    cluster.install_kubevirt()
    assert shell.error("rollout status vmirs/testreplicaset") == (
        'error: vmirs "testreplicaset" does not finish its rollout: no VMI has the label vmherd.dev/template-hash, '
        f"so the template of the VMIs is not known; {REPLACES_NONE}"
    )


def test_behind_kubevirts_controller_a_set_without_outdated_vmis_is_finished(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=2)
    cluster.install_kubevirt()
    assert shell.output("rollout status vmirs/testreplicaset") == 'vmirs "testreplicaset" successfully rolled out\n'


def test_a_watched_set_fails_when_kubevirts_controller_starts_again(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plugin.commands.rollout_status.CHECK_S", 0.01)
    herds.replica_set(cluster, outdated=1, updated=1)
    cluster.on_read = [lambda: None, cluster.install_kubevirt]
    code, out, err = shell("rollout status vmirs/testreplicaset --timeout=5s")
    assert (code, out.count("\n")) == (1, 1)
    assert REPLACES_NONE in err


def test_a_set_waits_while_virt_controller_restarts_for_a_takeover(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, outdated=1, updated=1)
    cluster.install_kubevirt("--rs-controller-threads=0")
    deployment = ObjectKey("kubevirt", VIRT_CONTROLLER)
    cluster.server.change(DEPLOYMENTS, deployment, {"status": {"updatedReplicas": 1}})
    line = 'Waiting for vmirs "testreplicaset" rollout to finish: 1 out of 2 new VMIs have been updated...\n'
    assert shell.output("rollout status vmirs/testreplicaset --watch=false") == line


def test_a_waiting_set_names_a_missing_permission_to_read_kubevirt(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, outdated=1, updated=1)
    cluster.install_kubevirt()
    cluster.forbidden = {"kubevirts"}
    code, out, err = shell("rollout status vmirs/testreplicaset --watch=false")
    assert (code, out.partition(":")[0]) == (0, 'Waiting for vmirs "testreplicaset" rollout to finish')
    assert err.startswith(
        'Warning: not everything is shown: whether KubeVirt\'s own controller works on vmirs "testreplicaset" ('
    )


def test_a_finished_set_needs_no_permission_to_read_kubevirt(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=2)
    cluster.install_kubevirt()
    cluster.forbidden = {"kubevirts"}
    assert shell.output("rollout status vmirs/testreplicaset") == 'vmirs "testreplicaset" successfully rolled out\n'
