"""P1, P7, P17 and P18: the status of a pool, and the Events about outcomes and changes of the status."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import HEALED
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, VM_REQUESTS, VMIS, VMS
from controller.kubevirt.vms import BROKEN_STATES
from controller.pool.status import outcome_notices, transition_notices
from controller.runtime import actions
from controller.runtime.execute.deletes import Obstructed
from controller.runtime.reconciler import API_WARNING
from controller.runtime.status import status_patch
from informers.errors import Conflict, Forbidden, NotFound, ServerError, TransportError
from informers.http.warnings import collect
from informers.objects import PatchType
from tests.builders import NOW, seconds_ago
from tests.pool_builders import POOLS, pool, vm_spec, vmi, vms
from tests.pool_scenes import CREATE, KEY, QUOTA, changed_pool, status_of
from tests.pool_simulation import PoolSimulation

DELETE = actions.Delete(resource=VMS, key=KEY, uid="uid", why="surplus: 4 VMs exist, 3 are wanted")
MERGE = actions.ThreeWayMerge(
    resource=VMS, key=KEY, uid="uid", old=b"{}", new=b"{}", why="restart, from revision web-1 to web-2"
)
OLDER = "its template is older than the pool's template (revision 2)"
RESTART = actions.Delete(resource=VMIS, key=KEY, uid="uid", why=OLDER)
_OF_VMI = {"instance": VMIS, "instance_uid": "vmi", "requests": VM_REQUESTS, "subresource": "restart"}
REQUESTED_RESTART = actions.Restart(resource=VMS, key=KEY, uid="uid", why=RESTART.why, **_OF_VMI)
RELABEL = actions.Patch(resource=VMIS, key=KEY, body=b"{}", type=PatchType.MERGE, why="")
REMOVE_FINALIZER = actions.Patch(resource=VMS, key=KEY, body=b"{}", type=PatchType.JSON, why="")
NOTE = actions.Patch(resource=POOLS, key=KEY, body=b"{}", type=PatchType.MERGE, why="", is_note=True)
REMOVE_OWNER = actions.RemoveOwnerReference(resource=DATA_VOLUMES, key=KEY, owner_uid="uid", why="")
CREATE_REVISION = actions.Create(resource=CONTROLLER_REVISIONS, key=KEY, body=b"{}", owner_uid="uid", why="")
DELETE_REVISION = actions.Delete(resource=CONTROLLER_REVISIONS, key=KEY, uid="uid", why="")
LOST = TransportError("connection reset", sent=True)
WEBHOOK = ServerError("failed calling webhook", code=500)
FAILURE = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedScaleOut",
    "message": "error during scale out: exceeded quota: 3 of 3",
    "lastProbeTime": seconds_ago(60),
    "lastTransitionTime": seconds_ago(60),
}
PAUSED = FAILURE | {"type": "ReplicaPaused", "reason": "SuccessfulPaused", "message": "Pool controller is paused"}
FOREIGN = {"type": "Audited", "status": "False", "reason": "Never", "lastTransitionTime": seconds_ago(9000)}


def condition(document) -> Condition:
    return msgspec.convert(document, Condition)


def failure_of(outcomes, *, before=None, settled=True, **changes) -> Condition | None:
    """The condition `ReplicaFailure` after these outcomes. The argument `before` is the earlier condition."""
    owner = pool(status={"conditions": [before] if before else None}, **changes)
    conditions = status_of(owner, outcomes=outcomes, settled=settled).conditions
    return next((each for each in conditions or () if each.type == "ReplicaFailure"), None)


def test_p7_only_members_count_and_terminating_members_count_too():
    owner = pool(replicas=9, generation=4)
    foreign = vms(pool(uid="another"), 7)
    machines = (*vms(owner, 0), *vms(owner, 1, ready=False), *vms(owner, 2, deleting=True), *vms(owner, 3, ready=None))
    status = status_of(owner, *machines, *foreign)
    assert (status.replicas, status.ready_replicas) == (4, 2)
    assert (status.observed_generation, status.label_selector) == (4, "app=web")


def test_a_vm_counts_as_updated_if_it_and_its_vmi_have_the_newest_revision():
    owner, kept = changed_pool(replicas=4)
    machines = (*vms(owner, 0), *vms(owner, 1, 2, revision="web-2"), *vms(owner, 3, ready=False, revision="web-2"))
    # A deleted VM does not count. A ready VM without a VMI was restarted, and does not count before its VMI runs.
    gone = (*vms(owner, 4, revision="web-2", deleting=True), *vms(owner, 5, revision="web-2"))
    running = [vmi(machines[0]), vmi(machines[1], revision="web-1"), vmi(machines[2]), vmi(gone[0])]
    status = status_of(owner, *machines, *gone, vmis=running, revisions=kept)
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (6, 5, 2)


def test_p1_the_status_of_an_invalid_pool_keeps_selector_and_revisions():
    """An autoscaler reads the selector in the status. While the spec is invalid, the autoscaler works with the last
    valid selector.
    """
    last = {"labelSelector": "app=web", "currentRevision": "web-1", "updateRevision": "web-2", "replicas": 7}
    owner = pool(selector={}, generation=5, status=last)
    status = status_of(owner, *vms(owner, 0))
    assert (status.observed_generation, status.label_selector) == (5, "app=web")
    assert (status.current_revision, status.update_revision) == ("web-1", "web-2")
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (1, 1, 0)
    assert status.printable_status == "Degraded"


def test_p17_the_paused_condition_gets_a_date_and_keeps_it_until_a_resume():
    paused, *others = status_of(pool(paused=True)).conditions
    assert paused == replace(condition(PAUSED), last_probe_time=NOW, last_transition_time=NOW)
    available, progressing = [(each.type, each.status, each.reason) for each in others]
    assert available == ("Available", "False", "MinimumReplicasUnavailable")
    assert progressing == ("Progressing", "Unknown", "Paused")
    assert status_of(pool(paused=True, status={"conditions": [PAUSED]})).conditions[0] == condition(PAUSED)
    left = status_of(pool(replicas=0, status={"conditions": [PAUSED]})).conditions
    assert [each.type for each in left] == ["Available", "Progressing"]


def test_p17_foreign_conditions_stay_and_the_controller_sets_two_types():
    owner = pool(paused=True, status={"conditions": [FOREIGN, FAILURE]})
    conditions = status_of(owner, outcomes=[actions.Rejected(CREATE, QUOTA)]).conditions
    assert conditions[0] == condition(FOREIGN)
    assert [each.type for each in conditions[1:]] == ["ReplicaFailure", "ReplicaPaused", "Available", "Progressing"]


ABSENT = NotFound("the server could not find the requested resource", code=404)
OUT, IN, UPDATE = "during scale out", "during scale in", "FailedUpdate"
REASONS = [
    ([actions.Done(CREATE), actions.Rejected(CREATE, QUOTA), actions.Skipped(CREATE)], "FailedScaleOut", OUT),
    ([actions.Unknown(CREATE, WEBHOOK)], "FailedScaleOut", OUT),
    ([actions.Rejected(CREATE_REVISION, QUOTA), actions.Skipped(CREATE)], "FailedScaleOut", OUT),
    ([actions.Rejected(DELETE, QUOTA)], "FailedScaleIn", IN),
    ([actions.Rejected(DELETE, QUOTA), actions.Rejected(CREATE, WEBHOOK)], "FailedScaleIn", IN),
    ([actions.Rejected(REMOVE_OWNER, QUOTA), actions.Skipped(REMOVE_FINALIZER)], "FailedScaleIn", IN),
    ([actions.Rejected(MERGE, QUOTA)], UPDATE, "during VM update"),
    ([actions.Rejected(CREATE_REVISION, QUOTA), actions.Skipped(MERGE)], UPDATE, "during VM update"),
    ([actions.Rejected(RESTART, QUOTA)], UPDATE, "during VMI update"),
    ([actions.Rejected(RELABEL, QUOTA)], UPDATE, "during VMI update"),
    ([actions.Unserved(REQUESTED_RESTART, ABSENT)], UPDATE, "during VMI update"),
    ([actions.Rejected(DELETE_REVISION, QUOTA)], "FailedRevisionPruning", "while pruning vmpool revisions"),
]


@pytest.mark.parametrize(("outcomes", "reason", "doing"), REASONS)
def test_p17_a_failed_write_sets_the_condition_with_reason_and_message(outcomes, reason, doing):
    failure = failure_of(outcomes)
    failed = next(each for each in outcomes if isinstance(each, actions.Rejected | actions.Unknown | actions.Unserved))
    assert (failure.reason, failure.message, failure.status) == (reason, f"error {doing}: {failed.message}", "True")
    assert failure.last_transition_time == failure.last_probe_time == NOW


def test_p17_a_repeated_failure_keeps_its_date_and_gets_the_new_message():
    failure = failure_of([actions.Rejected(CREATE, Forbidden("exceeded quota: 4 of 4", code=403))], before=FAILURE)
    assert failure == replace(condition(FAILURE), message="error during scale out: exceeded quota: 4 of 4")


SUCCESSFUL = {
    "all done": [actions.Done(CREATE), actions.AlreadyThere(CREATE), actions.Done(DELETE), actions.Done(MERGE)],
    "the object is gone already": [actions.Missing(DELETE), actions.Missing(REMOVE_FINALIZER)],
    "no writes": [],
}


@pytest.mark.parametrize("outcomes", SUCCESSFUL.values(), ids=SUCCESSFUL)
def test_p17_a_successful_pass_removes_the_failure(outcomes):
    assert failure_of(outcomes, before=FAILURE) is None


WITHOUT_SUCCESS = {
    "unsettled": ([], {"settled": False}),
    "paused": ([], {"paused": True}),
    "being deleted": ([], {"deleting": True}),
    "invalid": ([], {"selector": {}}),
    "skipped": ([actions.Done(CREATE), actions.Skipped(CREATE)], {}),
    "postponed": ([actions.Postponed(CREATE, "a disk")], {}),
    "a lost connection": ([actions.Unknown(CREATE, LOST)], {}),
    "a user changed the VM before its delete": ([actions.Rejected(DELETE, Conflict("changed", code=409))], {}),
    "a VM became busy before its restart": ([actions.Rejected(REQUESTED_RESTART, Obstructed("busy", code=409))], {}),
    "a user paused the pool before a patch": ([actions.Rejected(NOTE, Conflict("changed", code=409))], {}),
}


@pytest.mark.parametrize(("outcomes", "changes"), WITHOUT_SUCCESS.values(), ids=WITHOUT_SUCCESS)
def test_p17_a_pass_without_a_successful_write_keeps_the_failure_and_sets_none(outcomes, changes):
    assert failure_of(outcomes, before=FAILURE, **changes) == condition(FAILURE)
    assert failure_of(outcomes, **changes) is None


HEALING = {"autohealing": {"startUpFailureThreshold": 3}}
HEALED_LATELY, HEALED_LONG_AGO = (
    {"annotations": {HEALED: json.dumps({"0": ["another", 1, seconds_ago(each).isoformat()]})}} for each in (60, 600)
)
BROKEN = {"ready": False, "printable": "ErrImagePull"}
STARTING = {"ready": False, "printable": "Starting", "ready_for_s": 60}

PRINTABLE = {
    "all VMs exist and are ready": ({}, [{}, {}, {}], "Running"),
    "no VM is wanted": ({"replicas": 0}, [], "Stopped"),
    "users stopped all VMs": ({}, [{"spec": vm_spec(run_strategy="Halted"), "ready": False}] * 3, "Stopped"),
    "users stopped one VM": ({}, [{}, {}, {"spec": vm_spec(run_strategy="Halted"), "ready": False}], "Running"),
    "a VM is missing": ({}, [{}, {}], "Scaling"),
    "a VM starts": ({}, [{}, {}, STARTING], "Scaling"),
    "a VM has no status yet": ({}, [{}, {}, {"ready": None, "printable": None}], "Scaling"),
    "a VM restarts": ({}, [{}, {}, {**STARTING, "printable": "Stopped"}], "Scaling"),
    "a VM restarts after all were ready": ({"status": {"printableStatus": "Running"}}, [{}, {}, STARTING], "Degraded"),
    "its problem is over": ({"status": {"printableStatus": "Degraded"}}, [{}, {}, STARTING], "Degraded"),
    "a VM is terminating": ({}, [{}, {}, {"deleting": True}], "Scaling"),
    "a VM is surplus": ({"replicas": 2}, [{}, {}, {}], "Scaling"),
    "paused": ({"paused": True}, [{}], "Paused"),
    "paused and invalid": ({"paused": True, "selector": {}}, [{}], "Paused"),
    "invalid": ({"selector": {}}, [{}, {}, {}], "Degraded"),
    "a VM runs and is not ready": ({}, [{}, {}, {"ready": False}], "Degraded"),
    "a VM starts and another VM is broken": ({}, [{}, STARTING, BROKEN], "Degraded"),
    "a healed VM starts": (HEALING | HEALED_LATELY, [STARTING, {}, {}], "Healing"),
    "a healed VM is absent": (HEALING | HEALED_LATELY, [], "Healing"),
    "a healed VM is ready": (HEALING | HEALED_LATELY, [{}, {}, {}], "Running"),
    "a healed VM is overdue": (HEALING | HEALED_LONG_AGO, [BROKEN, {}, {}], "Degraded"),
    **{each: ({}, [{}, {}, {**BROKEN, "printable": each}], "Degraded") for each in sorted(BROKEN_STATES)},
    "autohealing was removed": (HEALED_LATELY, [STARTING, {}, {}], "Scaling"),
}


@pytest.mark.parametrize(("fields", "machines", "expected"), PRINTABLE.values(), ids=PRINTABLE)
def test_the_printable_status(fields, machines, expected):
    owner = pool(**fields)
    members = [each for number, changes in enumerate(machines) for each in vms(owner, number, **changes)]
    if expected == "Healing" and not members:
        members = list(vms(owner, 1, 2))
    assert status_of(owner, *members).printable_status == expected
    assert status_of(pool(), outcomes=[actions.Rejected(CREATE, QUOTA)]).printable_status == "Degraded"


def test_a_warning_of_the_api_server_about_new_vms_is_one_event(monkeypatch: pytest.MonkeyPatch):
    simulation = PoolSimulation(pool(replicas=3))
    create = simulation.server.create

    async def create_with_warning(resource: Any, *args: Any, **options: Any) -> bytes:
        collect(['299 - "unknown field \\"spec.x\\""'] if resource is VMS else [])
        return await create(resource, *args, **options)

    monkeypatch.setattr(simulation.server, "create", create_with_warning)
    simulation.come_to_rest()
    told = [each for each in simulation.process.recorder.published if each.reason == API_WARNING]
    assert {each.message for each in told} == {'The API server warns about a write: unknown field "spec.x"'}
    assert {each.once for each in told} == {'unknown field "spec.x"'}


@pytest.mark.parametrize("field", msgspec.structs.fields(PoolStatus), ids=lambda field: field.name)
def test_p17_a_change_of_any_field_is_written(field):
    value = (condition(FOREIGN),) if field.name == "conditions" else 7 if "int" in str(field.type) else "else"
    status = replace(PoolStatus(), **{field.name: value})
    assert json.loads(status_patch(pool(), status))["status"][field.encode_name] is not None
    assert status_patch(pool(status=msgspec.to_builtins(status)), status) is None


NAME = "default/vm-pool-cirros-0"
EVENTS = [
    (actions.Done(CREATE), "SuccessfulCreate", f"Created VM {NAME}"),
    (actions.AlreadyThere(CREATE), "SuccessfulCreate", f"Created VM {NAME}"),
    (actions.Done(DELETE), "SuccessfulDelete", f"Deleted VM {NAME}: surplus: 4 VMs exist, 3 are wanted"),
    (actions.Done(MERGE), "SuccessfulUpdate", f"Updated VM {NAME}: restart, from revision web-1 to web-2"),
    (actions.Done(RESTART), "SuccessfulDelete", f"Deleted VMI {NAME}: {OLDER}"),
    (actions.Done(REQUESTED_RESTART), "SuccessfulUpdate", f"Restarted VM {NAME}: {OLDER}"),
    (actions.Rejected(CREATE, QUOTA), "FailedCreate", f"Error creating VM {NAME}: exceeded quota: 3 of 3"),
    (actions.Rejected(DELETE, QUOTA), "FailedDelete", f"Error deleting VM {NAME}: exceeded quota: 3 of 3"),
    (actions.Rejected(MERGE, QUOTA), "FailedUpdate", f"Error updating VM {NAME}: exceeded quota: 3 of 3"),
    (actions.Rejected(RELABEL, QUOTA), "FailedUpdate", f"Error updating VMI {NAME}: exceeded quota: 3 of 3"),
    (actions.Rejected(REQUESTED_RESTART, QUOTA), "FailedUpdate", f"Error restarting VM {NAME}: exceeded quota: 3 of 3"),
    (actions.Unknown(CREATE, WEBHOOK), "FailedCreate", f"Error creating VM {NAME}: failed calling webhook"),
]
UNTOLD = map(actions.Done, (REMOVE_FINALIZER, RELABEL, CREATE_REVISION, DELETE_REVISION, REMOVE_OWNER, NOTE))
NOT_DONE = actions.Unknown(CREATE, LOST), actions.Missing(DELETE), actions.Skipped(CREATE)
WITHOUT_EVENT = (*NOT_DONE, actions.Postponed(CREATE, "a disk"), *UNTOLD)


@pytest.mark.parametrize(("outcome", "reason", "message"), [*EVENTS, *((each, "", "") for each in WITHOUT_EVENT)])
def test_p18_each_outcome_gives_its_event_or_none(outcome, reason, message):
    found = [(each.reason, each.message, each.warning) for each in outcome_notices([outcome])]
    assert found == ([(reason, message, reason.startswith("Failed"))] if reason else [])


def transition(old, new):
    def status(*conditions):
        return PoolStatus(conditions=tuple(map(condition, conditions)) or None)

    before = None if old is None else status(*old)
    return [(each.reason, each.message, each.warning) for each in transition_notices(before, status(*new))]


PAUSE, RESUME = ("SuccessfulPaused", "Pool is paused", False), ("SuccessfulResume", "Pool is unpaused", False)
FAILED = ("FailedScaleOut", "error during scale out: exceeded quota: 3 of 3", True)
STALLED = FAILURE | {"type": "Stalled", "reason": "ProgressDeadlineExceeded", "message": "web-0 is Terminating"}
LATE = ("ProgressDeadlineExceeded", "web-0 is Terminating", True)
TRANSITIONS = {
    "paused": ([], [PAUSED], [PAUSE]),
    "paused from the start": (None, [PAUSED], [PAUSE]),
    "resumed": ([PAUSED], [], [RESUME]),
    "still paused": ([PAUSED], [PAUSED], []),
    "the first status": (None, [], []),
    "paused with status False before": ([{**PAUSED, "status": "False"}], [PAUSED], [PAUSE]),
    "a failure": ([], [FAILURE], [FAILED]),
    "a failure from the start": (None, [FAILURE], [FAILED]),
    "the same failure with another message": ([{**FAILURE, "message": "4 of 4"}], [FAILURE], []),
    "a failure with another reason": ([{**FAILURE, "reason": "FailedUpdate"}], [FAILURE], [FAILED]),
    "the end of a failure": ([FAILURE], [], []),
    "a failure and a pause": ([], [FAILURE, PAUSED], [PAUSE, FAILED]),
    "a missed deadline": ([], [STALLED], [LATE]),
    "the same deadline with another message": ([{**STALLED, "message": "web-1"}], [STALLED], []),
    "the deadline after a stall of another reason": ([{**STALLED, "reason": "NamesTaken"}], [STALLED], [LATE]),
    "a stall of another reason": ([], [{**STALLED, "reason": "NamesTaken"}], []),
    "the end of a missed deadline": ([STALLED], [], []),
}


@pytest.mark.parametrize(("old", "new", "expected"), TRANSITIONS.values(), ids=TRANSITIONS)
def test_p17_a_new_failure_or_stall_of_the_pool_gives_one_event(old, new, expected):
    assert transition(old, new) == expected
