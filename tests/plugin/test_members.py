"""`kubectl vmherd protect, unprotect, remove, detach, adopt`: the changes of single VMs and VMIs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.kubevirt.resources import VMIS, VMS
from controller.replicaset.claims import choose_claims
from controller.replicaset.intent import Intent, parse_intent
from plugin.commands import marks
from tests import builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, SET, Cluster, Shell

VM = "virtualmachine.kubevirt.io/web-0"
VMI = "virtualmachineinstance.kubevirt.io/test0"


def annotations(document: Any) -> Any:
    return document["metadata"].get("annotations") or {}


def test_a_vm_of_a_pool_is_protected_and_unprotected(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("protect web-0") == f"{VM} protected\n"
    assert annotations(cluster.document(VMS, "web-0")) == {"vmherd.dev/protect": "true"}
    assert shell.output("protect web-0 --field-manager=ops") == f"{VM} protected\n"
    assert len(cluster.writes) == 1
    assert shell.output("unprotect vm/web-0") == f"{VM} unprotected\n"
    assert annotations(cluster.document(VMS, "web-0")) == {}


def test_a_vmi_of_a_set_is_protected_by_its_name_alone(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1)
    assert shell.output("protect test0") == f"{VMI} protected\n"
    assert annotations(cluster.document(VMIS, "test0")) == {"vmherd.dev/protect": "true"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("protect vmi/web-0", "error: vmi/web-0 belongs to the VM web-0: name vm/web-0 instead"),
        ("protect alone", "error: vmi/alone belongs to no pool and no replica set"),
        ("detach alone", "error: vmi/alone belongs to no pool and no replica set"),
        (
            "remove wbe-0",
            'Error from server (NotFound): virtualmachines.kubevirt.io "wbe-0" not found; did you mean "web-0"?',
        ),
        (
            "adopt web-0 --to vmirs/testreplicaset",
            "error: a set adopts VMIs only: name them as vmi/NAME",
        ),
        (
            "adopt vmi/web-0 --to vmirs/testreplicaset",
            "error: vmi/web-0 belongs to VirtualMachine web-0: run detach first",
        ),
    ],
)
def test_a_member_that_cannot_be_changed_is_refused(cluster: Cluster, shell: Shell, line: str, message: str):
    herds.pool_at_rest(cluster)
    herds.replica_set(cluster, updated=1)
    cluster.put(VMIS, builders.vmi("alone"))
    assert shell.error(line) == message
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("protect", "name a VM, such as vm/web-3"),
        ("protect vmpool/web", "there is no type 'vmpool' here"),
        ("adopt vmi/a --to vmpool/web", "a pool adopts no VM"),
        ("adopt vmi/a --to vmirs", "--to names one set"),
        ("remove web-0 --undo --scale-in", "--scale-in and --undo contradict each other"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(shell: Shell, line: str, message: str):
    assert shell.error(line, code=2).startswith(f"error: {message}")


def test_a_vm_that_is_marked_for_removal_leaves_at_the_next_scale_in(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    code, out, err = shell("remove web-0")
    assert (code, out) == (0, f"{VM} marked for removal\n")
    assert err == "Note: it leaves first when its pool or set is scaled in; --scale-in does this now.\n"
    preview = shell.output("scale vmpool/web --replicas=1 --dry-run=client")
    assert preview == "would leave:  web-0 (vmherd.dev/remove)\n"
    assert shell.output("remove web-0 --undo") == f"{VM} no longer marked for removal\n"
    assert annotations(cluster.document(VMS, "web-0")) == {}


def test_remove_with_scale_in_also_makes_the_pool_smaller(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, 3)
    lines = shell.output("remove web-0 web-1 --scale-in").splitlines()
    assert lines[-1] == "virtualmachinepool.pool.kubevirt.io/web scaled to 1"
    assert cluster.writes[-1][3]["spec"] == {"replicas": 1}
    assert cluster.document(POOL, "web")["spec"]["replicas"] == 1


def test_remove_waits_between_the_marks_and_the_scale_in(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    """The controller must see the marks before the smaller number."""
    herds.pool_at_rest(cluster, 3)
    pauses: list[tuple[float, int]] = []

    async def pause(seconds: float) -> None:
        pauses.append((seconds, len(cluster.writes)))

    monkeypatch.setattr(marks, "sleep", pause)
    shell.output("remove web-0 web-1 --scale-in")
    assert pauses == [(marks.MARKS_SEEN_S, 2)], "one pause, after both marks"
    assert len(cluster.writes) == 3


def test_a_dry_run_of_remove_writes_nothing(cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch):
    herds.pool_at_rest(cluster)
    monkeypatch.setattr(marks, "sleep", None)
    lines = shell.output("remove web-0 --scale-in --dry-run=client").splitlines()
    assert lines == [
        f"{VM} marked for removal (dry run)",
        "virtualmachinepool.pool.kubevirt.io/web scaled to 1 (dry run)",
    ]
    assert cluster.writes == []


def test_a_protected_vm_is_not_marked_for_removal(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    shell.output("protect web-0")
    assert "run unprotect first" in shell.error("remove web-0")


def test_a_detached_vm_loses_only_the_owner_reference_of_its_pool(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    labels = cluster.document(VMS, "web-0")["metadata"]["labels"]
    code, out, err = shell("detach web-0")
    assert (code, out) == (0, f"{VM} detached\n")
    assert err == "Note: the pool web creates another VM in its place, unless it is scaled in.\n"
    meta = cluster.document(VMS, "web-0")["metadata"]
    assert "ownerReferences" not in meta
    assert meta["labels"] == labels


def test_a_detached_vmi_does_not_match_the_selector_of_its_set_any_more(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=2)
    code, out, _ = shell("detach test0")
    assert (code, out) == (0, f"{VMI} detached\n")
    owner = SET.decode(shell_json(cluster, SET, "testreplicaset"))
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    vmis = [VMIS.decode(shell_json(cluster, VMIS, name)) for name in ("test0", "test1")]
    claims = choose_claims(builders.snapshot(owner, vmis), intent)
    assert [vmi.metadata.name for vmi in claims.kept] == ["test1"]
    assert claims.adopted == ()


def test_an_adopted_vmi_gets_the_labels_of_the_selector(cluster: Cluster, shell: Shell):
    herds.replica_set(cluster, updated=1)
    cluster.put(VMIS, builders.vmi("alone", labels={"own": "label"}))
    code, out, err = shell("adopt vmi/alone --to vmirs/testreplicaset")
    assert (code, out) == (0, "virtualmachineinstance.kubevirt.io/alone adopted by vmirs/testreplicaset\n")
    assert cluster.document(VMIS, "alone")["metadata"]["labels"] == {"own": "label", **builders.LABELS}
    assert err == ""


def shell_json(cluster: Cluster, resource: Any, name: str) -> bytes:
    return msgspec.json.encode(cluster.document(resource, name))
