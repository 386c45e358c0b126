"""P26: a VM that runs drains before it goes. P4, P26, P32: labels and marks that others have changed or removed."""

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import DATA_VOLUMES, VMIS, VMS
from controller.pool.leaving.claims import plan_strays
from controller.pool.members.rosters import Downtimes, PoolReader
from controller.pool.plan import plan
from controller.replicas.draining import HEALING, SCALE_IN, UPDATE, Mark, guest_of_vm, must_drain
from controller.replicaset.plan import plan as plan_set
from controller.runtime.actions import Create, Delete, Done, Patch, Rejected, RemoveOwnerReference
from controller.runtime.execute.patches import outcome_of_patch
from controller.runtime.execute.written import Noted
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests import builders
from tests.builders import NOW, seconds_ago
from tests.plans import reasons
from tests.pool_builders import LABELS, pool, snapshot, stores, vm, vm_spec, vmi, vms
from tests.pool_scenes import (
    DESCENDING,
    deleted,
    during_update,
    limited_pool,
    merged,
    new_vms,
    old_vmis,
    old_vms,
    restarted,
)

DRAIN = {names.DRAIN_SECONDS: "900"}
DRAIN_TIME = timedelta(seconds=900)
END = NOW + timedelta(seconds=900)


def marked(name: str, *, cause: str = "scale-in", until: Any = END, **more: str) -> dict[str, Any]:
    return {"annotations": {names.DRAINING: str(Mark(cause, until, f"uid-{name}")), **more}}


def patches(todo: Any) -> dict[str, Any]:
    """The bodies of the patches of VMs, by name."""
    found = [each for each in todo.actions if isinstance(each, Patch) and each.resource is VMS]
    return {each.key.name: json.loads(each.body) for each in found}


def planned(owner: Any, *machines: Any, **more: Any) -> Any:
    return plan(snapshot(owner, machines, vmis=[vmi(each) for each in machines], **more))


def test_p26_a_vm_is_marked_before_a_scale_in_and_leaves_after_its_answer_or_its_deadline():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING, annotations=DRAIN)
    todo = planned(owner, *vms(owner, 0, 1))
    assert (deleted(todo), reasons(todo), todo.requeue_after_s) == ([], ["Draining"], 900)
    meta = patches(todo)["web-1"]["metadata"]
    assert meta["annotations"] == {names.DRAINING: str(Mark(SCALE_IN, END, "uid-web-1")), names.DRAINED: None}
    assert todo.held == "web-1 waits: it drains until 2026-08-01T12:15:00Z (scale-in)"
    first = vm("web-0", owner=owner)
    waiting = vm("web-1", owner=owner, **marked("web-1"))
    todo = planned(owner, first, waiting, now=NOW + timedelta(seconds=300))
    assert (todo.actions, todo.requeue_after_s) == ((), 600)
    of_update = planned(owner, first, vm("web-1", owner=owner, **marked("web-1", cause=UPDATE, until=seconds_ago(-60))))
    assert patches(of_update)["web-1"]["metadata"]["annotations"][names.DRAINING] == str(
        Mark(SCALE_IN, seconds_ago(-60), "uid-web-1")
    ), "another cause keeps the deadline"
    answered = planned(owner, first, vm("web-1", owner=owner, **marked("web-1", **{names.DRAINED: "true"})))
    assert (deleted(answered), reasons(answered)) == (["web-1"], ["Drained"])
    assert [each.owner_uid for each in answered.actions] == [""], "it may have another VMI, which has not drained"
    overdue = planned(owner, first, waiting, now=END)
    assert (deleted(overdue), reasons(overdue)) == (["web-1"], ["DrainDeadlineExceeded"])
    ended = plan(snapshot(owner, (first, waiting), vmis=[vmi(first), vmi(waiting, phase="Succeeded")]))
    assert deleted(ended) == ["web-1"], "its VMI has ended"


def test_p11_p26_a_template_is_stored_for_an_undo_although_a_scale_in_drains_for_long():
    owner = limited_pool(None, replicas=1, scaleInStrategy=DESCENDING, annotations=DRAIN)
    machines = (*old_vms(owner, 0), *old_vms(owner, 1, **marked("web-1")))
    todo = plan(during_update(owner, machines, current=False))
    assert [(type(each), each.key.name) for each in todo.actions] == [(Create, "web-2")]


def test_p26_healing_drains_before_it_announces_the_deletion():
    owner = pool(annotations={**DRAIN, names.REPLACE_UNREADY_AFTER: "30"})
    unready = {"ready": False, "ready_for_s": 400}
    machines = (*vms(owner, 0, 2), *vms(owner, 1, **unready))
    todo = plan(snapshot(owner, machines, vmis=[*map(vmi, machines[:2]), vmi(machines[2], **unready)]))
    assert list(patches(todo)) == ["web-1"]
    assert not [each for each in todo.actions if b"vmherd.dev/healed" in getattr(each, "body", b"")]
    assert reasons(todo) == ["Draining"]


@pytest.mark.parametrize("strategy", ["Always", "Manual"])
def test_p26_a_vm_drains_before_an_update_restarts_it(strategy: str):
    owner = limited_pool(replicas=1, spec=vm_spec(image="v2", run_strategy=strategy), annotations=DRAIN)
    [plain] = new_vms(owner, 0, strategy=strategy)
    todo = plan(during_update(owner, [plain], vmis=old_vmis([plain])))
    assert (restarted(todo), reasons(todo)) == ([], ["Draining"])
    mark = patches(todo)["web-0"]["metadata"]["annotations"][names.DRAINING]
    assert mark == str(Mark(UPDATE, END, "uid-web-0"))
    [drains] = new_vms(owner, 0, strategy=strategy, annotations={names.DRAINING: mark})
    assert plan(during_update(owner, [drains], vmis=old_vmis([drains]))).actions == ()
    assert restarted(plan(during_update(owner, [drains], vmis=old_vmis([drains]), now=END))) == ["web-0"]


def test_p26_another_template_in_the_middle_of_an_update_keeps_the_mark():
    owner = limited_pool(replicas=1, spec=vm_spec(image="v2"), annotations=DRAIN)
    [drains] = old_vms(owner, 0, **marked("web-0", cause=UPDATE))
    todo = plan(during_update(owner, [drains], vmis=old_vmis([drains])))
    assert (merged(todo), patches(todo)) == (["web-0"], {})


def test_p26_growing_again_takes_the_mark_back():
    owner = pool(replicas=2, annotations=DRAIN)
    todo = planned(owner, vm("web-0", owner=owner), vm("web-1", owner=owner, **marked("web-1")))
    assert patches(todo)["web-1"]["metadata"]["annotations"] == {names.DRAINING: None, names.DRAINED: None}
    assert (deleted(todo), reasons(todo)) == ([], ["DrainCancelled"])
    of_an_earlier_vmi = vm("web-1", owner=owner, **marked("another"))
    todo = planned(owner, vm("web-0", owner=owner), of_an_earlier_vmi)
    assert (list(patches(todo)), reasons(todo)) == (["web-1"], [])


@pytest.mark.parametrize(
    ("annotations", "waits"),
    [
        ({}, True),
        ({names.DRAINED: "true"}, True),
        ({names.DRAINING: "nonsense"}, True),
        (marked("web-0", until=seconds_ago(-1))["annotations"], True),
        (marked("web-0", until=NOW)["annotations"], False),
        (marked("web-0", **{names.DRAINED: "true"})["annotations"], False),
        (marked("web-0", **{names.DRAINED: "yes"})["annotations"], True),
        (marked("another", until=NOW)["annotations"], True),
        (marked("web-0", until=END + timedelta(seconds=1))["annotations"], True),
        (marked("web-0", until=END + timedelta(days=1), **{names.DRAINED: "true"})["annotations"], False),
    ],
)
def test_p26_only_the_answer_of_this_vmi_or_its_deadline_ends_the_wait(annotations: dict[str, str], waits: bool):
    machine = vm("web-0", annotations=annotations)
    assert must_drain(DRAIN_TIME, guest_of_vm(machine, vmi(machine)), SCALE_IN, NOW) is waits
    assert not must_drain(None, guest_of_vm(machine, vmi(machine)), SCALE_IN, NOW)
    assert not must_drain(DRAIN_TIME, guest_of_vm(machine, vmi(machine, phase="Scheduled")), SCALE_IN, NOW)


@pytest.mark.parametrize(("cause", "waits"), [(SCALE_IN, True), (UPDATE, True), (HEALING, False)])
def test_p26_the_mark_of_a_vm_that_failed_counts_for_its_next_vmi_only_in_healing(cause: str, waits: bool):
    machine = vm("web-0", **marked("another", until=NOW, cause="healing"))
    assert must_drain(DRAIN_TIME, guest_of_vm(machine, vmi(machine)), cause, NOW) is waits


@pytest.mark.parametrize(
    "text",
    [
        "scale-in until 9999-12-31T23:59:59-12:00 of uid-web-0",
        "scale-in until 9999-12-31T23:59:59Z of uid-web-0",
        "scale-in until 2026-99-99T00:00:00Z of uid-web-0",
        "my\nown cause until 2026-08-01T12:00:00Z of uid-web-0",
    ],
)
def test_p26_a_mark_with_a_strange_text_or_a_deadline_out_of_reach_is_replaced(text: str):
    owner = pool(replicas=0, annotations=DRAIN)
    todo = planned(owner, vm("web-0", owner=owner, annotations={names.DRAINING: text}))
    notes = patches(todo)["web-0"]["metadata"]["annotations"]
    assert notes == {names.DRAINING: str(Mark(SCALE_IN, END, "uid-web-0")), names.DRAINED: None}
    assert (deleted(todo), todo.requeue_after_s) == ([], 900)


OUT = {"spec": {"template": {"metadata": {"labels": {names.IN_SERVICE: "false"}}}}}
BACK = {"spec": {"template": {"metadata": {"labels": {names.IN_SERVICE: "true"}}}}}
MARK = str(Mark("scale-in", END, "uid-web-0"))


def label_patches(
    replicas: int, *, template: str | None = "true", shown: str | None = "true", marks: str = ""
) -> dict[str, Any]:
    """The bodies of the patches of one VM and its VMI, without UIDs, by resource. `marks` names what has the mark."""
    spec = vm_spec()
    spec["template"]["metadata"]["labels"] |= {names.IN_SERVICE: template} if template else {}
    owner = pool(replicas=replicas, annotations=DRAIN, spec=spec)
    machine = vm("web-0", owner=owner, spec=spec, **(marked("web-0") if "vm" in marks.split() else {}))
    more = {"annotations": {names.DRAINING: MARK}} if "vmi" in marks.split() else {}
    guest = vmi(machine, labels=LABELS | ({names.IN_SERVICE: shown} if shown else {}), **more)
    found = [each for each in plan(snapshot(owner, [machine], vmis=[guest])).actions if isinstance(each, Patch)]
    bodies = {each.resource.plural: json.loads(each.body) for each in found}
    uids = {"virtualmachines": machine.metadata.uid, "virtualmachineinstances": guest.metadata.uid}
    assert all(body["metadata"].pop("uid") == uids[name] for name, body in bodies.items())
    return bodies


def test_p26_the_label_of_a_vm_that_drains_takes_it_out_of_its_services():
    mark, no_mark = ({"annotations": {names.DRAINING: each, names.DRAINED: None}} for each in (MARK, None))
    assert label_patches(0) == {"virtualmachines": {"metadata": mark}}, "the mark comes first"
    out = {"metadata": mark | {"labels": {names.IN_SERVICE: "false"}}}
    assert label_patches(0, marks="vm") == {"virtualmachineinstances": out}
    assert label_patches(0, marks="vm vmi", shown="false") == {}, "the template stays, so the next VMI is in service"
    back = {"metadata": no_mark | {"labels": {names.IN_SERVICE: "true"}}}
    assert label_patches(1, marks="vm vmi", shown="false") == {"virtualmachineinstances": back}
    assert label_patches(1, marks="vm") == {"virtualmachines": {"metadata": no_mark}}, "the mark goes last"
    assert label_patches(1, marks="vmi", shown="false") == {"virtualmachineinstances": back}, "its user took the mark"


def test_p26_the_template_changes_if_kubevirt_copies_its_label_to_the_vmi():
    kept = {"metadata": {"annotations": {names.DRAINING: MARK}}}
    assert label_patches(0, marks="vm vmi") == {"virtualmachines": kept | OUT}, "an answer stays"
    for shown in ("true", "false"):
        assert label_patches(0, marks="vm vmi", template="false", shown=shown) == {}
    assert list(label_patches(1, marks="vm vmi", template="false", shown="false")) == ["virtualmachineinstances"]
    gone = {"metadata": {"annotations": {names.DRAINING: None, names.DRAINED: None}}}
    assert label_patches(1, marks="vm", template="false", shown="false") == {"virtualmachines": gone | BACK}


def test_p26_a_busy_vm_is_not_marked():
    owner = pool(replicas=0, annotations=DRAIN)
    todo = planned(owner, vm("web-0", owner=owner, annotations={names.BUSY_UNTIL: "2999-01-01T00:00:00Z"}))
    assert (todo.actions, reasons(todo)) == ((), ["ScaleInHeld"])


def test_p26_a_vm_that_does_not_run_leaves_at_once_unless_it_has_changed():
    owner = pool(replicas=0, annotations=DRAIN)
    [delete] = plan(snapshot(owner, vms(owner, 0), vmis=[])).actions
    assert isinstance(delete, Delete)
    assert (delete.owner_uid, delete.version) == ("", "1")


@pytest.mark.parametrize("left", ["released", "detached", "without its pool"])
@pytest.mark.parametrize("vmi_has_mark", [True, False])
def test_p2_a_vm_that_leaves_during_a_drain_loses_its_notes_and_returns_to_service(left: str, vmi_has_mark: bool):
    owner = pool(replicas=1, annotations=DRAIN)
    spec = vm_spec(labels={names.IN_SERVICE: "false"})
    found = vm(
        "web-1",
        owner=owner if left == "released" else None,
        labels={"app": "other"},
        spec=spec,
        finalizers=(),
        annotations={**marked("web-1", **{names.DRAINED: "true", names.SUBSTITUTE: "true"})["annotations"], "a": "b"},
    )
    mark = found.metadata.annotations if vmi_has_mark else None
    guest = vmi(found, labels={names.IN_SERVICE: "false"}, annotations=mark)
    seen = snapshot(owner, (found,), vmis=[guest])
    todo = plan_strays(seen.strays, burst=9) if left == "without its pool" else plan(seen)
    unmarked = [json.loads(each.body)["metadata"] for each in todo.actions if each.resource is VMIS]
    notes = {names.DRAINING: None, names.DRAINED: None}
    assert [(each["annotations"], each["labels"]) for each in unmarked] == (
        [(notes, {names.IN_SERVICE: "true"})] if vmi_has_mark else []
    )
    steps = [each["path"].rsplit("/", 1)[-1] for each in patches(todo).get("web-1", ()) if each["op"] != "test"]
    kept = {names.DRAINING, names.DRAINED, names.SUBSTITUTE, names.IN_SERVICE} if not vmi_has_mark else set()
    wanted = {each.replace("/", "~1") for each in kept} | ({"0"} if left == "released" else set())
    assert set(steps) == wanted, "the VM keeps its notes until its VMI has lost the mark"


@pytest.mark.parametrize("pool_exists", [True, False])
def test_p6_a_stray_that_is_being_deleted_without_the_finalizer_is_left_alone(pool_exists: bool):
    owner, earlier = pool(replicas=1), pool(uid="earlier")
    found = vm("web-1", owner=earlier, finalizers=(), deleting=True, **marked("web-1"))
    seen = snapshot(owner, (found,), vmis=[vmi(found)])
    assert [each.metadata.name for each in seen.strays] == ["web-1"]
    todo = plan(seen) if pool_exists else plan_strays(seen.strays, burst=9)
    assert "web-1" not in patches(todo)


@pytest.mark.parametrize("generation", ["3", "2", None])
def test_p13_vmis_whose_template_loses_the_label_are_restarted_once_and_in_turn(generation):
    owner = limited_pool(1, replicas=2)
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


@pytest.mark.parametrize("owners", [[], [{"apiVersion": "v1", "kind": "VM", "name": "a", "uid": "vm"}]])
def test_p10_a_policy_that_gives_a_kept_disk_its_owner_back_is_a_refusal(owners):
    key = ObjectKey("default", "disk")
    action = RemoveOwnerReference(resource=DATA_VOLUMES, key=key, owner_uid="vm", why="")
    answer = json.dumps({"metadata": {"name": "disk", "resourceVersion": "2", "ownerReferences": owners}}).encode()
    outcome = outcome_of_patch(action, b'{"metadata":{"ownerReferences":[]}}', answer)
    assert isinstance(outcome, Rejected) is bool(owners)
