"""`kubectl vmherd protect, unprotect, remove, detach, adopt`: the changes of single VMs and VMIs."""

import json
from typing import Any

import pytest

from controller.kubevirt.annotations import CLAIMED_BY, CLAIMED_UNTIL, DRAINING, IN_SERVICE, REVISION_NAME
from controller.kubevirt.resources import VMIS, VMS
from controller.replicaset.claims import choose_claims
from controller.replicaset.intent import Intent, parse_intent
from informers.meta import ObjectKey
from plugin.commands import marks
from tests import builders, pool_builders
from tests.plugin import states
from tests.plugin.cluster import POOL, SET, Cluster, Shell
from tests.sandbox.replay import RECORDINGS

VM = "virtualmachine.kubevirt.io/web-0"
VMI = "virtualmachineinstance.kubevirt.io/test0"


@pytest.fixture
def pauses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """The pauses of the command, which take no time: their seconds, and the number of earlier writes."""
    made: list[tuple[float, int]] = []

    async def pause(seconds: float) -> None:
        made.append((seconds, len(cluster.writes)))

    monkeypatch.setattr(marks, "sleep", pause)
    return made


def test_remove_marks_before_the_scale_in_and_warns_if_a_vm_stays(
    cluster: Cluster, shell: Shell, pauses: list[tuple[float, int]]
):
    """No controller runs here, so no VM leaves."""
    states.pool_at_rest(cluster, 3)
    _, _, warning = shell("remove web-0 web-1 --scale-in")
    assert pauses == [(marks.LOOK_S, 3)] * (marks.LEAVING_LOOKS - 1)
    assert f"not leaving yet: {VM}, virtualmachine.kubevirt.io/web-1. kubectl vmherd why" in warning
    assert len(cluster.writes) == 3
    assert cluster.document(POOL, "web")["spec"]["replicas"] == 1


def test_remove_ends_when_the_marked_vms_leave(
    cluster: Cluster, shell: Shell, pauses: list[tuple[float, int]], monkeypatch: pytest.MonkeyPatch
):
    states.pool_at_rest(cluster, 3)

    async def leave(seconds: float) -> None:
        pauses.append((seconds, len(cluster.writes)))
        if len(pauses) == 3:
            cluster.server.remove(VMS, ObjectKey("default", "web-0"))

    monkeypatch.setattr(marks, "sleep", leave)
    _, _, notes = shell("remove web-0 --scale-in")
    assert notes == ""
    assert len(pauses) == 3


def test_a_detached_vmi_does_not_match_the_selector_of_its_set_any_more(cluster: Cluster, shell: Shell):
    states.replica_set(cluster, updated=2)
    code, out, _ = shell("detach test0")
    assert (code, out) == (0, f"{VMI} detached\n")
    owner = cluster.server.find(SET, ObjectKey("default", "testreplicaset"))
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    vmis = [cluster.server.find(VMIS, ObjectKey("default", name)) for name in ("test0", "test1")]
    claims = choose_claims(builders.snapshot(owner, vmis), intent)
    assert [vmi.metadata.name for vmi in claims.kept] == ["test1"]
    assert claims.adopted == ()


@pytest.mark.parametrize("kind", ["pool", "set"])
def test_a_detached_member_keeps_no_mark_of_a_drain(cluster: Cluster, shell: Shell, kind: str):
    """The VM of a pool with the label keeps its mark for the controller, who takes it off the VMI first."""
    resource, name = (VMS, "web-0") if kind == "pool" else (VMIS, "test0")
    states.pool_at_rest(cluster)
    states.replica_set(cluster, updated=2)
    mark = {"annotations": {DRAINING: "update until 2026-08-01T12:01:00Z of uid", "a": "b"}}
    key, out = ObjectKey("default", name), {"labels": {IN_SERVICE: "false"}}
    cluster.server.change(resource, key, {"metadata": {**mark, **(out if kind == "set" else {})}})
    if kind == "pool":
        cluster.server.change(resource, ObjectKey("default", "web-1"), {"metadata": mark})
        cluster.server.change(resource, ObjectKey("default", "web-1"), {"spec": {"template": {"metadata": out}}})
        shell("detach web-1")
        assert DRAINING in cluster.document(resource, "web-1")["metadata"]["annotations"]
    assert shell(f"detach {name}")[0] == 0
    meta = cluster.document(resource, name)["metadata"]
    assert DRAINING not in meta["annotations"]
    assert "ownerReferences" not in meta
    assert meta["labels"].get(IN_SERVICE) == ("true" if kind == "set" else None)


def test_restored_vms_join_their_pool_and_nothing_is_created_beside_them_or_restarted(cluster: Cluster, shell: Shell):
    """A backup brings VMs back without an owner, with the label of an earlier pool, and before the pool that has no
    revision yet.
    """
    pool = pool_builders.pool(replicas=3)
    vms = [pool_builders.vm(f"web-{each}", revision="web-1", finalizers=(), age_s=9000) for each in range(3)]
    cluster.put_pool(pool, vms, has_revision=False)
    for vm, image in zip(vms, ("v1", "v1", "other"), strict=True):
        cluster.server.change(VMS, vm.metadata.key, {"spec": pool_builders.vm_spec(image=image)})
    assert "web-0 and 2 more have names of this pool and no owner" in shell("why vmpool/web")[1]
    assert "create virtualmachines" not in shell("plan vmpool/web")[1]
    code, out, notes = shell("adopt vm/web-0 vm/web-1 vm/web-2 --to vmpool/web")
    assert (code, out.count("adopted by vmpool/web"), notes.count("differs from the template")) == (0, 3, 1)
    assert "web-0" not in shell("why vmpool/web")[1]
    plans = shell("plan vmpool/web")[1]
    assert "delete" not in plans
    assert "create virtualmachines" not in plans
    assert "web-2" in plans, "the template changes the one that differs"
    assert "web-0" not in plans.replace("default/web-0: its disks must be kept", "")
    labels = [cluster.document(VMIS, f"web-{each}")["metadata"]["labels"][REVISION_NAME] for each in range(3)]
    assert labels[0] == labels[1] != labels[2]
    assert labels[2] == "web-1", "this name is none of the new pool, so web-2 restarts in its turn"


@pytest.mark.parametrize(("seed", "differs"), [("#cloud-config", False), ("#cloud-config new", True)])
def test_a_vm_whose_disk_was_restored_under_another_name_joins_its_pool(
    cluster: Cluster, shell: Shell, seed: str, differs: bool
):
    """After a VirtualMachineRestore of a VM whose pool is gone, recorded beside the real virt-controller."""
    recording = json.loads((RECORDINGS / "pool-vm-restored.json").read_text())
    spec = recording["pool"]["virtualMachineTemplate"]["spec"]
    spec["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = seed
    pool = pool_builders.pool("res", replicas=1, spec=spec)
    vm = pool_builders.vm("res-0", finalizers=(), age_s=9000)
    cluster.put_pool(pool, [vm], has_revision=False)
    cluster.server.change(VMS, vm.metadata.key, {"spec": recording["after"]["spec"] | {"runStrategy": "Always"}})
    code, out, notes = shell("adopt vm/res-0 --to vmpool/res")
    assert (code, out.count("adopted by vmpool/res"), notes.count("differs from the template")) == (0, 1, differs)
    assert (shell("plan vmpool/res")[1].count("from revision (not known)") > 0) is differs


@pytest.mark.parametrize(("until", "stays"), [("2020-01-01T00:00:00Z", None), ("2099-01-01T00:00:00Z", True)])
def test_an_adopted_vm_stays_claimed_and_a_claim_that_has_ended_gets_no_end(
    cluster: Cluster, shell: Shell, until: str, stays: bool | None
):
    states.pool_at_rest(cluster, 1)
    vm = cluster.document(VMS, "web-0")
    del vm["metadata"]["ownerReferences"]
    vm["metadata"]["annotations"] = {CLAIMED_BY: "job", CLAIMED_UNTIL: until}
    cluster.put(VMS, vm)
    code, _, told = shell("adopt vm/web-0 --to vmpool/web")
    assert (code, "vm/web-0 stays claimed by job: release it" in told) == (0, True)
    marks = cluster.document(VMS, "web-0")["metadata"]["annotations"]
    assert marks == {CLAIMED_BY: "job", **({CLAIMED_UNTIL: until} if stays else {})}


def test_a_claim_without_its_end_is_given_back(cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch):
    states.pool_at_rest(cluster, 1)
    send = cluster.server.request

    async def policy(method: str, path: str, **more: Any) -> bytes:
        answer = await send(method, path, **more)
        if method != "PATCH":
            return answer
        cluster.server.change(VMS, ObjectKey("default", "web-0"), {"metadata": {"annotations": {CLAIMED_UNTIL: None}}})
        return json.dumps(cluster.document(VMS, "web-0")).encode()

    monkeypatch.setattr(cluster.server, "request", policy)
    told = f"error: a policy takes {CLAIMED_UNTIL} of web-0 back, so it cannot be claimed"
    assert shell.error("claim vmpool/web --for a --until 5s") == told
    assert not cluster.document(VMS, "web-0")["metadata"].get("annotations")
    assert "claimed by a" in shell.output("claim vmpool/web --for a"), "without an end, nothing is taken back"
