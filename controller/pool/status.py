"""The status of a pool (P7, P17) and its Events (P18) after a reconciliation.

The numbers of VMs come from the newest snapshot. A terminating VM still counts as a replica, and a claimed one does not
(P33). Nor does a standby (P32). The module `health` summarises the pool in one word, and finds the first problem.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import IN_SERVICE
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.standby import is_beside
from controller.kubevirt.vms import is_deleting, is_ready
from controller.pool.failures import VIRTUAL_MACHINE_FAILURE, is_failure, pool_failure, virtual_machine_failure
from controller.pool.health import health_of
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import Revisions, is_updated, oldest_in_use
from controller.pool.members.situation import Situation, situation_of
from controller.pool.members.snapshot import Snapshot
from controller.replicas.conditions import REPLICA_FAILURE, REPLICA_PAUSED, held_reason, transitions, true_condition
from controller.replicas.disruption_budget import budget_notices, without_budgets
from controller.replicas.kstatus import Waits, invalid, with_health
from controller.replicas.rollback import with_return
from controller.runtime.actions import (
    AlreadyThere,
    Cause,
    Create,
    Delete,
    Done,
    Notice,
    Outcome,
    Patch,
    Pause,
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
    Pause: ("SuccessfulUpdate", "", "pausing or unpausing"),
}
"""For each type of action: the Event's reason after a success, and the texts of the messages for success and failure.
"""


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome], waits: Waits = ()) -> PoolStatus:
    """Return the status after a reconciliation with these outcomes and the waits of its plan. The caller takes
    `snapshot` after the writes.
    """
    old = snapshot.owner.status or PoolStatus()
    members = snapshot.members.where(lambda each: not is_beside(each.vm, each.vmi, snapshot.now))
    situation = situation_of(snapshot)
    failure = pool_failure(snapshot, without_budgets(outcomes), valid=isinstance(situation, Situation))
    ours = {
        REPLICA_FAILURE: failure,
        VIRTUAL_MACHINE_FAILURE: virtual_machine_failure(snapshot),
        REPLICA_PAUSED: PAUSED if snapshot.owner.spec.paused else None,
    }
    ready = len(members.where(lambda each: is_ready(each.vm)))
    # An autoscaler needs a selector, so an invalid spec leaves the last valid selector in the status.
    status = replace(old, replicas=len(members), ready_replicas=ready, updated_replicas=0)
    if isinstance(situation, FieldError):
        return with_health(status, snapshot, invalid(situation.message), ours)
    revisions = situation.revisions_of_spec()  # VMs that have returned to an earlier revision are outdated
    status = replace(
        status,
        updated_replicas=len(members.where(lambda each: _counts_as_updated(revisions, each))),
        label_selector=_pod_selector(situation),
        current_revision=oldest_in_use(replace(snapshot, members=members), revisions),
        update_revision=revisions.current,
    )
    health = health_of(situation, failure, waits)
    health = with_return(health, situation.target, revisions.current, situation.revisions.current)
    return with_health(status, snapshot, health, ours, most_unavailable=situation.most_unavailable)


def transition_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    """Return the Events about a pause, a resume, a missed progress deadline, and a new failure (P17)."""
    paused = Notice(reason="SuccessfulPaused", message="Pool is paused", warning=False)
    resumed = Notice(reason="SuccessfulResume", message="Pool is unpaused", warning=False)
    return (*transitions(old, new, paused=paused, resumed=resumed), *_failure_notices(old, new))


def _failure_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    """Return one Event for each new failure condition, and for each failure condition with a new reason."""
    notices = []
    for type_ in (REPLICA_FAILURE, VIRTUAL_MACHINE_FAILURE):
        before, after = true_condition(old, type_), true_condition(new, type_)
        if after is not None and (before is None or before.reason != after.reason):
            reason = (after.reason or type_) if type_ == REPLICA_FAILURE else type_
            notices.append(Notice(reason=reason, message=after.message or ""))
    return tuple(notices)


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """Return the Events about writes to VMs and VMIs (P18)."""
    outcomes = tuple(outcomes)
    return (*filter(None, map(_notice_of, outcomes)), *budget_notices(outcomes))


def _notice_of(outcome: Outcome) -> Notice | None:
    action = outcome.action
    texts = _EVENT_TEXTS.get(type(action))
    if isinstance(action, Patch) and action.resource is VMIS and not isinstance(outcome, Done):
        # A successful new label on a VMI needs no Event. After a failure, the VMI stays outdated.
        texts = _EVENT_TEXTS[ThreeWayMerge]
    if texts is None or action.resource not in (VMS, VMIS):
        return None
    success, done, doing = texts
    subject = f"{action.resource.kind.replace('VirtualMachine', 'VM').replace('VMInstance', 'VMI')} {action.key}"
    match outcome:
        case Done(action=Pause()):
            return None  # the Events about standbys tell it
        case Done() | AlreadyThere():
            why = f": {action.why}" if isinstance(action, Delete | Restart | ThreeWayMerge) else ""
            # A delete in the foreground also deletes the disks of the VM. One-shot pools do so all day.
            warning = isinstance(action, Delete) and action.foreground and action.cause is not Cause.FINISHED
            return Notice(reason=success, message=f"{done} {subject}{why}", warning=warning)
        case SuccessorRefused(action=Delete(cause=cause, uid=uid)):
            message = f"{action.key.name} is not replaced: {outcome.message}"
            return Notice(reason=held_reason(cause), message=message, once=f"{uid} successor refused")
        case Postponed() if is_failure(outcome):
            return Notice(reason="FailedCreate", message=outcome.message, once=f"postponed {outcome.reason}")
        case Unserved(action=Pause()):
            message = f"{subject} waits, and so do other standby VMs: {outcome.message}"
            return Notice(reason="FailedUpdate", message=message, once=f"unserved: {outcome.action.subresource}")
        case Unserved():
            message = f"{subject} waits for a restart, and so do others of its run strategy: {outcome.message}"
            return Notice(reason="FailedUpdate", message=message, once=f"unserved: {outcome.action.why}")
        case Rejected() | Unknown() if is_failure(outcome):
            reason = success.replace("Successful", "Failed")
            return Notice(reason=reason, message=f"Error {doing} {subject}: {outcome.message}")
        case _:
            return None


def _pod_selector(situation: Situation) -> str:
    """Return the selector for autoscalers. It leaves out the Pods of standbys if they have the label (P32)."""
    intent = situation.intent
    leaves_out = intent.standbys and IN_SERVICE in intent.template.machine_labels
    return f"{intent.selector},{IN_SERVICE} notin (false)" if leaves_out else str(intent.selector)


def _counts_as_updated(revisions: Revisions, machine: Machine) -> bool:
    """A terminating VM does not count, nor one that is ready without a VMI: its status does not show its end yet."""
    has_outdated_status = is_ready(machine.vm) and machine.vmi is None
    return is_updated(revisions, machine) and not is_deleting(machine.vm) and not has_outdated_status
