"""P20, P21: a VM is deleted only if it can come back, and a disk that only grows is expanded."""

import asyncio
import json
from copy import deepcopy

import pytest

from controller.kubevirt.annotations import ADOPT_DISKS, MOST_DISRUPTIVE, PROTECT, RECREATED
from controller.kubevirt.resources import PVCS, VMIS, VMS
from controller.pool.plan import plan
from controller.pool.spec.template import DiskChange, disk_change, larger_disks
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, ExpandClaim, Patch, ThreeWayMerge
from tests.fakes.requests import Request, refusal
from tests.fakes.virtual_time import run
from tests.pool_builders import Json, intent_of, pool, snapshot, vm_spec, vmi, vms
from tests.pool_scenes import FAILING, OFFLINE, during_update, heal, healed, healing_pool
from tests.pool_simulation import PoolSimulation

OLD = vm_spec(disks=["data"])
NEW = vm_spec(disks=["data"], storage_class="slow")
BEFORE = pool(spec=OLD)
CRASHED: Json = {
    "status": {
        "printableStatus": "CrashLoopBackOff",
        "startFailure": {"consecutiveFailCount": 3},
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-08-01T12:00:00Z"}],
    }
}
WEBHOOK_DOWN = refusal(500, "InternalError", "failed calling webhook: connection refused")


def at_rest(**fields: object) -> PoolSimulation:
    simulation = PoolSimulation(pool(**{"replicas": 5, "finalizers": (), "spec": OLD, "maxUnavailable": 1, **fields}))
    simulation.come_to_rest()
    return simulation


def creates_a_vm(request: Request) -> bool:
    return request.verb == "create" and request.resource is VMS


def conditions(simulation: PoolSimulation) -> dict[str, str]:
    return {each["type"]: each.get("message", "") for each in simulation.pool["status"].get("conditions", [])}


@pytest.mark.parametrize("error", [refusal(403, "Forbidden", "denied by policy"), WEBHOOK_DOWN])
def test_p20_new_disks_delete_no_vm_while_creates_are_refused(error):
    simulation = at_rest()
    simulation.server.fault_for = lambda request: error if creates_a_vm(request) else None
    disks = set(simulation.claims)
    simulation.change_template(NEW)
    simulation.run_passes(40)
    assert simulation.running() == [f"web-{ordinal}" for ordinal in range(5)]
    assert set(simulation.claims) == disks
    assert str(error) in conditions(simulation)["ReplicaFailure"]
    assert "UpdateHeld" in {notice.reason for notice in simulation.process.recorder.published}
    simulation.server.fault_for = lambda request: None
    simulation.come_to_rest()
    assert simulation.pool["status"]["updatedReplicas"] == 5
    assert "ReplicaFailure" not in conditions(simulation)


def test_p20_no_vm_is_healed_while_creates_are_refused():
    simulation = at_rest(autohealing={}, maxUnavailable="100%")
    for name in ("web-0", "web-1"):
        simulation.server.change(VMS, simulation.key(name), CRASHED)
        simulation.server.change(VMIS, simulation.key(name), {"status": {"phase": "Scheduling", "conditions": []}})
    simulation.refuses = creates_a_vm
    for _ in range(10):
        simulation.run_pass()
        run(asyncio.sleep(4))
        simulation.collect_garbage()
    assert len(simulation.running()) == 5
    assert "HealingHeld" in {notice.reason for notice in simulation.process.recorder.published}


def test_p20_a_missing_vm_that_the_update_has_deleted_takes_a_turn():
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": "no"}
    fields = {"generation": 2, "maxUnavailable": 1, "spec": vm_spec(image="v2"), "status": {"conditions": [refused]}}
    for noted, restarts in ((None, True), ({RECREATED: '{"2":["gone"]}'}, False)):
        owner = pool(replicas=3, annotations=noted, **fields)
        todo = plan(during_update(owner, vms(owner, 0, 1)))
        assert any(isinstance(each, ThreeWayMerge) for each in todo.actions) is restarts


def test_p20_a_recreated_vm_is_noted_before_it_is_deleted():
    owner = pool(replicas=2, generation=2, maxUnavailable=1, spec=NEW)
    note, delete = plan(during_update(owner, vms(owner, 0, 1), before=BEFORE)).actions
    assert isinstance(note, Patch)
    assert isinstance(delete, Delete)
    noted = json.loads(json.loads(note.body)["metadata"]["annotations"][RECREATED])
    assert list(noted) == [delete.key.name.removeprefix("web-")]
    assert "its disks are deleted with it: data-" in delete.why


@pytest.mark.parametrize(
    ("cause", "circumstances"),
    [
        ("it is protected by vmherd.dev/protect", {"annotations": {PROTECT: "True"}}),
        ("snapshot monday is in progress", {"snapshot": "monday"}),
        ("it is paused", {"printable": "Paused"}),
    ],
)
def test_p20_neither_healing_nor_an_update_deletes_such_a_vm(cause, circumstances):
    owner = healing_pool()
    todo = heal(owner, *vms(owner, 0, **{**FAILING, **circumstances}), *vms(owner, *range(1, 10)))
    assert healed(todo) == []
    assert cause in todo.held or circumstances.get("printable")
    owner = pool(replicas=1, generation=2, spec=NEW)
    seen = during_update(owner, vms(owner, 0, **circumstances), before=BEFORE)
    assert plan(seen).actions == ()
    assert cause in plan(seen).held


@pytest.mark.parametrize("state", ["ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff"])
def test_p20_healing_deletes_no_disks_for_a_cause_that_a_new_disk_does_not_cure(state):
    failing: Json = {"ready": False, "printable": state, "ready_for_s": 3600}
    owner = healing_pool(spec=vm_spec(disks=["data"]))
    held = heal(owner, *vms(owner, 0, **failing, spec=vm_spec(disks=["data-0"])), *vms(owner, 1, 2))
    assert healed(held) == []
    assert f"{state} is not cured by new disks" in held.held
    assert "data-0" in held.held
    plain = healing_pool()
    assert healed(heal(plain, *vms(plain, 0, **failing), *vms(plain, 1, 2))) == ["web-0"]


def test_p20_the_limit_of_replicas_never_shrinks_a_pool():
    owner = pool(replicas=10, generation=2, maxUnavailable=1, spec=NEW)
    seen = during_update(owner, vms(owner, *range(9)), before=BEFORE, max_replicas=5)
    todo = plan(seen)
    assert todo.actions == ()
    assert "--max-replicas (5)" in todo.held
    assert "--max-replicas (5)" in (next_status(seen, (), plan(seen).waits).problem or "")
    owner = healing_pool()
    failing = snapshot(owner, [*vms(owner, 0, **FAILING), *vms(owner, *range(1, 9))], max_replicas=5)
    assert [each for each in plan(failing).actions if isinstance(each, Delete)] == []


@pytest.mark.parametrize(
    ("strategy", "action", "is_held"),
    [
        (None, None, False),
        (None, "restart", True),
        (None, "recrate", True),
        (None, "recreate", False),
        (OFFLINE, None, True),
        (OFFLINE, "restart", True),
        (OFFLINE, "recreate", False),
    ],
)
def test_p21_new_disks_need_leave_if_the_pool_keeps_disks(strategy, action, is_held):
    fields: Json = {"replicas": 2, "scaleInStrategy": strategy}
    annotations = {MOST_DISRUPTIVE: action} if action else None
    owner = pool(generation=2, spec=NEW, annotations=annotations, **fields)
    seen = during_update(owner, vms(owner, 0, 1), before=pool(spec=OLD, **fields))
    assert any(isinstance(each, Delete) for each in plan(seen).actions) is not is_held
    status = next_status(seen, (), plan(seen).waits)
    stalled = [each for each in status.conditions or () if each.type == "Stalled"]
    assert bool(stalled) is is_held
    if is_held:
        assert stalled[0].reason == "UpdateHeld"
        assert "its disks would be deleted (data-0)" in (status.problem or "")
        assert f"{MOST_DISRUPTIVE}=recreate" in (status.problem or "")
        assert {notice.reason for notice in plan(seen).notices} - {"InvalidAnnotation"} == {"UpdateHeld"}


@pytest.mark.parametrize(("printable", "deleted"), [("DataVolumeError", ["web-0"]), ("Stopped", [])])
def test_p21_new_disks_reach_a_vm_that_cannot_start_and_no_vm_that_its_user_stopped(printable, deleted):
    owner = pool(replicas=2, generation=2, spec=NEW, maxUnavailable=1)
    spec = vm_spec(disks=["data-0"], run_strategy="Halted" if printable == "Stopped" else "Always")
    [first], [second] = vms(owner, 0, ready=False, printable=printable, spec=spec), vms(owner, 1, revision="web-2")
    seen = during_update(owner, [first, second], before=BEFORE, vmis=[vmi(second)])
    todo = plan(seen)
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == deleted
    assert next_status(seen, ()).updated_replicas == 1


def test_p20_a_vm_that_has_recovered_on_the_server_is_not_healed():
    simulation = at_rest(autohealing={})
    simulation.server.change(VMS, simulation.key("web-0"), CRASHED)
    simulation.server.change(VMIS, simulation.key("web-0"), {"status": {"phase": "Scheduling", "conditions": []}})
    simulation.run_pass()
    run(asyncio.sleep(4))
    todo = plan(simulation.snapshot())
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == ["web-0"]
    recovered = {"printableStatus": "Running", "startFailure": None}
    simulation.server.change(VMS, simulation.key("web-0"), {"status": recovered})
    simulation.carry_out(todo.stages)
    assert "web-0" in simulation.running()


def template(**fields):
    return intent_of(pool(spec=vm_spec(**{"disks": ["a", "b"], **fields}))).template


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"size": "1024Mi"}, DiskChange.NONE),
        ({"size": "1.5Gi"}, DiskChange.LARGER),
        ({"size": "500M"}, DiskChange.NONE),
        ({"size": "2Gi", "storage_class": "slow"}, DiskChange.OTHER),
        ({"disks": ["a"]}, DiskChange.NAMES),
        ({"disks": ["a", "b", "c"], "size": "2Gi"}, DiskChange.NAMES),
        ({"disks": ["a", "c"], "size": "1Mi"}, DiskChange.NAMES),
    ],
)
def test_p21_the_change_of_the_disks_between_two_templates(fields, change):
    assert disk_change(template(), template(**fields)) is change


def test_p21_a_smaller_disk_beside_a_larger_one_is_no_difference():
    spec = deepcopy(vm_spec(disks=["a"], size="2Gi"))
    spec["dataVolumeTemplates"] += vm_spec(disks=["b"])["dataVolumeTemplates"]
    spec["dataVolumeTemplates"][1]["spec"]["storage"]["resources"]["requests"]["storage"] = "1Mi"
    mixed = intent_of(pool(spec=spec)).template
    assert disk_change(template(), mixed) is DiskChange.LARGER
    assert larger_disks(template(), mixed) == {"a": "2Gi"}


@pytest.mark.parametrize(
    ("strategy", "annotation", "usable"),
    [(None, "false", ()), (OFFLINE, "false", ("", "web")), (None, "true", None), (OFFLINE, "true", None)],
)
def test_p21_a_pool_uses_disks_without_an_owner_if_it_keeps_disks_or_its_user_says_so(strategy, annotation, usable):
    fields: Json = {"replicas": 1, "scaleInStrategy": strategy}
    spec = vm_spec(disks=["data", "logs"])
    owner = pool(generation=2, spec=spec, annotations={ADOPT_DISKS: annotation}, **fields)
    halted = vms(owner, 0, ready=False, spec=vm_spec(disks=["data-0"], run_strategy="Halted"))
    before = pool(spec=OLD, **fields)
    [merge], [create] = (plan(during_update(owner, found, before=before)).actions for found in (halted, ()))
    assert isinstance(create, Create)
    assert isinstance(merge, ThreeWayMerge)
    assert {key.name for _, key in create.reusable_disks} == {"data-0", "logs-0"}
    assert {key.name for _, key in merge.reusable_disks} == {"logs-0"}, "the others are its own"
    assert create.usable == merge.usable == usable


def test_p21_the_new_disks_of_a_restored_vm_are_asked_for_although_its_revision_is_not_known():
    """A disk of a user may have the name of a new disk. KubeVirt would make the VM its owner, and it would be deleted
    with the VM.
    """
    owner = pool(generation=2, replicas=1, spec=vm_spec(disks=["data", "logs"]))
    restored = vms(owner, 0, ready=False, revision="lost", spec=vm_spec(disks=["data-0"], run_strategy="Halted"))
    found = plan(during_update(owner, restored, before=pool(spec=OLD, replicas=1))).actions
    [merge] = [each for each in found if isinstance(each, ThreeWayMerge)]
    assert {key.name for _, key in merge.reusable_disks} == {"logs-0"}


@pytest.mark.parametrize("strategy", [None, OFFLINE])
@pytest.mark.parametrize("ready", [True, False])
def test_p21_the_claim_is_expanded_before_the_vm_gets_the_new_template(strategy, ready):
    before = pool(replicas=1, spec=OLD, scaleInStrategy=strategy)
    owner = pool(replicas=1, generation=2, spec=vm_spec(disks=["data"], size="2Gi"), scaleInStrategy=strategy)
    machines = vms(owner, 0, ready=ready, spec=vm_spec(disks=["data-0"]))
    expansion, merge = plan(during_update(owner, machines, before=before)).actions
    assert isinstance(expansion, ExpandClaim)
    assert (expansion.resource, expansion.key.name, expansion.size) == (PVCS, "data-0", "2Gi")
    assert expansion.usable == ("web",), "a claim without an owner must have the label of the pool"
    assert isinstance(merge, ThreeWayMerge)
