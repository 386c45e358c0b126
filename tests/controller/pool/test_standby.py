"""P32: standby VMs are ready once, rest beside the wanted VMs, and take the place of missing ones."""

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import VMIS
from controller.pool.plan import plan
from controller.pool.rules import JUDGE
from controller.pool.scale import plan_new_standbys
from controller.pool.standby import ready_standbys
from controller.pool.status import next_status, outcome_notices
from controller.runtime.actions import Create, Delete, Patch, Rejected
from controller.runtime.execute.patches import error_of_create
from controller.runtime.execute.refusals import Refusal
from informers.objects import read_meta
from tests.builders import NOW
from tests.pool_builders import LABELS, Json, member, pool, revision, situation_of, snapshot, vm_spec, vmi, vms
from tests.pool_scenes import QUOTA, at

WITH = {names.STANDBY: "2"}
PREPARING, RESTING = ({names.STANDBY_STATE: each} for each in ("preparing", "resting"))
BROKEN: Json = {"ready": False, "ready_for_s": 7200, "printable": "CrashLoopBackOff", "failures": 9}
SERVING = vm_spec(labels={**LABELS, names.IN_SERVICE: "true"})


def standby_pool(**changes: Any) -> Any:
    return pool(**{"replicas": 2, "annotations": WITH, **changes})


def prepared(owner: Any, *ordinals: int, marks: Json = PREPARING, **state: Any) -> Any:
    return vms(owner, *ordinals, annotations=marks, **state)


def resting(owner: Any, *ordinals: int, **state: Any) -> Any:
    halted = {"spec": vm_spec(run_strategy="Halted"), "ready": False, "printable": "Stopped"}
    return vms(owner, *ordinals, **{**halted, "annotations": RESTING, **state})


def seen(owner: Any, *machines: Any, **facts: Any) -> Any:
    """The snapshot. VMs that rest have no VMI."""
    running = [each for each in machines if each.spec.run_strategy != "Halted"]
    found = snapshot(owner, running)
    vmis = [each.vmi for each in found.members if each.vmi is not None]
    return snapshot(owner, machines, **{"vmis": vmis, **facts})


def does(found: Any) -> list[str]:
    """The creates and deletes of VMs, and the marks and run strategies that the plan writes."""
    todo = []
    for each in plan(found).actions:
        if isinstance(each, Create | Delete) and each.key.name.startswith("web-") and each.resource.kind.endswith("e"):
            is_standby = isinstance(each, Create) and names.STANDBY_STATE in each.body.decode()
            todo.append(f"{type(each).__name__} {each.key.name}{' standby' if is_standby else ''}")
        elif isinstance(each, Patch) and names.STANDBY_STATE in each.body.decode():
            body = json.loads(each.body)
            strategy = body.get("spec", {}).get("runStrategy")
            mark = body["metadata"]["annotations"][names.STANDBY_STATE] or "None"
            todo.append(f"{each.key.name} {mark.partition(' ')[0]} {strategy}")
    return todo


def test_p32_standbys_are_created_after_the_wanted_vms_and_rest_when_they_have_been_ready():
    owner = standby_pool()
    assert does(seen(owner)) == ["Create web-0", "Create web-1"]
    wanted = vms(owner, 0, 1)
    assert does(seen(owner, *wanted)) == ["Create web-2 standby", "Create web-3 standby"]
    waiting = prepared(owner, 2, 3, ready=False, printable="Starting")
    assert does(seen(owner, *wanted, *waiting)) == []
    found = seen(owner, *wanted, *prepared(owner, 2), *waiting[1:])
    assert does(found) == ["web-2 resting Halted"]
    assert does(seen(owner, *wanted, *resting(owner, 2, 3))) == []
    young = pool(replicas=2, annotations={**WITH, names.MIN_READY: "60"})
    assert does(seen(young, *wanted, *prepared(young, 2, 3, ready_for_s=10))) == []
    assert plan(seen(young, *wanted, *prepared(young, 2, 3, ready_for_s=10))).requeue_after_s == 50


def test_p32_a_scale_out_wakes_the_lowest_standby_then_takes_a_prepared_one_then_creates():
    owner = standby_pool(replicas=4)
    wanted = vms(owner, 0)
    starting = prepared(owner, 1, ready=False, printable="Starting", ready_for_s=90, age_s=90)
    state = (*wanted, *starting, *resting(owner, 3))
    assert does(seen(owner, *state)) == ["web-3 woken Always", "web-1 woken Always", "Create web-2"]
    [wake, *_] = plan(seen(owner, *state)).actions
    assert json.loads(wake.body)["metadata"]["resourceVersion"] == "1"
    running = {**vm_spec(), "running": True, "runStrategy": None}
    older = standby_pool(replicas=1, spec=running)
    [wake] = plan(seen(older, *resting(older, 0))).actions
    assert json.loads(wake.body)["spec"] == {"running": True, "runStrategy": None}


def test_p32_a_vm_that_still_stops_or_is_prepared_out_of_service_is_not_woken():
    owner = standby_pool(replicas=1, annotations={names.STANDBY: "1"}, spec=SERVING)
    stopping = resting(owner, 0)
    assert does(seen(owner, *stopping, vmis=[vmi(stopping[0], deleting=True)])) == ["Create web-1"]
    assert does(seen(owner, *resting(owner, 0, printable="Stopping"))) == ["Create web-1"]  # KubeVirt sees a VMI
    hidden = vm_spec(labels={**LABELS, names.IN_SERVICE: "false"})
    assert does(seen(owner, *prepared(owner, 0, ready=False, printable="Starting", spec=hidden))) == ["Create web-1"]


def test_p32_standbys_count_in_no_number_and_the_status_says_so():
    owner = standby_pool(spec=SERVING)
    status = next_status(seen(owner, *vms(owner, 0, 1), *prepared(owner, 2), *resting(owner, 3)), ())
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (2, 2, 2)
    assert (status.printable_status, status.problem) == ("Running", None)
    assert status.label_selector == f"app=web,{names.IN_SERVICE} notin (false)"
    assert next_status(seen(pool(spec=SERVING)), ()).label_selector == "app=web"


def test_p32_the_metrics_count_standbys_and_claimed_vms_apart():
    owner = standby_pool()
    claimed = vms(owner, 4, annotations={names.CLAIMED_BY: "job"})
    found = seen(owner, *vms(owner, 0, 1), *prepared(owner, 2), *resting(owner, 3), *claimed)
    assert found.marked == {"busy": 0, "claimed": 1, "standby": 2}


def test_p32_a_standby_is_out_of_service_until_it_wakes():
    owner = standby_pool(spec=SERVING)
    create, *_ = [each for each in plan(seen(owner, *vms(owner, 0, 1))).actions if isinstance(each, Create)]
    assert json.loads(create.body)["spec"]["template"]["metadata"]["labels"][names.IN_SERVICE] == "false"
    hidden = {**vm_spec(labels={**LABELS, names.IN_SERVICE: "false"}), "runStrategy": "Halted"}
    [wake] = plan(seen(owner, *vms(owner, 0), *resting(owner, 1, spec=hidden), *resting(owner, 2, 3))).actions
    assert json.loads(wake.body)["spec"]["template"]["metadata"]["labels"] == {names.IN_SERVICE: "true"}


def test_p32_a_standby_that_leaves_the_pool_is_in_service_before_it_loses_its_mark():
    owner = standby_pool(spec=SERVING)
    hidden = vm_spec(labels={**LABELS, names.IN_SERVICE: "false"})
    [machine] = prepared(owner, 2, spec=hidden, labels={"app": "mine"})
    found = [vmi(machine, labels={**LABELS, names.IN_SERVICE: "false"}), *map(vmi, vms(owner, 0, 1))]
    state = (*vms(owner, 0, 1), machine, *resting(owner, 3, 4))
    label = "/spec/template/metadata/labels/vmherd.dev~1in-service"
    _, release = plan(seen(owner, *state, vmis=found)).actions
    steps = {each["path"]: each for each in json.loads(release.body) if each["op"] != "test"}
    assert (steps[label]["value"], [path for path in steps if "annotations" in path]) == ("true", [])
    shown = vm_spec(labels={**LABELS, names.IN_SERVICE: "true"})
    [stray] = vms(owner, 2, annotations=PREPARING, spec=shown, labels={"app": "mine"})
    stray = replace(stray, metadata=replace(stray.metadata, owner_references=None))
    others = (*vms(owner, 0, 1), stray, *resting(owner, 3, 4))
    [second] = plan(seen(owner, *others, vmis=found)).actions
    assert (second.resource, json.loads(second.body)["metadata"]["labels"]) == (VMIS, {names.IN_SERVICE: "true"})
    [third] = plan(seen(owner, *others, vmis=[vmi(stray), *found[1:]])).actions
    assert "/metadata/annotations/vmherd.dev~1standby-state" in third.body.decode()


@pytest.mark.parametrize(
    ("marks", "after"),
    [(RESTING, "woken"), ({**PREPARING, names.BUSY_UNTIL: "2026-08-01T13:00:00Z"}, "None")],
    ids=["a user has started it", "it is busy before it rests"],
)
def test_p32_a_vm_that_serves_a_user_is_an_ordinary_member(marks: Json, after: str):
    owner = standby_pool(replicas=3)
    state = vms(owner, 0, 1), vms(owner, 2, annotations=marks)
    found = seen(owner, *state[0], *state[1], *resting(owner, 3, 4))
    assert does(found) == [f"web-2 {after} None"]
    assert next_status(found, ()).replicas == 3


def test_p32_a_woken_vm_counts_as_unready_since_it_was_woken_and_not_since_it_rested():
    owner = standby_pool(replicas=1, annotations={names.STANDBY: "1"})
    woken = {names.STANDBY_STATE: f"woken {at(5)}"}
    rested = {"annotations": woken, "ready": False, "ready_for_s": 3000, "printable": "Starting"}
    state = (*vms(owner, 0, **rested), *resting(owner, 1))
    assert member(seen(owner, *state, vmis=()), "web-0").downtime.since == NOW - timedelta(seconds=5)
    starting = [vmi(state[0], ready=False, ready_for_s=3, age_s=4)]
    soon = seen(owner, *vms(owner, 0, **{**rested, "age_s": 20, "ready_for_s": 10}), *state[1:], vmis=starting)
    assert member(soon, "web-0").downtime.since == NOW - timedelta(seconds=5)
    assert does(soon) == []
    ready = [vmi(state[0], age_s=4)]
    assert does(seen(owner, *vms(owner, 0, annotations=woken), *state[1:], vmis=ready)) == ["web-0 None None"]


def test_p32_a_vm_that_becomes_busy_at_the_last_moment_does_not_rest():
    owner = standby_pool()
    [machine] = prepared(owner, 2)
    [rest] = plan(seen(owner, *vms(owner, 0, 1), machine, *resting(owner, 3))).actions
    busy = vmi(machine, annotations={names.BUSY_UNTIL: "2026-08-01T13:00:00Z"})
    assert rest.judged
    found = {VMIS: json.dumps({"metadata": {"name": "web-2", "annotations": busy.metadata.annotations}}).encode()}
    assert JUDGE.obstacle(rest, found, NOW) == "it is busy until 2026-08-01T13:00:00Z"
    assert JUDGE.obstacle(rest, {}, NOW) == ""


def test_p32_if_fewer_are_wanted_the_highest_ordinals_leave_and_a_started_one_stays():
    owner = standby_pool(annotations={names.STANDBY: "1"})
    found = seen(owner, *vms(owner, 0, 1), *resting(owner, 2, 3, 4))
    assert does(found) == ["Delete web-3", "Delete web-4"]
    assert [each.owner_uid for each in plan(found).actions] == ["", ""], "a change of the VM stops the delete"
    none = pool(replicas=2)
    assert does(seen(none, *vms(none, 0, 1), *resting(none, 2))) == ["Delete web-2"]
    kept = resting(owner, 2, 3, annotations={**RESTING, names.PROTECT: "true"})
    assert does(seen(owner, *vms(owner, 0, 1), *kept)) == []


def test_p32_a_scale_in_lays_a_vm_to_rest_only_if_the_pool_reuses_vms_and_a_standby_is_missing():
    first = {"scaleInStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}}
    owner = standby_pool(annotations={names.STANDBY: "1", names.REUSE: "true"}, spec=SERVING, **first)
    members = vms(owner, 0, 1, 2, 3, spec=SERVING)
    found = seen(owner, *members)
    assert does(found) == ["web-0 resting Halted", "Delete web-1"]
    rest, _ = plan(found).actions
    body = json.loads(rest.body)
    assert body["spec"]["template"]["metadata"]["labels"] == {names.IN_SERVICE: "false"}
    assert rest.judged
    assert does(seen(owner, *members[1:], *resting(owner, 4))) == ["Delete web-1"]
    never = standby_pool(annotations={names.STANDBY: "1"}, **first)
    assert does(seen(never, *vms(never, 0, 1, 2))) == ["Delete web-0"]
    drains = standby_pool(annotations={names.STANDBY: "1", names.REUSE: "true", names.DRAIN_SECONDS: "60"}, **first)
    [mark] = plan(seen(drains, *vms(drains, 0, 1, 2))).actions
    text = json.loads(mark.body)["metadata"]["annotations"][names.DRAINING]
    drained = vms(drains, 0, annotations={names.DRAINING: text, names.DRAINED: "true"})
    [rest] = plan(seen(drains, *drained, *vms(drains, 1, 2))).actions
    notes = {names.STANDBY_STATE: "resting web-0", names.DRAINING: None, names.DRAINED: None}
    assert json.loads(rest.body)["metadata"]["annotations"] == notes


def outdated_scene(*machines: str, image: str = "v2", **fields: Any) -> Any:
    """A pool with a new template, two wanted VMs, and standbys in these states: "old", "fails", "new" or "rests"."""
    old, new = standby_pool(**fields), standby_pool(spec=vm_spec(image=image), generation=2, **fields)
    facts: Json = {"revision": "web-2", "spec": vm_spec(image=image)}
    found = [*vms(new, 0, 1, **facts)]
    for ordinal, state in enumerate(machines, 2):
        if state == "old":
            found += resting(old, ordinal)
        elif state == "fails":
            found += prepared(old, ordinal, ready=False, printable="ErrImagePull")
        elif state == "rests":
            found += resting(new, ordinal, revision="web-2")
        else:
            found += prepared(new, ordinal, **facts, ready=False, printable="Starting")
    return seen(new, *found, revisions=[revision(old, number=1), revision(new, "web-2", number=2)])


TURNS = {
    "the first one": (("old", "old"), ["Delete web-2"]),
    "it is created again": (("old",), ["Create web-3 standby"]),
    "the other waits": (("new", "old"), []),
    "the other follows": (("rests", "old"), ["Delete web-3"]),
    "all": (("rests", "rests"), []),
    "one fails": (("fails",), ["Delete web-2"]),
    "it fails, and the other waits": (("new", "fails"), ["Delete web-3"]),
}


@pytest.mark.parametrize(("states", "expected"), TURNS.values(), ids=TURNS)
def test_p32_one_standby_gets_a_new_template_first_and_the_others_when_it_has_been_ready(states: Any, expected: Any):
    assert does(outdated_scene(*states)) == expected


def test_p32_a_standby_with_an_old_template_is_not_woken():
    found = outdated_scene("old", "rests")
    more = replace(found, owner=replace(found.owner, spec=replace(found.owner.spec, replicas=4)))
    assert does(more) == ["web-3 woken Always", "Create web-4"]


def test_p32_a_failing_standby_is_replaced_not_before_five_minutes_of_age_and_is_a_wait():
    healing = {"autohealing": {"startUpFailureThreshold": 3}}
    owner = standby_pool(**healing)
    wanted, other = vms(owner, 0, 1), resting(owner, 3)
    assert does(seen(owner, *wanted, *prepared(owner, 2, **BROKEN), *other)) == ["Delete web-2"]
    young = seen(owner, *wanted, *prepared(owner, 2, **BROKEN, age_s=200), *other)
    assert (does(young), plan(young).requeue_after_s) == ([], 100)
    assert [each.text for each in plan(young).waits] == ["standby: web-2: CrashLoopBackOff, 9 failed starts in a row"]
    never = standby_pool()
    assert does(seen(never, *wanted, *prepared(never, 2, **BROKEN), *other)) == []


def test_p32_a_standby_whose_revision_a_policy_takes_is_replaced_not_before_five_minutes_of_age():
    owner = standby_pool()
    wanted = vms(owner, 0, 1)
    stripped = {"revision": "", "marks": PREPARING}
    young = seen(owner, *wanted, *prepared(owner, 2, 3, **stripped, age_s=200))
    assert (does(young), plan(young).requeue_after_s) == ([], 100)
    assert does(seen(owner, *wanted, *prepared(owner, 2, 3, **stripped))) == ["Delete web-2"]


@pytest.mark.parametrize("trouble", [{"printable": "ErrorUnschedulable"}, {"max_replicas": 2}])
def test_p32_wanted_vms_come_before_standbys_where_room_is_short(trouble: Json):
    owner = standby_pool()
    last = vms(owner, 1, ready="printable" not in trouble, printable=trouble.get("printable", "Running"))
    assert does(seen(owner, *vms(owner, 0), *last, max_replicas=trouble.get("max_replicas", 0))) == []


def test_p32_standbys_leave_if_the_wanted_vms_need_the_room_of_the_controllers_limit():
    owner = standby_pool(replicas=4)
    starting = prepared(owner, 3, 4, ready_for_s=5)
    found = seen(owner, *vms(owner, 0, 1, 2), *starting, max_replicas=5)
    assert does(found) == ["web-3 woken Always", "web-4 resting Halted"]
    old = resting(owner, 3, 4, revision="web-0")
    assert does(seen(owner, *vms(owner, 0, 1, 2), *old, max_replicas=5)) == ["Delete web-4", "Delete web-3"]


@pytest.mark.parametrize("strategy", ["Manual", "Halted", "Once"])
def test_p32_vms_that_do_not_start_again_by_themselves_have_no_standbys(strategy: str):
    owner = standby_pool(spec=vm_spec(run_strategy=strategy))
    found = seen(owner, *vms(owner, 0, 1))
    assert does(found) == []
    [wrong] = found.wrong_annotations
    assert wrong.text == (
        f'annotation {names.STANDBY} has no effect: VMs with the run strategy "{strategy}" do not start again by '
        "themselves"
    )


def test_p32_a_refused_standby_is_no_failure_of_the_pool():
    owner = standby_pool()
    found = seen(owner, *vms(owner, 0, 1))
    create, *_ = [each for each in plan(found).actions if isinstance(each, Create)]
    failed = Condition(type="ReplicaFailure", status="True", reason="FailedScaleOut", message="an earlier one")
    for pool_ in (owner, replace(owner, status=replace(owner.status or PoolStatus(), conditions=(failed,)))):
        status = next_status(replace(found, owner=pool_), (Rejected(create, QUOTA),))
        assert (status.printable_status, status.problem) == ("Running", None)
    assert [each.reason for each in outcome_notices([Rejected(create, QUOTA)])] == ["FailedCreate"]


def test_p32_a_policy_that_takes_the_mark_back_counts_as_a_refusal_so_creates_have_growing_delays():
    owner = standby_pool()
    create, *_ = [each for each in plan(seen(owner, *vms(owner, 0, 1))).actions if isinstance(each, Create)]
    made = read_meta(create.body)
    assert error_of_create(create, made) is None
    told = "a policy takes ownerReferences, vmherd.dev/standby-state of web-2 back"
    assert str(error_of_create(create, replace(made, annotations={}, owner_references=()))) == told


def test_p32_a_standby_that_leaves_or_has_an_old_template_does_not_change_the_state_of_the_pool():
    found = outdated_scene("rests", "old")
    assert (next_status(found, ()).current_revision, next_status(found, ()).printable_status) == ("web-2", "Running")
    owner = standby_pool(annotations={names.STANDBY: "1"})
    leaving = seen(owner, *vms(owner, 0, 1), *resting(owner, 2), *resting(owner, 3, deleting=True))
    assert next_status(leaving, ()).printable_status == "Running"


@pytest.mark.parametrize("trouble", [{"snapshot": "nightly"}, {"refused": True}], ids=["a snapshot", "a refusal"])
def test_p32_a_standby_that_cannot_start_now_is_not_woken(trouble: Json):
    owner = standby_pool(replicas=1, annotations={names.STANDBY: "1"})
    found = seen(owner, *resting(owner, 0, snapshot=trouble.get("snapshot")))
    refused = {"web-0": Refusal(NOW, "no")} if trouble.get("refused") else {}
    assert does(replace(found, refused=refused)) == ["Create web-1"]


def test_p32_a_pool_without_wanted_vms_has_standbys_that_serve_the_first_request():
    asleep = pool(replicas=0, annotations={names.STANDBY: "1"})
    assert does(seen(asleep, revisions=[])) == ["Create web-0 standby"]
    awake = pool(replicas=1, annotations={names.STANDBY: "1"})
    assert does(seen(awake, *resting(awake, 0))) == ["web-0 woken Always"]
    share = pool(replicas=0, annotations={names.STANDBY: "50%"})
    assert does(seen(share, *resting(share, 0))) == ["Delete web-0"]


def test_p32_a_claim_wakes_a_standby_and_a_claimed_standby_is_replaced():
    owner = standby_pool(annotations={names.STANDBY: "1"})
    taken = vms(owner, 0, annotations={names.CLAIMED_BY: "job"})
    assert does(seen(owner, *taken, *vms(owner, 1), *resting(owner, 2))) == ["web-2 woken Always"]
    claimed = resting(owner, 2, annotations={**RESTING, names.CLAIMED_BY: "job"})
    assert does(seen(owner, *vms(owner, 0, 1), *claimed)) == ["Create web-3 standby"]


def test_p32_disks_that_are_kept_outlive_a_standby_and_a_budget_counts_a_ready_one():
    offline = {"proactive": {"statePreservation": "Offline"}}
    owner = standby_pool(annotations={names.STANDBY: "1"}, scaleInStrategy=offline)
    found = seen(owner, *vms(owner, 0, 1), *resting(owner, 2, 3))
    [delete] = [each for each in plan(found).actions if isinstance(each, Delete)]
    assert (delete.key.name, delete.foreground, delete.finalizer) == ("web-3", False, names.POOL_FINALIZER)
    assert ready_standbys(situation_of(seen(owner, *prepared(owner, 2), *resting(owner, 3)))) == 1


def test_p32_healing_and_recreation_of_a_wanted_vm_take_a_standby_and_not_its_ordinal():
    owner = standby_pool(annotations={names.STANDBY: "1"})
    gone = vms(owner, 1, deleting=True)
    assert does(seen(owner, *vms(owner, 0), *gone, *resting(owner, 2))) == []
    assert does(seen(owner, *vms(owner, 0), *resting(owner, 2))) == ["web-2 woken Always"]


def test_p32_below_a_partition_a_standby_has_the_template_of_its_ordinal():
    marks = {names.STANDBY: "1", names.PARTITION: "5"}
    old, new = standby_pool(annotations=marks), standby_pool(annotations=marks, spec=vm_spec(image="v2"), generation=2)
    facts = {"revisions": [revision(old, number=1), revision(new, "web-2", number=2)]}
    assert does(seen(new, *vms(old, 0, 1), *resting(old, 2), **facts)) == []
    [create] = plan_new_standbys(situation_of(seen(new, *vms(old, 0, 1), **facts))).actions
    assert json.loads(create.body)["metadata"]["labels"][names.REVISION_NAME] == "web-1"


def test_p32_in_a_step_no_standby_with_the_new_template_takes_the_place_of_a_vm_with_the_old_one():
    marks = {names.STANDBY: "1", names.PARTITION: "2"}
    fields = {"replicas": 3, "annotations": marks}
    old, new = standby_pool(**fields), standby_pool(**fields, spec=vm_spec(image="v2"), generation=2)
    facts = {"revisions": [revision(old, number=1), revision(new, "web-2", number=2)]}
    healed = (*vms(old, 0), *vms(new, 2, revision="web-2", spec=vm_spec(image="v2")))
    rests = resting(new, 3, revision="web-2")
    assert [each for each in does(seen(new, *healed, *rests, **facts)) if "Create" in each] == ["Create web-1"]
    lost = vms(old, 0, 1)
    assert does(seen(new, *lost, *rests, **facts)) == ["web-3 woken Always"]
