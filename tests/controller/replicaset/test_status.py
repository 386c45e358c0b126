"""The status of a set: counts (R3), conditions (R8, R10), the patch (R11) and notices (R12)."""

import pytest

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.resources import VMIS
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
from tests.builders import LABELS, NOW, REPLICASETS, replicaset, seconds_ago, snapshot, vmi
from tests.strategies import template_hash_of

KEY = ObjectKey("default", "testh8998")
CREATE = Create(resource=VMIS, key=KEY, body=b"{}", owner_uid="uid-of-the-set", why="")
DELETE = Delete(resource=VMIS, key=KEY, uid="uid", why="surplus: 4 VMIs are active, 3 are wanted")
ADOPT = Patch(resource=VMIS, key=KEY, body=b"{}", type=PatchType.MERGE, why="")
CONFIRM = Confirm(resource=REPLICASETS, key=KEY, uid="uid", why="")
QUOTA = Forbidden("exceeded quota: 3 of 3", code=403)
LOST = TransportError("connection reset", sent=True)
WEBHOOK = ServerError("failed calling webhook", code=500)


SINCE = seconds_ago(60)
FAILURE = Condition(
    type="ReplicaFailure",
    status="True",
    reason="FailedCreate",
    message="exceeded quota: 3 of 3",
    last_probe_time=SINCE,
    last_transition_time=SINCE,
)


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


EVENTS = {
    "created": (Done(CREATE), ("SuccessfulCreate", "Created virtual machine: testh8998", False)),
    "created by an earlier request": (
        AlreadyThere(CREATE),
        ("SuccessfulCreate", "Created virtual machine: testh8998", False),
    ),
    "deleted": (Done(DELETE), ("SuccessfulDelete", f"Deleted VMI default/testh8998: {DELETE.why}", False)),
    "not created": (
        Rejected(CREATE, QUOTA),
        ("FailedCreate", "Error creating virtual machine testh8998: exceeded quota: 3 of 3", True),
    ),
    "not deleted": (
        Rejected(DELETE, Forbidden("not yours", code=403)),
        ("FailedDelete", "Error deleting virtual machine testh8998: not yours", True),
    ),
    "a failing webhook": (
        Unknown(CREATE, WEBHOOK),
        ("FailedCreate", "Error creating virtual machine testh8998: failed calling webhook", True),
    ),
    "already deleted": (Missing(DELETE), None),
    "not tried": (Skipped(CREATE), None),
    "answer lost": (Unknown(DELETE, LOST), None),
    "adopted": (Done(ADOPT), None),
    "confirmed": (Done(CONFIRM), None),
}


@pytest.mark.parametrize(("outcome", "expected"), EVENTS.values(), ids=EVENTS)
def test_r12_each_create_and_delete_has_its_notice(outcome, expected):
    found = [(notice.reason, notice.message, notice.warning) for notice in outcome_notices([outcome])]
    assert found == ([] if expected is None else [expected])
