"""Labels and marks of VMs that a policy or another controller has changed or removed (P4, P26, P32)."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import DATA_VOLUMES, VMIS, VMS
from controller.pool.members.rosters import Downtimes, PoolReader
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.replicas.revisions import kept_revision
from controller.replicaset.plan import plan as plan_set
from controller.runtime.actions import Create, Delete, Done, Patch, Rejected, RemoveOwnerReference
from controller.runtime.execute.patches import outcome_of_patch
from controller.runtime.execute.written import Noted
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests import builders
from tests.builders import NOW
from tests.pool_builders import LABELS, pool, revision, snapshot, stores, vm, vm_spec, vmi, vms
from tests.pool_scenes import during_update, restarted, updated_pool


@pytest.mark.parametrize("generation", ["3", "2", None])
def test_p13_vmis_whose_template_loses_the_label_are_restarted_once_and_in_turn(generation):
    owner = updated_pool(replicas=2, maxUnavailable=1)
    machines = vms(owner, 0, 1, revision="web-2", spec=vm_spec(image="v2"))
    machines = [replace(each, metadata=replace(each.metadata, generation=3)) for each in machines]
    noted = {names.VM_GENERATION: generation} if generation else None
    seen = during_update(owner, machines, vmis=[vmi(each, revision=None, annotations=noted) for each in machines])
    restarts = {"3": [], "2": ["web-0"], None: []}[generation]
    assert restarted(plan(seen)) == restarts, "without the note of KubeVirt, a restart would show nothing"


@pytest.mark.parametrize(
    ("wanted", "marks", "returns"),
    [("true", {}, True), ("false", {}, False), ("true", {names.STANDBY_STATE: "preparing"}, True)],
)
def test_p26_a_vmi_that_is_out_of_service_without_a_mark_returns(wanted, marks, returns):
    owner = pool(replicas=1, spec=vm_spec(labels={**LABELS, names.IN_SERVICE: "true"}))
    spec = vm_spec(labels={**LABELS, names.IN_SERVICE: wanted})
    machine = vm("web-0", owner=owner, spec=spec, annotations=marks)
    running = vmi(machine, labels={**LABELS, names.IN_SERVICE: "false", names.REVISION_NAME: "web-1"})
    patches = [each for each in plan(snapshot(owner, [machine], vmis=[running])).actions if isinstance(each, Patch)]
    labels = [json.loads(each.body)["metadata"].get("labels") for each in patches if each.resource is VMIS]
    assert ({names.IN_SERVICE: "true"} in labels) is returns


def test_p26_a_vmi_of_a_set_that_is_out_of_service_without_a_mark_returns():
    owner = builders.replicaset(replicas=1, template_labels={**builders.LABELS, names.IN_SERVICE: "true"})
    labels = {**builders.LABELS, names.IN_SERVICE: "false"}
    found = builders.snapshot(owner, [builders.vmi("a", owner=owner, labels=labels)])
    bodies = [json.loads(each.body) for each in plan_set(found).actions if isinstance(each, Patch)]
    assert {names.IN_SERVICE: "true"} in [each["metadata"].get("labels") for each in bodies]


@pytest.mark.parametrize(("uid", "is_standby"), [("uid-web-1", True), ("of an earlier VM", False)])
def test_p32_a_standby_whose_mark_was_removed_is_still_one(uid, is_standby):
    owner = pool(replicas=1)
    machine = vm("web-1", owner=owner)
    caches = stores(owner, [machine], vmis=[], revisions=[])
    marks = {machine.metadata.key: Noted("resting web-1", 0.0, uid)}
    [found] = PoolReader(caches.vms, caches.vmis, owner.metadata, Downtimes(), NOW, marks=marks).load()
    assert (found.metadata.annotations or {}).get(names.STANDBY_STATE) == ("resting web-1" if is_standby else None)


def of_standbys(mark: str | None, *, served: str, strategy: str = "Halted", paused: bool = False, asked: bool = True):
    """What the roster and the plan say of web-1, which has this mark, beside web-0 that serves."""
    notes = {names.STANDBY: "1", names.STANDBY_MODE: "paused" if paused else "stopped"}
    owner = pool(replicas=1, annotations=notes if asked else {}, spec=vm_spec(labels=SERVED))
    wanted = vm("web-0", owner=owner, spec=vm_spec(labels=SERVED))
    spec = vm_spec(labels={**LABELS, names.IN_SERVICE: served}, run_strategy=strategy)
    notes = {names.STANDBY_STATE: mark} if mark is not None else None
    other = vm("web-1", owner=owner, spec=spec, annotations=notes, ready=strategy != "Halted" and not paused)
    is_paused = [Condition(type="Paused", status="True")] if paused else []
    vmis = [vmi(wanted), *([vmi(other, ready=not paused, conditions=is_paused)] if strategy != "Halted" else [])]
    return snapshot(owner, [wanted, other], vmis=vmis)


SERVED = {**LABELS, names.IN_SERVICE: "true"}
LOST = {
    "it rests": ({"served": "false"}, True),
    "it rests paused": ({"served": "false", "strategy": "Always", "paused": True}, True),
    "it runs": ({"served": "false", "strategy": "Always"}, False),
    "its user has stopped it": ({"served": "true"}, False),
    "the pool asks for none": ({"served": "false", "asked": False}, False),
}


@pytest.mark.parametrize(("state", "is_one"), LOST.values(), ids=LOST)
def test_p32_a_new_controller_knows_a_standby_at_rest_without_its_mark(state, is_one):
    found = of_standbys(None, **state)
    assert found.marked["standby"] == is_one
    patches = [each.body.decode() for each in plan(found).actions if isinstance(each, Patch)]
    assert any('"resting web-1"' in each or '"paused uid-web-1 web-1"' in each for each in patches) == is_one
    assert all(not isinstance(each, Delete) or each.key.name != "web-0" for each in plan(found).actions)


def test_p32_a_vm_in_service_with_an_old_mark_of_its_own_goes_on():
    found = of_standbys("preparing", served="true", strategy="Always")
    assert found.marked["standby"] == 0
    patches = [json.loads(each.body) for each in plan(found).actions if isinstance(each, Patch)]
    assert {names.STANDBY_STATE: None} in [each["metadata"].get("annotations") for each in patches]
    assert not any("runStrategy" in each.get("spec", {}) for each in patches)


def test_p32_a_woken_mark_of_the_future_is_removed():
    found = of_standbys("woken 2099-01-01T00:00:00Z", served="true", strategy="Always")
    patches = [json.loads(each.body) for each in plan(found).actions if isinstance(each, Patch)]
    assert [each["metadata"]["annotations"] for each in patches] == [{names.STANDBY_STATE: None}]


def test_p8_p32_a_standby_that_was_started_leaves_before_the_vms_that_serve_and_no_other_one_is_made():
    found = of_standbys("resting", served="false", strategy="Always")
    done = plan(found).actions
    assert "standby: 1 virtual machine waits because the pool has more than it wants" in plan(found).held
    assert [each.key.name for each in done if isinstance(each, Delete)] == ["web-1"]
    assert not any(isinstance(each, Create) and each.resource is VMS for each in done)


def test_p22_p32_a_policy_that_starts_each_standby_takes_its_rest_back():
    rest = {"metadata": {"uid": "u"}, "spec": {"runStrategy": "Halted"}}
    action = Patch(resource=VMS, key=ObjectKey("a", "web-1"), uid="u", body=b"", type=PatchType.MERGE, why="")

    def answered(strategy: str) -> Any:
        answer = json.dumps(rest | {"spec": {"runStrategy": strategy}}).encode()
        return outcome_of_patch(action, json.dumps(rest).encode(), answer)

    assert "a policy takes spec.runStrategy of web-1 back" in str(answered("Always").error)
    assert isinstance(answered("Halted"), Done)


@pytest.mark.parametrize(
    "mark", ["preparing", "resting", "pausing", "paused 123", "paused 123 web-7", "woken 2099-01-01T00:00:00Z", "x"]
)
def test_p32_a_mark_that_a_user_or_a_policy_writes_on_all_vms_makes_no_standby_of_them(mark: str):
    owner = pool(replicas=2)
    note = {names.STANDBY_STATE: mark}
    forged = [replace(each, metadata=replace(each.metadata, annotations=note)) for each in vms(owner, 0, 1)]
    patches = plan(snapshot(owner, forged)).actions
    assert [(each.key.name, json.loads(each.body)["metadata"]["annotations"]) for each in patches] == [
        (name, {names.STANDBY_STATE: None}) for name in ("web-0", "web-1")
    ]


def test_p11_a_revision_whose_owner_was_removed_is_still_that_of_its_pool():
    owner = pool(replicas=1)
    machine = vm("web-0", owner=owner)
    former = revision(owner, number=1, owned=None, labels={names.POOL_UID: owner.metadata.uid})
    kept = kept_revision(former)
    assert kept is not None
    seen = snapshot(owner, [machine], vmis=[vmi(machine)], revisions=[kept])
    assert (plan(seen).actions, next_status(seen, ()).updated_replicas) == ((), 1)


@pytest.mark.parametrize("owners", [[], [{"apiVersion": "v1", "kind": "VM", "name": "a", "uid": "vm"}]])
def test_p10_a_policy_that_gives_a_kept_disk_its_owner_back_is_a_refusal(owners):
    key = ObjectKey("default", "disk")
    action = RemoveOwnerReference(resource=DATA_VOLUMES, key=key, owner_uid="vm", why="")
    answer = json.dumps({"metadata": {"name": "disk", "resourceVersion": "2", "ownerReferences": owners}}).encode()
    outcome = outcome_of_patch(action, b'{"metadata":{"ownerReferences":[]}}', answer)
    assert isinstance(outcome, Rejected) is bool(owners)
