"""`kubectl vmherd list, tree, why, plan`: golden outputs, piped, on a terminal, and with few permissions."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMS
from informers.meta import ObjectKey
from plugin.cli import main
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, Cluster, Shell
from tests.plugin.states import lease

WEB = ObjectKey("default", "web")


def test_revisions_of_other_owners_are_left_out(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    foreign = pool_builders.revision(pool_builders.pool("other", uid="another"), "other", owned=False)
    cluster.put(CONTROLLER_REVISIONS, foreign)
    assert len(shell.output("tree vmpool/web").splitlines()) == 4


def test_the_list_has_one_line_for_each_object(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    herds.replica_set(cluster, updated=2)
    assert shell.output("list").splitlines() == [
        "NAME                   STATUS     READY   UPDATED   AGE",
        "vmirs/testreplicaset   Running    2/2     2         120m",
        "vmpool/web             Updating   3/4     2         120m",
    ]
    assert shell.output("list vmpool -o wide").splitlines() == [
        "NAME         STATUS     READY   UPDATED   AGE    REVISION",
        "vmpool/web   Updating   3/4     2         120m   2->3",
    ]


def test_the_list_of_all_namespaces_names_them(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("list -A").splitlines()[1].startswith("default     vmpool/web   Running")


def test_the_list_uses_the_counters_of_the_status_without_reading_vms(cluster: Cluster, shell: Shell):
    counters = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1}
    revisions = {"currentRevision": "web-4", "updateRevision": "web-7"}
    cluster.put(POOL, pool_builders.pool(status={**counters, **revisions, "printableStatus": "Updating"}))
    cluster.forbidden = {"virtualmachines", "virtualmachineinstances", "controllerrevisions"}
    line = "vmpool/web   Updating   2/3     1         120m"
    assert shell.output("list vmpool").splitlines()[1] == line
    assert shell.output("list vmpool -o wide").splitlines()[1] == f"{line}   4->7"


def test_without_objects_a_note_says_so(shell: Shell):
    assert shell("list") == (0, "", "No resources found in default namespace.\n")
    assert shell("list -A") == (0, "", "No resources found.\n")


def test_the_list_as_data(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    [row] = json.loads(shell.output("list -o json"))
    assert (row["desired"], row["ready"], row["updated"], row["revision"]) == (4, 3, 2, "2->3")
    assert yaml.safe_load(shell.output("list -o yaml")) == [row]
    assert shell.output("list -o name") == "virtualmachinepool.pool.kubevirt.io/web\n"


def test_the_list_shows_the_types_that_the_user_may_read(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"virtualmachineinstancereplicasets"}
    code, out, err = shell("list")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["NAME", "vmpool/web"])
    assert err == (
        "Warning: not everything is shown: virtualmachineinstancereplicasets is forbidden: "
        'User "jane" cannot list them\n'
    )
    cluster.forbidden |= {"virtualmachinepools"}
    assert shell.error("list").startswith("Error from server (Forbidden): virtualmachineinstancereplicasets is forb")


def test_a_name_cannot_be_listed_in_all_namespaces(shell: Shell):
    assert shell.error("list vmpool/web -A", code=2).startswith("error: a name cannot be found in all namespaces")


TREE = [
    "NAME          REV    STATUS             READY   NODE     AGE    WHY",
    "vmpool/web    2->3   Updating 2/4       3/4              120m",
    "|- vm/web-0   3      Running            True    node-1   60m",
    "|- vm/web-1   3      ImagePullBackOff   False   node-1   60m    Back-off pulling image",
    "|- vm/web-2   2      Running            True    node-1   60m    waits for web-1",
    "`- vm/web-3   2      Running            True    node-1   60m    waits for web-1",
]


def test_the_tree_says_what_each_vm_waits_for(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    assert shell.output("tree vmpool/web").splitlines() == TREE


def test_a_terminal_without_colours_gets_the_same_tree_cut_at_its_edge(
    cluster: Cluster, shell: Shell, terminal: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    herds.pool_in_update(cluster)
    lines = shell.output("tree vmpool/web").splitlines()
    assert lines == [line if len(line) <= 80 else f"{line[:77]}..." for line in TREE]
    assert "\x1b" not in "".join(lines)


def test_the_tree_of_a_set_shows_old_and_new_templates(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, outdated=1, updated=1)
    lines = shell.output("tree vmirs/testreplicaset").splitlines()
    assert lines[1].split()[:4] == ["vmirs/testreplicaset", lines[1].split()[1], "Updating", "1/2"]
    assert lines[2].split()[:3] == ["|-", "vmi/test0", "oldoldoldo"]


def test_the_tree_without_permission_shows_the_object_and_says_what_is_missing(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"virtualmachines"}
    code, out, err = shell("tree vmpool/web")
    assert (code, out.count("\n")) == (0, 2)
    assert err.startswith("Warning: not everything is shown: virtualmachines is forbidden")


def test_why_names_what_waits_its_cause_the_leader_and_what_to_try(cluster: Cluster, shell: Shell):
    herds.pool_in_update(cluster)
    lease(cluster)
    assert shell.output("why vmpool/web").splitlines() == [
        "vmpool/web wants 4, has 4, 3 ready, 2 on revision 3.",
        "  held     update: 2 virtual machines wait until more are ready: 1 of 1 allowed are unavailable, by web-1",
        "  cause    web-1: ImagePullBackOff since 60s (Back-off pulling image)",
        "  next     RolloutStalled in 9m",
        "  leader   vmherd-7c9f (lease vmherd-system/vmherd, renewed 2s ago)",
        "  try      kubectl vmherd rollout undo vmpool/web",
    ]


def test_why_and_tree_name_what_blocks_a_scale_out(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    lease(cluster)
    full = 'virtualmachines.kubevirt.io "web-2" is forbidden: exceeded quota: few'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": full}
    cluster.server.change(POOL, WEB, {"spec": {"replicas": 3}, "status": {"conditions": [failure]}})
    assert shell.output("why vmpool/web").splitlines()[:3] == [
        "vmpool/web wants 3, has 2, 2 ready, 2 on revision 2.",
        f"  cause    ReplicaFailure: {full}",
        "  next     create virtualmachines default/web-2: 2 of 3 VMs exist",
    ]
    assert shell.output("tree vmpool/web").splitlines()[1].endswith(f"ReplicaFailure: {full}")


def test_why_says_that_a_broken_vm_will_be_healed(cluster: Cluster, shell: Shell):
    pool = pool_builders.pool(replicas=4, autohealing={"startUpFailureThreshold": 2})
    failing = {"ready": False, "printable": "CrashLoopBackOff", "failures": 3, "ready_for_s": 900}
    vms = [*pool_builders.vms(pool, 0, 2, 3), pool_builders.vm("web-1", owner=pool, **failing)]
    vmis = [pool_builders.vmi(vm) for vm in vms[:3]]
    cluster.put_pool(pool, vms, vmis, [pool_builders.revision(pool)])
    lines = shell.output("why vmpool/web").splitlines()
    assert lines[2].startswith("  held     stalled for 15m: web-1 CrashLoopBackOff")
    healing = "healing: 1 virtual machines are replaced in a few seconds: 1 of 4 allowed are unavailable, by web-1"
    assert lines[3] == f"  held     {healing}"


def test_texts_in_objects_do_not_control_the_terminal(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    hostile = {"type": "ReplicaFailure", "status": "True", "message": "full\x1b[2J\nvmpool/web is fine"}
    cluster.server.change(POOL, WEB, {"status": {"conditions": [hostile], "printableStatus": "\x1b]0;x\x07"}})
    cluster.server.change(VMS, ObjectKey("default", "web-0"), {"status": {"printableStatus": "Running\x1b[31m"}})
    for verb in ("list", "tree vmpool/web", "why vmpool/web"):
        out = shell.output(verb)
        assert "\x1b" not in out
        assert "\nvmpool/web is fine" not in out


def test_without_a_cluster_the_error_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--server=http://127.0.0.1:1"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert "127.0.0.1:1" in err


def test_why_says_first_that_no_controller_works(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("why vmpool/web").splitlines()[1] == "  leader   no controller has a lease"
    lease(cluster, renewed_s=600)
    assert shell.output("why vmpool/web").splitlines()[1] == (
        "  leader   no controller renews the lease: the last one was vmherd-7c9f "
        "(lease vmherd-system/vmherd, renewed 10m ago)"
    )


def test_why_says_first_that_kubevirts_own_controller_works_on_the_pool(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    lease(cluster)
    cluster.install_kubevirt()
    assert shell.output("why vmpool/web").splitlines()[1:] == [
        "  leader   not vmherd: KubeVirt reconciles virtualmachinepools.pool.kubevirt.io "
        "(Deployment kubevirt/virt-controller has no --pool-controller-threads=0)"
    ]


def test_why_names_the_leader_if_kubevirts_loops_are_stopped(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    lease(cluster)
    cluster.install_kubevirt("--pool-controller-threads=0", "--rs-controller-threads=0")
    assert "  leader   vmherd-7c9f (lease" in shell.output("why vmpool/web")


def test_why_says_if_it_cannot_check_kubevirts_controller(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    lease(cluster)
    cluster.install_kubevirt()
    cluster.forbidden = {"kubevirts"}
    code, out, err = shell("why vmpool/web")
    assert (code, "  leader   vmherd-7c9f" in out) == (0, True)
    assert err.startswith("Warning: not everything is shown: whether KubeVirt's own controller works on vmpool")


def test_why_works_without_permission_to_read_leases(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"leases"}
    code, out, err = shell("why vmpool/web")
    assert (code, out) == (0, "vmpool/web wants 2, has 2, 2 ready, 2 on revision 2.\n")
    assert err.startswith("Warning: not everything is shown: leases is forbidden")


def test_why_of_a_paused_pool_says_how_to_resume_it(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, paused=True)
    lines = shell.output("why vmpool/web").splitlines()
    assert "  held     paused" in lines
    assert lines[-1] == "  try      kubectl vmherd rollout resume vmpool/web"


def test_the_plan_is_that_of_the_controller(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.server.change(POOL, WEB, {"spec": {"replicas": 3}})
    path = "virtualmachinepool.pool.kubevirt.io/web"
    assert shell.output("plan vmpool/web") == f"{path}: create virtualmachines default/web-2: 2 of 3 VMs exist\n"
    plan = json.loads(shell.output("plan vmpool/web -o json"))
    assert plan == {
        "name": path,
        "namespace": "default",
        "actions": ["create virtualmachines default/web-2: 2 of 3 VMs exist"],
        "held": "",
        "disks": [],
    }


def test_the_plan_of_an_object_at_rest_is_nothing(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1)
    assert shell.output("plan vmirs/testreplicaset").endswith("/testreplicaset: nothing\n")


def test_without_permission_there_is_no_plan(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    cluster.forbidden = {"virtualmachines"}
    assert shell.error("plan vmpool/web").startswith("error: there is no plan: virtualmachines is forbidden")


@pytest.mark.parametrize("verb", ["tree", "why", "plan"])
def test_data_output_can_be_decoded(cluster: Cluster, shell: Shell, verb: str):
    herds.pool_in_update(cluster)
    assert msgspec.json.decode(shell.output(f"{verb} vmpool/web -o json"))["name"].endswith("/web")
