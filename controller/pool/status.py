"""The status of a pool (P7, P17) and its Events (P18) after a reconciliation.

The numbers of VMs come from the newest snapshot. A terminating VM still counts as a replica. The module `state`
summarises the pool in one word, and finds the first problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from controller.apimachinery.conditions import Condition, find_true, merge_conditions
from controller.apimachinery.field_error import FieldError
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vms import is_deleting, is_ready
from controller.pool.failures import (
    VIRTUAL_MACHINE_FAILURE,
    is_failure,
    replica_failure,
    virtual_machine_failure,
)
from controller.pool.health import health_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import Revisions, oldest_in_use, read_revisions
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.steps import is_updated
from controller.pool.spec.intent import Intent, parse_intent
from controller.replicas.conditions import REPLICA_FAILURE, REPLICA_PAUSED
from controller.replicas.kstatus import Health, Word, invalid, progress_conditions
from controller.replicas.wrong_annotations import problem_of
from controller.runtime.actions import (
    AlreadyThere,
    Cause,
    Create,
    Delete,
    Done,
    Notice,
    Outcome,
    Patch,
    Postponed,
    Rejected,
    Restart,
    SuccessorRefused,
    ThreeWayMerge,
    Unknown,
    Unserved,
)

PAUSED: Final = Condition(
    type=REPLICA_PAUSED, status="True", reason="SuccessfulPaused", message="Pool controller is paused"
)

_EVENT_TEXTS: Final[Mapping[type, tuple[str, str, str]]] = {
    Create: ("SuccessfulCreate", "Created", "creating"),
    Delete: ("SuccessfulDelete", "Deleted", "deleting"),
    ThreeWayMerge: ("SuccessfulUpdate", "Updated", "updating"),
    Restart: ("SuccessfulUpdate", "Restarted", "restarting"),
}
"""For each type of action: the Event's reason after a success, and the texts of the messages for success and failure.
"""


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> PoolStatus:
    """Return the status after a reconciliation with these outcomes. The caller takes `snapshot` after the writes."""
    owner = snapshot.owner
    old = owner.status or PoolStatus()
    parsed = parse_intent(owner)
    intent = parsed if isinstance(parsed, Intent) else None
    revisions = read_revisions(snapshot, intent.template) if intent else None
    terminating = owner.metadata.deletion_timestamp is not None
    may_write = snapshot.settled and intent is not None and not owner.spec.paused and not terminating
    failure = replica_failure(
        find_true(old.conditions, REPLICA_FAILURE), tuple(outcomes), may_write=may_write, refused=bool(snapshot.refused)
    )
    health = _health(snapshot, parsed, revisions, failure)
    updated = len(_updated(snapshot, revisions)) if revisions else 0
    ours = {
        REPLICA_FAILURE: failure,
        VIRTUAL_MACHINE_FAILURE: virtual_machine_failure(snapshot),
        REPLICA_PAUSED: PAUSED if owner.spec.paused else None,
        **progress_conditions(health),
    }
    return PoolStatus(
        replicas=len(snapshot.members),
        ready_replicas=len(snapshot.members.where(lambda each: is_ready(each.vm))),
        updated_replicas=updated,
        observed_generation=owner.metadata.generation,
        # An autoscaler needs a selector, so an invalid spec leaves the last valid selector in the status.
        label_selector=str(intent.selector) if intent else old.label_selector,
        current_revision=oldest_in_use(snapshot, revisions) if revisions else old.current_revision,
        update_revision=revisions.current if revisions else old.update_revision,
        printable_status=str(health.word),
        problem=health.problem or problem_of(snapshot.wrong_annotations) or None,
        conditions=merge_conditions(old.conditions, ours, snapshot.now),
    )


def transition_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    """Return the Events about a pause, a resume, and a new failure (P17).

    The caller sends the Events after the status has been written.
    """
    return (*_pause_notices(old, new), *_failure_notices(old, new))


def _pause_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    was, now = (_true_condition(status, REPLICA_PAUSED) is not None for status in (old, new))
    if now and not was:
        return (Notice(reason="SuccessfulPaused", message="Pool is paused", warning=False),)
    if was and not now:
        return (Notice(reason="SuccessfulResume", message="Pool is unpaused", warning=False),)
    return ()


def _failure_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    """Return one Event for each new failure condition, and for each failure condition with a new reason."""
    notices = []
    for type_ in (REPLICA_FAILURE, VIRTUAL_MACHINE_FAILURE):
        before, after = _true_condition(old, type_), _true_condition(new, type_)
        if after is not None and (before is None or before.reason != after.reason):
            reason = (after.reason or type_) if type_ == REPLICA_FAILURE else type_
            notices.append(Notice(reason=reason, message=after.message or ""))
    return tuple(notices)


def _true_condition(status: PoolStatus | None, type_: str) -> Condition | None:
    return find_true(status.conditions if status is not None else None, type_)


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """Return the Events about writes to VMs and VMIs (P18).

    An Event about a deletion contains the reason of the deletion.
    """
    return tuple(notice for outcome in outcomes if (notice := _notice_of(outcome)) is not None)


def _notice_of(outcome: Outcome) -> Notice | None:
    action = outcome.action
    if action.resource is not VMS and action.resource is not VMIS:
        return None
    texts = _EVENT_TEXTS.get(type(action))
    if isinstance(action, Patch) and action.resource is VMIS and not isinstance(outcome, Done):
        # A successful new label on a VMI needs no Event. After a failure, the VMI stays outdated.
        texts = _EVENT_TEXTS[ThreeWayMerge]
    if texts is None:
        return None
    success, done, doing = texts
    subject = f"{action.resource.kind.replace('VirtualMachine', 'VM').replace('VMInstance', 'VMI')} {action.key}"
    match outcome:
        case Done() | AlreadyThere():
            why = f": {action.why}" if isinstance(action, Delete | Restart) else ""
            # A delete in the foreground also deletes the disks of the VM.
            warning = isinstance(action, Delete) and action.foreground
            return Notice(reason=success, message=f"{done} {subject}{why}", warning=warning)
        case SuccessorRefused(action=Delete(cause=cause, uid=uid)):
            held = "HealingHeld" if cause is Cause.HEALING else "UpdateHeld"
            message = f"{action.key.name} is not replaced: {outcome.message}"
            return Notice(reason=held, message=message, once=f"{uid} successor refused")
        case Postponed() if is_failure(outcome):
            return Notice(reason="FailedCreate", message=outcome.message, once=f"postponed {outcome.reason}")
        case Unserved():
            message = f"{subject} waits for a restart, and so do others of its run strategy: {outcome.message}"
            return Notice(reason="FailedUpdate", message=message, once=f"unserved: {outcome.action.why}")
        case Rejected() | Unknown() if is_failure(outcome):
            reason = success.replace("Successful", "Failed")
            return Notice(reason=reason, message=f"Error {doing} {subject}: {outcome.message}")
        case _:
            return None


def _health(
    snapshot: Snapshot, parsed: Intent | FieldError, revisions: Revisions | None, failure: Condition | None
) -> Health:
    if snapshot.owner.spec.paused:
        return Health(Word.PAUSED)
    if isinstance(parsed, FieldError) or revisions is None:
        return invalid(parsed.message if isinstance(parsed, FieldError) else "")
    return health_of(snapshot, parsed, revisions, failure)


def _updated(snapshot: Snapshot, revisions: Revisions) -> Machines:
    return snapshot.members.where(lambda each: _counts_as_updated(revisions, each))


def _counts_as_updated(revisions: Revisions, machine: Machine) -> bool:
    """Return True if the VM counts in `updatedReplicas`.

    A terminating VM does not count. A VM that is Ready without a VMI does not count either. Its VMI was deleted, but
    its status does not show this yet.
    """
    has_outdated_status = is_ready(machine.vm) and machine.vmi is None
    return is_updated(revisions, machine) and not is_deleting(machine.vm) and not has_outdated_status
