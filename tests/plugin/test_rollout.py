"""`kubectl vmherd rollout`: status, history, restart and resume. Golden files have the rest."""

import json
import re
from collections.abc import Callable

import pytest

from controller.kinds import POOLS
from controller.kubevirt.annotations import PARTITION, ROLLBACK, ROLLED_BACK, ROLLING_UPDATE
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.members.revisions import read_revisions
from controller.pool.spec.template import Template, parse_template
from controller.replicas.settings import read_settings
from informers.errors import ServerError, TransportError
from informers.meta import ObjectKey
from plugin.views.edits import edited
from plugin.views.forecast import forecast_of
from plugin.views.steering import restart_edits
from tests import builders, pool_builders
from tests.plugin import states
from tests.plugin.cluster import POOL, SET, Cluster, Shell
from tests.pool_builders import intent_of
from tests.strategies import template_hash_of

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin.commands.watching.INTERVAL_S", 0.01)


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
    states.pool_in_update(cluster)
    cluster.on_read = [lambda: None, updates(cluster, "web-1", "web-2"), updates(cluster, "web-3")]
    assert shell.output("rollout status vmpool/web").splitlines() == [
        'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated... '
        "(web-1: ImagePullBackOff, Back-off pulling image)",
        'Waiting for vmpool "web" rollout to finish: 2 out of 4 new VMs have been updated...',
        'Waiting for vmpool "web" rollout to finish: 3 out of 4 new VMs have been updated...',
        'vmpool "web" successfully rolled out',
    ]


@pytest.mark.parametrize(("observed", "is_down", "code"), [(3, True, 1), (2, True, 0), (3, False, 0)])
def test_a_stall_that_only_the_controller_knows_ends_a_rollout(
    cluster: Cluster, shell: Shell, observed: int, is_down: bool, code: int
):
    # Each start of a crash loop is a new VMI, so only the controller remembers when the first one was not ready.
    stalled = {"type": "Stalled", "status": "True", "reason": "ProgressDeadlineExceeded", "message": "web-1: Starting"}
    states.pool_in_update(cluster, status={"observedGeneration": observed, "conditions": [stalled]})
    if not is_down:
        updates(cluster, "web-1")()
    assert shell("rollout status vmpool/web --watch=false")[0] == code
    says = "stalled: web-1: Starting" in shell.output("why vmpool/web")
    assert says == bool(code)


def test_a_timeout_without_a_controller_says_so(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster, status={"observedGeneration": 0})
    code, _, err = shell("rollout status vmpool/web --timeout=500ms")
    said = "no controller has seen it; see kubectl vmherd why vmpool/web"
    assert (code, err) == (1, f"error: timed out waiting for the condition: {said}\n")


def test_a_terminal_shows_the_live_tree(cluster: Cluster, shell: Shell, terminal: None):
    states.pool_in_update(cluster)
    cluster.on_read = [lambda: None, updates(cluster, "web-1", "web-2", "web-3")]
    code, out, err = shell("rollout status vmpool/web")
    assert (code, err) == (0, "")
    assert re.search(r"vmpool/web +2->3 +\S*Updating\S* 2/4 +3/4 .*vm/web-1 +3 +\S*ImagePullBackOff", out, re.DOTALL)
    assert out.endswith('vmpool "web" successfully rolled out\n')
    assert "Waiting" not in out


@pytest.mark.parametrize("partition", ["4", "100%"])
def test_a_partition_ends_the_rollout_early(cluster: Cluster, shell: Shell, partition: str):
    states.pool_in_update(cluster, annotations={"vmherd.dev/partition": partition})
    updates(cluster, "web-1")()
    line = "partitioned roll out complete: 2 new VMs have been updated...\n"
    assert shell.output("rollout status vmpool/web") == line


def test_an_outage_of_the_server_does_not_end_the_watch(cluster: Cluster, shell: Shell):
    states.pool_in_update(cluster)
    down = TransportError("cannot connect to 10.0.0.1:6443: Connection refused", sent=False)
    faults = iter([*[down] * 4, ServerError("etcd is down", code=500, reason="InternalError"), down])

    def away() -> None:
        cluster.server.fault_for = lambda request: next(faults, None) if request.resource is POOL else None
        updates(cluster, "web-1", "web-2", "web-3")()

    cluster.on_read = [away]
    code, out, err = shell("rollout status vmpool/web")
    assert (code, out.splitlines()[-1]) == (0, 'vmpool "web" successfully rolled out')
    assert err == "Warning: no answer since 0s: cannot connect to 10.0.0.1:6443: Connection refused\n"


REPLACES_NONE = (
    "KubeVirt's own controller runs this set, and replaces no VMI of an old template (KubeVirt reconciles "
    "virtualmachineinstancereplicasets.kubevirt.io (Deployment kubevirt/virt-controller has no "
    "--rs-controller-threads=0))"
)


def test_a_watched_set_fails_when_kubevirts_controller_starts_again(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plugin.commands.rollout_status.CHECK_S", 0.01)
    states.replica_set(cluster, outdated=1, updated=1)
    cluster.on_read = [lambda: None, cluster.install_kubevirt]
    code, out, err = shell("rollout status vmirs/testreplicaset --timeout=5s")
    assert (code, out.count("\n")) == (1, 1)
    assert REPLACES_NONE in err


def test_on_a_terminal_long_lines_of_the_history_end_at_the_edge(cluster: Cluster, shell: Shell, terminal: None):
    states.pool_at_rest(cluster)
    assert max(map(len, shell.output("rollout history vmpool/web").splitlines())) <= 80


def test_a_restart_changes_the_digest_that_makes_a_pool_restart_its_vmis():
    document = json.loads(json.dumps({"metadata": {"name": "web"}, "spec": {"virtualMachineTemplate": {}}}))
    pool = pool_builders.pool()
    document["spec"]["virtualMachineTemplate"] = {"spec": pool_builders.vm_spec()}
    changed = edited(document, restart_edits(POOLS, document, "2026-08-01T12:00:00Z"))
    new = pool_builders.pool(spec=changed["spec"]["virtualMachineTemplate"]["spec"])
    before, after = parse_template(pool.spec), parse_template(new.spec)
    assert isinstance(before, Template)
    assert isinstance(after, Template)
    assert before.machine != after.machine
    assert before.disks == after.disks
    assert not read_revisions(pool_builders.snapshot(new, revisions=[]), after).current_exists


def test_an_undo_after_a_return_goes_to_the_revision_of_the_vms_and_not_to_a_newer_one(cluster: Cluster, shell: Shell):
    states.pool_rolled_back(cluster)
    another = pool_builders.pool(generation=1, spec=pool_builders.vm_spec(image="bad"))
    cluster.put(CONTROLLER_REVISIONS, pool_builders.revision(another, "web-1", number=2))
    former = pool_builders.revision(pool_builders.pool(generation=2), "web-2", number=1)
    cluster.put(CONTROLLER_REVISIONS, former)
    shell.output("rollout undo vmpool/web")
    pool = cluster.server.find(POOL, ObjectKey("default", "web"))
    assert intent_of(pool).template.digest == intent_of(pool_builders.pool(generation=2)).template.digest


def test_why_knows_the_revision_to_which_a_set_has_returned(cluster: Cluster, shell: Shell):
    spec, former = b'{"domain": {"devices": {}}, "hostname": "new"}', builders.revision(builders.replicaset())
    note = f"{template_hash_of(builders.replicaset(spec=spec))} to {former.metadata.name}"
    annotations = {ROLLBACK: "stalled", ROLLED_BACK: note, ROLLING_UPDATE: "maxUnavailable=1"}
    cluster.put(SET, builders.replicaset(replicas=0, spec=spec, annotations=annotations))
    cluster.put(CONTROLLER_REVISIONS, former)
    told = shell.output("why vmirs/testreplicaset")
    assert f"its VMs return to revision {former.metadata.name}" in told
    assert "does not exist" not in told


def test_a_restart_changes_the_template_so_it_is_tried_again(cluster: Cluster, shell: Shell):
    states.pool_rolled_back(cluster)
    shell.output("rollout restart vmpool/web")
    pool = cluster.server.find(POOL, ObjectKey("default", "web"))
    assert read_settings(pool.metadata).return_target(intent_of(pool).template.digest) == ""


def test_the_forecast_says_which_vms_wait_for_a_later_step():
    owner = pool_builders.pool(generation=2, spec=pool_builders.vm_spec(image="v2"), annotations={PARTITION: "2,0"})
    vms = pool_builders.vms(owner, 0, 1, 2)
    revisions = [pool_builders.revision(pool_builders.pool(), "web-1", number=1)]
    first, *others = forecast_of(pool_builders.snapshot(owner, vms, revisions=revisions)).members
    assert (first.name, first.turn, first.held) == ("web-2", 1, "")
    assert {each.held for each in others} == {f"it waits for a later step: {PARTITION} is 2,0"}
