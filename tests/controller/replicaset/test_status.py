"""The status of a set: counts (R3), conditions (R8, R10), word, problem and patch (R11), and notices (R12)."""

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true, time_text
from controller.kubevirt.annotations import PROGRESS_DEADLINE, PROTECT, ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.resources import VMIS
from controller.replicaset.health import WAITS_FOR_POD
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status, outcome_notices
from controller.runtime.actions import (
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Missing,
    Patch,
    Rejected,
    Skipped,
    Unknown,
)
from informers.errors import Conflict, Forbidden, ServerError, TransportError
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests import builders
from tests.builders import LABELS, NOW, REPLICASETS, replicaset, seconds_ago, snapshot, vmi
from tests.kstatus import kstatus_after
from tests.strategies import template_hash_of

KEY = ObjectKey("default", "testh8998")
CREATE = Create(resource=VMIS, key=KEY, body=b"{}", owner_uid="uid-of-the-set", why="")
DELETE = Delete(resource=VMIS, key=KEY, uid="uid", why="surplus: 4 VMIs are active, 3 are wanted")
ADOPT = Patch(resource=VMIS, key=KEY, body=b"{}", type=PatchType.MERGE, why="")
CONFIRM = Confirm(resource=REPLICASETS, key=KEY, uid="uid", why="")
QUOTA = Forbidden("exceeded quota: 3 of 3", code=403)
WEBHOOK = ServerError("failed calling webhook", code=500)


SINCE = seconds_ago(60)
TIMES = {"last_probe_time": SINCE, "last_transition_time": SINCE}
FAILURE = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message=str(QUOTA), **TIMES)


def status_of(owner, *vmis, outcomes=(), **circumstances) -> ReplicaSetStatus:
    return next_status(snapshot(owner, vmis, **circumstances), outcomes)


def failure_of(outcomes, *, previous=None) -> Condition | None:
    status = ReplicaSetStatus(conditions=(previous,) if previous else None)
    conditions = status_of(replicaset(status=status), outcomes=outcomes).conditions
    return next((condition for condition in conditions or () if condition.type == "ReplicaFailure"), None)


def test_r3_r11_only_active_members_are_counted():
    owner = replicaset(replicas=9, generation=4)
    status = status_of(
        owner,
        vmi("ready", owner=owner, labels={**LABELS, TEMPLATE_HASH: template_hash_of(owner)}),
        vmi("starting", owner=owner, phase="Pending", ready=None),
        vmi("older", owner=owner, labels={**LABELS, TEMPLATE_HASH: "older"}),
        vmi("terminating", owner=owner, deleting=True),
        vmi("failed", owner=owner, phase="Failed"),
        vmi("unknown", owner=owner, phase="Unknown"),
        vmi("orphan"),
    )
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (3, 2, 2)
    assert (status.observed_generation, status.label_selector) == (4, "myvmi=myvmi")


def test_r1_an_invalid_set_updates_observed_generation_and_keeps_the_last_valid_selector():
    owner = replicaset(match_labels={}, generation=5, status=ReplicaSetStatus(label_selector="myvmi=myvmi"))
    status = status_of(owner, vmi(owner=owner))
    assert (status.observed_generation, status.label_selector) == (5, "myvmi=myvmi")
    assert (status.replicas, status.updated_replicas) == (1, 0)


REASONS = {
    "r10 a refused create": ([Done(CREATE), Rejected(CREATE, QUOTA), Skipped(CREATE)], "FailedCreate"),
    "r10 a refused delete": ([Rejected(DELETE, Forbidden("no", code=403))], "FailedDelete"),
    "r10 a failing webhook, result of the write unknown": ([Unknown(CREATE, WEBHOOK)], "FailedCreate"),
    "r10 the first failure of several": ([Rejected(DELETE, QUOTA), Rejected(CREATE, QUOTA)], "FailedDelete"),
}


@pytest.mark.parametrize(("outcomes", "reason"), REASONS.values(), ids=REASONS)
def test_r10_a_failure_condition_has_the_message_of_the_server(outcomes, reason):
    failure = failure_of(outcomes)
    failed = next(outcome for outcome in outcomes if isinstance(outcome, Rejected | Unknown))
    assert (failure.reason, failure.message, failure.status) == (reason, failed.message, "True")
    assert failure.last_transition_time == failure.last_probe_time == NOW


CHANGED = Conflict("changed", code=409)
STAYS = {
    "an adoption failed before the creates": [Rejected(ADOPT, CHANGED), Skipped(CREATE)],
    "a user changed the VMI before its delete": [Rejected(DELETE, CHANGED)],
    "the set was not confirmed": [Rejected(CONFIRM, CHANGED), Skipped(CREATE)],
}


@pytest.mark.parametrize("outcomes", STAYS.values(), ids=STAYS)
def test_r10_an_inconclusive_pass_neither_sets_nor_removes_a_failure(outcomes):
    assert failure_of(outcomes, previous=FAILURE) == FAILURE
    assert failure_of(outcomes) is None


CREATED = ("SuccessfulCreate", "Created virtual machine: testh8998", False)
VMI, FORBIDDEN = "virtual machine testh8998", Forbidden("not yours", code=403)
EVENTS = {
    "created": (Done(CREATE), CREATED),
    "created by an earlier request": (AlreadyThere(CREATE), CREATED),
    "deleted": (Done(DELETE), ("SuccessfulDelete", f"Deleted VMI default/testh8998: {DELETE.why}", False)),
    "not created": (Rejected(CREATE, QUOTA), ("FailedCreate", f"Error creating {VMI}: exceeded quota: 3 of 3", True)),
    "not deleted": (Rejected(DELETE, FORBIDDEN), ("FailedDelete", f"Error deleting {VMI}: not yours", True)),
    "a failing webhook": (Unknown(CREATE, WEBHOOK), ("FailedCreate", f"Error creating {VMI}: {WEBHOOK}", True)),
    "already deleted": (Missing(DELETE), None),
    "not tried": (Skipped(CREATE), None),
    "answer lost": (Unknown(DELETE, TransportError("connection reset", sent=True)), None),
    "adopted": (Done(ADOPT), None),
    "confirmed": (Done(CONFIRM), None),
}


@pytest.mark.parametrize(("outcome", "expected"), EVENTS.values(), ids=EVENTS)
def test_r12_each_create_and_delete_has_its_notice(outcome, expected):
    found = [(notice.reason, notice.message, notice.warning) for notice in outcome_notices([outcome])]
    assert found == ([] if expected is None else [expected])


ROLLING = {"replicas": 1, "annotations": {ROLLING_UPDATE: "maxUnavailable=1"}}


def was(word):
    return {"status": ReplicaSetStatus(printable_status=word)}


def shown(name, owner, *, hashed=None, annotations=None, obstacle=None, **changes):
    """A VMI of the set, with the hash of its template. `obstacle` is the message of the condition `Synchronized`."""
    labels = {**LABELS, TEMPLATE_HASH: hashed or template_hash_of(owner)}
    conditions = [Condition(type="Synchronized", status="False", reason="ErrImagePull", message=obstacle)]
    more = {} if obstacle is None else {"conditions": conditions}
    return builders.vmi(name, owner=owner, labels=labels, annotations=annotations, **more, **changes)


STARTING = {"phase": "Scheduling", "ready": None, "age_s": 60}
UNREADY = {"ready": False, "ready_for_s": 60, "entered_s": {"Running": 300}}
BOOTING = {"ready": False, "ready_for_s": 59, "entered_s": {"Running": 60}, "age_s": 90}


OUTDATED = {"hashed": "old", "age_s": 9000}
WORDS = {
    "all VMIs are ready": ({"replicas": 1}, [{}], "Running", "Current"),
    "no VMI is wanted": ({"replicas": 0}, [], "Stopped", "Current"),
    "paused": ({"replicas": 2, "paused": True}, [{}], "Paused", "Current"),
    "invalid": ({"match_labels": {}}, [{"hashed": "old"}], "Degraded", "Failed"),
    "a VMI is missing": ({"replicas": 2}, [{}], "Scaling", "InProgress"),
    "a VMI is surplus": ({"replicas": 1}, [{}, {}], "Scaling", "InProgress"),
    "a surplus VMI is protected": ({"replicas": 0}, [{"annotations": {PROTECT: "true"}}], "Running", "Current"),
    "a VMI starts": ({"replicas": 1}, [STARTING], "Scaling", "InProgress"),
    "a VMI boots": ({"replicas": 1}, [BOOTING], "Scaling", "InProgress"),
    "a VMI of a set that was ready boots": ({"replicas": 1} | was("Running"), [BOOTING], "Degraded", "InProgress"),
    "a VMI lost its readiness": ({"replicas": 1}, [UNREADY], "Degraded", "InProgress"),
    "a VMI cannot start": ({"replicas": 1}, [{**STARTING, "obstacle": "no image"}], "Degraded", "InProgress"),
    "a VMI starts for too long": ({"replicas": 1}, [{**STARTING, "age_s": 600}], "Degraded", "Failed"),
    "an outdated VMI stays": ({"replicas": 1}, [{"hashed": "old"}], "Running", "Current"),
    "an outdated VMI is replaced": (ROLLING, [{"hashed": "old"}], "Updating", "InProgress"),
    "an outdated VMI that waits is replaced": (ROLLING, [STARTING | OUTDATED], "Updating", "InProgress"),
    "an update ends": (ROLLING | was("Updating"), [BOOTING], "Updating", "InProgress"),
}


@pytest.mark.parametrize(("fields", "members", "word", "expected"), WORDS.values(), ids=WORDS)
def test_r11_the_word_and_the_conditions_of_a_set(fields, members, word, expected):
    owner = replicaset(**fields)
    status = status_of(owner, *(shown(f"web-{number}", owner, **each) for number, each in enumerate(members)))
    assert (status.printable_status, kstatus_after(owner, status).status) == (word, expected)


def test_r11_the_message_names_the_vmi_and_its_problem():
    owner = replicaset(replicas=2)
    members = [shown(name, owner, **STARTING, obstacle="Back-off pulling image") for name in ("web-b", "web-a")]
    status = status_of(owner, *members)
    assert status.problem == "web-a: ImagePullBackOff, Back-off pulling image"
    assert find_true(status.conditions, "Reconciling").message == status.problem


def test_r11_a_change_of_a_problems_message_changes_no_status():
    owner = replicaset(replicas=1)
    first = status_of(owner, shown("web-a", owner, **STARTING, obstacle="try 7"))
    owner = replace(owner, status=first)
    assert status_of(owner, shown("web-a", owner, **STARTING, obstacle="try 8")) == first


def test_r11_the_set_is_reconciled_again_at_the_progress_deadline():
    owner = replicaset(replicas=1)
    assert plan(snapshot(owner, [shown("web-a", owner, **{**STARTING, "age_s": 560})])).requeue_after_s == 40
    assert plan(snapshot(owner, [shown("web-a", owner, **{**STARTING, "age_s": 600})])).requeue_after_s is None


def test_r11_a_vmi_that_stays_terminating_stalls_the_set_and_is_named_with_its_finalizers():
    owner = replicaset(replicas=1, annotations={PROGRESS_DEADLINE: "60"})
    for since, wakes in ((59, 1), (60, None)):
        stuck = shown("web-b", owner, deleting=True)
        meta = replace(stuck.metadata, deletion_timestamp=seconds_ago(since), finalizers=("example.com/a", "x/b"))
        members = [shown("web-a", owner), replace(stuck, metadata=meta)]
        assert plan(snapshot(owner, members)).requeue_after_s == wakes
        status = status_of(owner, *members)
        stalled = find_true(status.conditions, "Stalled")
        assert (stalled is None) == (wakes is not None)
    assert stalled.reason == "ProgressDeadlineExceeded"
    assert stalled.message == status.problem == "web-b: Terminating, held by finalizers: example.com/a, x/b"


def test_r11_a_set_that_wants_more_vmis_than_the_limit_is_stalled():
    owner = replicaset(replicas=2)
    limited = replace(snapshot(owner, [shown("web-a", owner)]), max_replicas=1)
    assert find_true(next_status(limited, (), plan(limited).waits).conditions, "Stalled").reason == "ReplicasLimited"


IO_ERROR = Condition(type="Paused", status="True", reason="PausedIOError", message="low-level IO error detected")
CAUSES = {
    "its disk fails": ({"ready": False, "conditions": [IO_ERROR]}, "PausedIOError, low-level IO error detected"),
    "its node does not answer": (
        {"ready": False, "reason": None, "ready_for_s": 60},
        f"NodeLost, its node node-1 does not answer since {time_text(seconds_ago(60))}; {WAITS_FOR_POD}",
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CAUSES.values(), ids=CAUSES)
def test_r11_the_problem_has_the_words_of_kubevirt_or_names_the_node(changes, expected):
    owner = replicaset(replicas=1)
    assert status_of(owner, shown("vm-0", owner, **changes)).problem == f"vm-0: {expected}"
