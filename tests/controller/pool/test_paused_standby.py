"""P32: standby VMs that rest paused: each step to the rest and to the wake follows from the objects."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import PAUSE, UNPAUSE, VMIS, VMS
from controller.pool.plan import plan
from controller.pool.rules import JUDGE
from controller.pool.standby import ready_standbys
from controller.pool.status import next_status, outcome_notices
from controller.runtime.actions import Create, Delete, Patch, Pause, Rejected, Unserved
from controller.runtime.execute.refusals import Refusal
from informers.errors import Conflict, StatusError
from tests.builders import NOW
from tests.pool_builders import LABELS, Json, member, pool, revision, situation_of, snapshot, vm_spec, vmi, vms
from tests.pool_scenes import at, during_update

IN, OUT = (vm_spec(labels={**LABELS, names.IN_SERVICE: each}) for each in ("true", "false"))
HIDDEN = {**LABELS, names.IN_SERVICE: "false"}
IS_PAUSED = (Condition(type="Paused", status="True", reason="PausedByUser"),)
MODE = {names.STANDBY: "1", names.STANDBY_MODE: "paused"}
BUSY = {names.BUSY_UNTIL: "2026-08-01T13:00:00Z"}


def test_p32_a_vm_whose_guest_runs_an_earlier_template_is_not_laid_to_rest():
    marks = {names.STANDBY: "1", names.REUSE: "true"}
    new = pool(replicas=1, generation=2, spec=vm_spec(image="v2"), annotations=marks)
    first, second = vms(new, 0, 1, spec=vm_spec(image="v2"), revision="web-2")
    for runs, rests in (("web-1", False), ("web-2", True)):
        vmis = [vmi(first, revision=runs), vmi(second, revision=runs)]
        todo = plan(during_update(new, (first, second), vmis=vmis)).actions
        assert any(isinstance(each, Patch) and b"resting" in each.body for each in todo) == rests


def pausing_pool(marks: Json | None = None, **changes: Any) -> Any:
    return pool(**{"replicas": 1, "annotations": {**MODE, **(marks or {})}, "spec": IN, **changes})


def standby(
    owner: Any, ordinal: int, mark: str, *, paused: bool = False, marks: Json | None = None, **of_vmi: Any
) -> Any:
    """A VM that runs out of service with this mark of a standby, and its VMI. `uid` in the mark is that of its VMI."""
    mark = mark.replace("uid", f"uid-web-{ordinal}")
    printable = {"printable": "Paused", "ready": False} if paused else {}
    fields = {"annotations": {names.STANDBY_STATE: mark, **(marks or {})}, "spec": OUT, **printable}
    [machine] = vms(owner, ordinal, **fields)
    shown = {"ready": not paused, "reason": "ReadinessGatesNotReady", "conditions": IS_PAUSED if paused else ()}
    return machine, vmi(machine, **{**shown, "labels": HIDDEN, **of_vmi})


def seen(owner: Any, *found: Any, **facts: Any) -> Any:
    """The snapshot of a pool with the VM web-0 that serves, and these VMs with their VMIs, or None."""
    serving = vms(owner, 0)
    machines = [machine for machine, _ in found]
    instances = [each for _, each in found if each is not None]
    refused = facts.pop("refused", {})
    return replace(
        snapshot(owner, [*serving, *machines], vmis=[*map(vmi, serving), *instances], **facts), refused=refused
    )


def does(found: Any) -> list[str]:
    """The creates, deletes and pauses, and the marks that the plan writes, with the label of the service."""
    todo = []
    for each in plan(found).actions:
        if isinstance(each, Pause):
            todo.append(f"{each.subresource} {each.key.name}")
        elif isinstance(each, Create | Delete) and each.resource is VMS:
            todo.append(f"{type(each).__name__} {each.key.name}")
        elif isinstance(each, Patch) and names.STANDBY_STATE in each.body.decode():
            body = json.loads(each.body)
            mark = str(body["metadata"]["annotations"][names.STANDBY_STATE]).replace(str(at(0)), "now")
            mark = mark.removesuffix(f" {each.key.name}")
            strategy = body.get("spec", {}).get("runStrategy", "")
            todo.append(f"{each.key.name} {mark}{' ' + strategy if strategy else ''}{' in' * ('true' in str(body))}")
    return todo


def test_p32_a_standby_is_marked_then_paused_and_then_the_mark_says_which_vmi_rests():
    owner = pausing_pool()
    found = seen(owner, standby(owner, 1, "preparing"))
    assert does(found) == ["web-1 pausing"]
    [mark] = plan(found).actions
    assert mark.judged
    found = seen(owner, standby(owner, 1, "pausing"))
    assert does(found) == ["pause web-1"]
    found = seen(owner, standby(owner, 1, "pausing", paused=True))
    assert does(found) == ["web-1 paused uid-web-1"]
    assert [each.reason for each in plan(found).notices] == ["StandbyRests"]
    assert does(seen(owner, standby(owner, 1, "paused uid", paused=True))) == []


def test_p32_a_paused_standby_counts_in_no_number_and_is_no_problem():
    owner = pausing_pool({names.REPLACE_UNREADY_AFTER: "60"})
    rests = standby(owner, 1, "paused uid", paused=True, ready_for_s=3000)
    found = seen(owner, rests)
    status = next_status(found, ())
    assert (status.replicas, status.ready_replicas, status.printable_status, status.problem) == (1, 1, "Running", None)
    assert (member(found, "web-1").downtime, found.marked["standby"]) == (None, 1)
    assert ready_standbys(situation_of(found)) == 0, "a budget counts only ready Pods"
    assert does(found) == []


def test_p32_a_scale_out_unpauses_first_and_then_the_mark_goes():
    owner = pausing_pool(replicas=2)
    rests = standby(owner, 1, "paused uid", paused=True)
    found = seen(owner, rests)
    assert does(found) == ["unpause web-1"]
    assert [each.reason for each in plan(found).notices] == ["StandbyWoken"]
    runs = standby(owner, 1, "paused uid", ready=False)
    assert does(seen(owner, runs)) == ["web-1 woken now in"]
    assert member(seen(owner, runs), "web-1").downtime is None, "its rest does not count"
    assert does(seen(owner, runs, standby(owner, 2, "paused uid", paused=True))) == ["web-1 woken now in"]


@pytest.mark.parametrize(
    ("strategy", "seen_strategy", "does_it"),
    [("Once", "Halted", []), ("RerunOnFailure", "Halted", []), ("RerunOnFailure", "RerunOnFailure", ["web-1 None"])],
)
def test_p32_a_woken_vm_keeps_its_mark_until_kubevirt_starts_it(strategy: str, seen_strategy: str, does_it: list[str]):
    """So the time of its rest does not count. If KubeVirt does not start it, its user has stopped it."""
    spec, marks = vm_spec(run_strategy=strategy), {names.STANDBY_STATE: f"woken {at(1)}"}
    owner = pool(replicas=1, spec=spec)
    [woken] = vms(owner, 1, spec=spec, annotations=marks, ready=False, printable="Stopped")
    stopped = replace(woken, status=replace(woken.status, run_strategy=seen_strategy))
    assert does(snapshot(owner, [stopped], vmis=[])) == does_it


def test_p32_a_user_who_unpauses_a_standby_makes_it_an_ordinary_member():
    owner = pausing_pool()
    found = seen(owner, standby(owner, 1, "paused uid"), standby(owner, 2, "paused uid", paused=True))
    assert (next_status(found, ()).replicas, "web-1 woken now in" in does(found)) == (2, True)


def test_p32_a_woken_vm_is_unpaused_again_while_a_late_request_may_pause_it():
    owner = pausing_pool(replicas=2, spec=IN)
    others = standby(owner, 2, "paused uid", paused=True)
    assert does(seen(owner, standby(owner, 1, f"woken {at(10)}", paused=True), others)) == ["unpause web-1"]
    labels = {"labels": LABELS}
    [soon] = vms(owner, 1, annotations={names.STANDBY_STATE: f"woken {at(10)}"})
    assert does(seen(owner, (soon, vmi(soon, **labels)), others)) == []
    assert plan(seen(owner, (soon, vmi(soon, **labels)), others)).requeue_after_s == 20
    [late] = vms(owner, 1, annotations={names.STANDBY_STATE: f"woken {at(40)}"})
    assert does(seen(owner, (late, vmi(late, **labels)), others)) == ["web-1 None"]
    by_user = vmi(soon, age_s=5, ready=False, conditions=IS_PAUSED, **labels)
    assert does(seen(owner, (soon, by_user), others)) == [], "it has another VMI, so its user has paused it"


@pytest.mark.parametrize("marks", [BUSY, {names.CLAIMED_BY: "job"}], ids=["busy", "claimed"])
def test_p32_a_guest_that_is_busy_or_claimed_before_the_pause_is_no_standby(marks: Json):
    owner = pausing_pool(replicas=2)
    others = standby(owner, 2, "paused uid", paused=True)
    assert "pause web-1" not in does(seen(owner, standby(owner, 1, "pausing", marks=marks), others))
    assert "unpause web-1" in does(seen(owner, standby(owner, 1, "pausing", paused=True, marks=marks), others))


def test_p32_the_judge_lets_only_a_marked_standby_be_paused():
    owner = pausing_pool()
    machine, instance = standby(owner, 1, "pausing")
    [pause] = plan(seen(owner, (machine, instance))).actions
    assert (pause.judged, pause.subresource, pause.uid) == (True, PAUSE, instance.metadata.uid)

    def judged(**annotations: str) -> str:
        document = {"metadata": {"name": "web-1", "annotations": annotations}}
        return JUDGE.obstacle(pause, {VMS: json.dumps(document).encode()}, NOW)

    assert judged(**{names.STANDBY_STATE: "pausing web-1"}) == ""
    assert judged(**{names.STANDBY_STATE: "pausing"}) == "it is no standby any more"
    assert judged(**{names.STANDBY_STATE: "woken 2026-08-01T12:00:00Z"}) == "it is no standby any more"
    assert judged(**{names.STANDBY_STATE: "pausing web-1", **BUSY}) == "it is busy until 2026-08-01T13:00:00Z"


LOST: dict[str, Json] = {
    "its VMI has ended": {"phase": "Failed"},
    "its VMI is another one": {"uid": "another", "ready": False, "conditions": ()},
    "its Pod is terminating": {"reason": "PodTerminating"},
    "its VMI is being deleted": {"deleting": True},
}


@pytest.mark.parametrize("change", LOST.values(), ids=LOST)
def test_p32_a_standby_that_has_lost_its_memory_is_made_again_and_not_woken(change: Json):
    owner, short = pausing_pool(), pausing_pool(replicas=2)
    assert does(seen(owner, standby(owner, 1, "paused uid", paused=True, **change))) == ["Delete web-1"]
    assert "Create web-2" in does(seen(short, standby(short, 1, "paused uid", paused=True, **change)))
    machine, _ = standby(owner, 1, "paused uid", paused=True)
    assert does(seen(owner, (machine, None))) == ["Delete web-1"]


@pytest.mark.parametrize("mark", ["pausing", "paused uid"])
def test_p32_a_drain_of_its_node_moves_a_paused_standby(mark: str):
    owner = pausing_pool()
    machine, instance = standby(owner, 1, mark, paused=True)
    leaving = replace(instance, status=replace(instance.status, evacuation_node_name="node-1"))
    assert "Delete web-1" in does(seen(owner, (machine, leaving)))
    protected = standby(owner, 1, mark, paused=True, marks={names.PROTECT: "true"})[0]
    assert "Delete web-1" not in does(seen(owner, (protected, leaving)))


def test_p32_a_standby_that_does_not_unpause_does_not_hold_a_scale_out():
    owner = pausing_pool(replicas=2)
    rests = standby(owner, 1, "paused uid", paused=True)
    refused = {"web-1": Refusal(NOW, "virt-handler does not answer")}
    assert does(seen(owner, rests, refused=refused)) == ["Create web-2"]
    stuck = plan(seen(pausing_pool(), standby(owner, 1, "pausing"), refused=refused))
    assert "web-1 is not paused: virt-handler does not answer" in stuck.held
    [wake] = plan(seen(owner, rests)).actions
    assert outcome_notices([Rejected(wake, Conflict("VMI is not paused", code=409))]) == ()
    [notice] = outcome_notices([Rejected(wake, StatusError("no connection", code=500))])
    assert notice.message == "Error pausing or unpausing VMI default/web-1: no connection"
    absent = Unserved(wake, StatusError("absent", code=404))
    assert [each.reason for each in outcome_notices([absent])] == ["FailedUpdate"]
    assert next_status(seen(owner, rests), [absent]).conditions == next_status(seen(owner, rests), ()).conditions
    assert wake.subresource == UNPAUSE


def test_p32_a_new_template_and_another_mode_replace_paused_standbys_one_first():
    marks = {names.STANDBY: "2"}
    old, new = pausing_pool(marks), pausing_pool(marks, spec={**IN, "terminationGracePeriodSeconds": 9}, generation=2)
    both = [standby(old, each, "paused uid", paused=True) for each in (1, 2)]
    facts = {"revisions": [revision(old, number=1), revision(new, "web-2", number=2)]}
    assert [each for each in does(seen(new, *both, **facts)) if "Delete" in each] == ["Delete web-1"]
    stopped = pool(replicas=1, annotations={names.STANDBY: "2"}, spec=IN)
    assert does(seen(stopped, *both)) == ["Delete web-1"]
    stops = vms(old, 1, spec=OUT | {"runStrategy": "Halted"}, ready=False, annotations={names.STANDBY_STATE: "resting"})
    assert does(seen(old, (stops[0], None), both[1])) == ["Delete web-1"]
    unfinished = standby(stopped, 1, "pausing")
    assert "web-1 resting Halted" in does(seen(stopped, unfinished, both[1]))


ONCE = {**IN, "runStrategy": "Once"}
PROBED = json.loads(json.dumps(IN))
PROBED["template"]["spec"]["livenessProbe"] = {"tcpSocket": {"port": 22}}


@pytest.mark.parametrize(
    ("marks", "spec", "number", "said"),
    [
        ({}, IN, 1, []),
        ({}, ONCE, 1, []),
        ({}, vm_spec(), 1, [f"{names.STANDBY_MODE} counts as stopped: the VMI template has no label"]),
        ({}, PROBED, 1, [f"{names.STANDBY_MODE} counts as stopped: KubeVirt pauses no VM with a livenessProbe"]),
        ({names.STANDBY_MODE: "stopped"}, ONCE, 0, [f"{names.STANDBY} has no effect: VMs with the run strategy"]),
        ({names.REUSE: "true"}, IN, 1, [f"{names.REUSE} has no effect"]),
    ],
)
def test_p32_what_a_pool_cannot_do_with_paused_standbys_is_said(marks: Json, spec: Json, number: int, said: list[str]):
    owner = pausing_pool(marks, spec=spec)
    texts = [each.text.removeprefix("annotation ") for each in snapshot(owner).wrong_annotations]
    assert [text[: len(each)] for text, each in zip(texts, said, strict=True)] == said
    assert situation_of(snapshot(owner)).intent.standbys == number


def test_p32_a_finished_standby_of_a_one_shot_pool_is_replaced():
    owner = pausing_pool({names.REPLACE_FINISHED: "true"}, spec=ONCE)
    [ended] = vms(owner, 1, spec={**OUT, "runStrategy": "Once"}, annotations={names.STANDBY_STATE: "preparing"})
    ended = replace(ended, status=replace(ended.status, printable_status="Stopped"))
    assert "Delete web-1" in does(seen(owner, (ended, vmi(ended, phase="Succeeded", ready=False))))


def test_p32_a_vm_that_a_backup_restores_out_of_service_without_its_mark_serves_again():
    owner = pool(replicas=1, spec=IN)
    [lost] = vms(owner, 0, spec=OUT, revision="of-an-earlier-pool")
    [first] = plan(snapshot(owner, [lost])).actions
    body = json.loads(first.body)
    assert body["metadata"]["annotations"][names.STANDBY_STATE].startswith("woken ")
    assert body["spec"]["template"]["metadata"]["labels"] == {names.IN_SERVICE: "true"}
    [woken] = vms(owner, 0, spec=IN, annotations={names.STANDBY_STATE: f"woken {at(5)}"})
    [second] = plan(snapshot(owner, [woken], vmis=[vmi(woken, labels=HIDDEN)])).actions
    assert (second.resource, json.loads(second.body)["metadata"]["labels"]) == (VMIS, {names.IN_SERVICE: "true"})
