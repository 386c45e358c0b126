"""`kubectl vmherd rollout history, undo, restart, pause, resume`: what they print, and what they send."""

from __future__ import annotations

import json

import pytest
import yaml

from controller.kinds import POOLS, REPLICA_SETS
from controller.pool.members.revisions import read_revisions
from controller.pool.spec.template import Template, parse_template
from informers.meta import ObjectKey
from plugin.views.edits import edited
from plugin.views.steering import RESTARTED_AT, restart_edits
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, SET, Cluster, Shell

WEB = "virtualmachinepool.pool.kubevirt.io/web"
HERD = "virtualmachineinstancereplicaset.kubevirt.io/testreplicaset"
KEY = ObjectKey("default", "web")


def image(cluster: Cluster) -> str:
    template = cluster.document(POOL, "web")["spec"]["virtualMachineTemplate"]
    found: str = template["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"]
    return found


def test_the_history_lists_revisions_with_the_changed_fields(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("rollout history vmpool/web").splitlines() == [
        WEB,
        "REVISION   CURRENT   VMS   AGE   CHANGES",
        "1                    0     24h   <none>",
        "2          *         2     24h   spec.template.spec.volumes[0].containerDisk.image",
        "",
    ]


def test_on_a_terminal_long_lines_of_the_history_end_at_the_edge(cluster: Cluster, shell: Shell, terminal: None):
    herds.pool_at_rest(cluster)
    lines = shell.output("rollout history vmpool/web").splitlines()
    assert max(map(len, lines)) <= 80


def test_one_revision_is_printed_as_yaml(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    head, _, body = shell.output("rollout history vmpool/web --revision=1").partition("\n")
    assert head == f"{WEB} with revision #1"
    volumes = yaml.safe_load(body)["virtualMachineTemplate"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["containerDisk"] == {"image": "v0"}


def test_history_as_json_has_one_entry_for_each_revision(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    rows = json.loads(shell.output("rollout history vmpool/web -o json"))
    assert [(row["revision"], row["isCurrent"], row["vms"]) for row in rows] == [(1, False, 0), (2, True, 2)]


def test_without_permission_to_read_vms_the_history_leaves_out_their_number(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"virtualmachines", "virtualmachineinstances"}
    code, out, err = shell("rollout history vmpool/web")
    assert code == 0
    assert out.splitlines() == [
        WEB,
        "REVISION   CURRENT   VMS         AGE   CHANGES",
        "1                    <unknown>   24h   <none>",
        "2          *         <unknown>   24h   spec.template.spec.volumes[0].containerDisk.image",
        "",
    ]
    assert err == 'Warning: not everything is shown: virtualmachines is forbidden: User "jane" cannot list them\n'
    code, out, _ = shell("rollout history vmpool/web -o json")
    assert (code, [row["vms"] for row in json.loads(out)]) == (0, [None, None])
    code, out, _ = shell("rollout history vmpool/web --revision=1")
    assert (code, out.splitlines()[0]) == (0, f"{WEB} with revision #1")


def test_the_history_of_a_pool_needs_no_permission_to_read_vmis(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    expected = shell.output("rollout history vmpool/web")
    cluster.forbidden = {"virtualmachineinstances"}
    assert shell.output("rollout history vmpool/web") == expected


def test_undo_of_a_pool_needs_no_permission_to_read_vms(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"virtualmachines", "virtualmachineinstances"}
    assert shell.output("rollout undo vmpool/web") == f"{WEB} rolled back\n"
    assert image(cluster) == "v0"


def test_undo_gives_the_pool_the_template_before(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("rollout undo vmpool/web") == f"{WEB} rolled back\n"
    assert image(cluster) == "v0"
    [(method, _, params, steps)] = cluster.writes
    assert (method, params) == ("PATCH", {"fieldManager": "kubectl-vmherd"})
    assert [step["path"] for step in steps] == ["/metadata/uid", "/spec/virtualMachineTemplate"]


def test_undo_twice_returns_to_the_first_template(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    shell.output("rollout undo vmpool/web")
    shell.output("rollout undo vmpool/web")
    assert image(cluster) == "v1"


def test_undo_to_the_present_revision_changes_nothing(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    line = f"{WEB} skipped rollback (current template already matches revision 2)\n"
    assert shell.output("rollout undo vmpool/web --to-revision=2") == line
    assert cluster.writes == []


def test_undo_also_returns_the_rules_for_names(cluster: Cluster, shell: Shell):
    spec = pool_builders.vm_spec(volumes=[{"name": "key", "secret": {"secretName": "key"}}])
    old = pool_builders.pool(generation=1, spec=spec, nameGeneration={"appendIndexToSecretRefs": True})
    pool = pool_builders.pool(generation=2, spec=spec)
    cluster.put_pool(
        pool, [], [], [pool_builders.revision(old, "web-1", number=1), pool_builders.revision(pool, number=2)]
    )
    shell.output("rollout undo vmpool/web")
    assert cluster.document(POOL, "web")["spec"]["nameGeneration"] == {"appendIndexToSecretRefs": True}
    shell.output("rollout undo vmpool/web")
    assert "nameGeneration" not in cluster.document(POOL, "web")["spec"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rollout undo vmpool/web --to-revision=7", "unable to find specified revision 7 in history (revisions: 1, 2)"),
    ],
)
def test_an_impossible_undo_is_one_line(cluster: Cluster, shell: Shell, line: str, message: str):
    herds.pool_at_rest(cluster)
    assert shell.error(line) == f"error: {message}"


def test_a_pool_without_earlier_revision_cannot_be_undone(cluster: Cluster, shell: Shell):
    pool = pool_builders.pool()
    cluster.put_pool(pool, [], [], [pool_builders.revision(pool)])
    assert shell.error("rollout undo vmpool/web") == 'error: no rollout history found for pool "web"'


def test_a_paused_pool_is_not_rolled_back(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, paused=True)
    assert shell.error("rollout undo vmpool/web") == (
        "error: you cannot roll back a paused pool; resume it first with "
        "'kubectl vmherd rollout resume vmpool/web' and try again"
    )


def test_undo_warns_if_a_program_keeps_the_object_as_in_git(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.server.change(POOL, KEY, {"metadata": {"labels": {"argocd.argoproj.io/instance": "shop"}}})
    code, out, err = shell("rollout undo vmpool/web")
    assert (code, out) == (0, f"{WEB} rolled back\n")
    assert err == 'Warning: vmpool "web" belongs to Argo CD, which may undo this rollback: change the source, too\n'


@pytest.mark.parametrize(
    ("flag", "suffix", "params"),
    [
        ("client", " (dry run)", None),
        ("server", " (server dry run)", {"fieldManager": "kubectl-vmherd", "dryRun": "All"}),
    ],
)
def test_a_dry_run_changes_nothing(cluster: Cluster, shell: Shell, flag: str, suffix: str, params: object):
    herds.pool_at_rest(cluster)
    assert shell.output(f"rollout undo vmpool/web --dry-run={flag}") == f"{WEB} rolled back{suffix}\n"
    assert image(cluster) == "v1"
    assert [write[2] for write in cluster.writes] == ([params] if params else [])


def test_a_dry_run_on_the_client_prints_the_changed_object(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    document = json.loads(shell.output("rollout pause vmpool/web --dry-run=client -o json"))
    assert (document["kind"], document["spec"]["paused"]) == ("VirtualMachinePool", True)
    document = yaml.safe_load(shell.output("rollout undo vmpool/web --dry-run=client -o yaml"))
    volumes = document["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["containerDisk"] == {"image": "v0"}
    assert cluster.writes == []


def test_restart_annotates_the_vmi_template(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    herds.replica_set(cluster, updated=1)
    assert shell.output("rollout restart vmpool/web") == f"{WEB} restarted\n"
    assert shell.output("rollout restart vmirs/testreplicaset") == f"{HERD} restarted\n"
    pool = cluster.document(POOL, "web")["spec"]["virtualMachineTemplate"]["spec"]["template"]
    herd = cluster.document(SET, "testreplicaset")["spec"]["template"]
    for template in (pool, herd):
        assert template["metadata"]["annotations"] == {RESTARTED_AT: "2026-08-01T12:00:00Z"}
        assert template["metadata"]["labels"]


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


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"paused": True}, "can't restart paused pool 'web' (run rollout resume first)"),
        (
            {"updateStrategy": {"opportunistic": {}}},
            "can't restart pool 'web': it restarts no VM, because spec.updateStrategy is opportunistic; "
            "restart its VMs with virtctl restart",
        ),
    ],
)
def test_a_pool_that_would_restart_nothing_is_refused(
    cluster: Cluster, shell: Shell, fields: dict[str, object], reason: str
):
    herds.pool_at_rest(cluster, **fields)
    assert shell.error("rollout restart vmpool/web") == f"error: {reason}"
    assert cluster.writes == []


def test_a_set_without_a_rolling_update_is_not_restarted(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1, rolls=False)
    assert shell.error("rollout restart vmirs/testreplicaset") == (
        "error: can't restart replica set 'testreplicaset': it replaces no VMI without the annotation "
        'vmherd.dev/rolling-update; set it with kubectl annotate, for example to "maxUnavailable=25%"'
    )


def test_two_restarts_in_the_same_second_are_refused(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    shell.output("rollout restart vmpool/web")
    assert "within the past second" in shell.error("rollout restart vmpool/web")


def test_pause_says_what_else_it_stops_and_resume_ends_it(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    code, out, err = shell("rollout pause vmpool/web")
    assert (code, out) == (0, f"{WEB} paused\n")
    assert err == "Note: while it is paused, the pool is also not scaled and not healed.\n"
    plural = 'virtualmachinepools.pool.kubevirt.io "web"'
    assert shell.error("rollout pause vmpool/web") == f"error: {plural} is already paused"
    assert shell.output("rollout resume vmpool/web") == f"{WEB} resumed\n"
    assert "paused" not in cluster.document(POOL, "web")["spec"]
    assert shell.error("rollout resume vmpool/web") == f"error: {plural} is not paused"


def test_name_output_is_the_name_alone(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1)
    assert shell.output("rollout pause vmirs/testreplicaset -o name") == f"{HERD}\n"
    assert REPLICA_SETS.singular in HERD


def test_the_field_manager_can_be_set(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    shell("rollout pause vmpool/web --field-manager=ops")
    assert cluster.writes[0][2] == {"fieldManager": "ops"}
