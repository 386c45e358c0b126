"""The status of a replica set after a reconciliation (R10, R11), and the notices for its Events (R8, R12).

The counts come from the newest snapshot. The status contains the conditions of vmherd only while they are true. The
transition time of a condition is the time at which the condition was added. Conditions of other types belong to other
controllers and are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from controller.apimachinery.conditions import Condition, find_true, merge_conditions
from controller.apimachinery.field_error import FieldError
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vmis import is_active, is_deleting, is_ready, is_spent
from controller.replicas.conditions import PAUSED, REPLICA_BACK_OFF, REPLICA_FAILURE, REPLICA_PAUSED, without_failures
from controller.replicas.kstatus import Health, Word, invalid, progress_conditions
from controller.replicas.replica_limit import limited
from controller.replicas.wrong_annotations import problem_of
from controller.replicaset.back_off import BackOff, choose_creates, condition_of, find_back_off
from controller.replicaset.health import health_of, revision_in_use
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import is_updated
from controller.replicaset.traits import VMIs
from controller.runtime.actions import (
    AlreadyThere,
    Cause,
    Create,
    Delete,
    Done,
    Notice,
    Outcome,
    Patch,
    Rejected,
    SuccessorRefused,
    Unknown,
)
from informers.errors import Conflict, StatusError

_VERBS: Final[Mapping[type, str]] = {Create: "creating", Delete: "deleting"}


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> ReplicaSetStatus:
    """Return the status after a reconciliation with these outcomes. `snapshot` was taken after the writes.

    `observedGeneration` is the generation of the set in the snapshot. This is the generation that the plan observed
    (see `runtime.status.recounted`).
    """
    owner = snapshot.owner
    old = owner.status or ReplicaSetStatus()
    parsed = parse_intent(owner)
    intent = parsed if isinstance(parsed, Intent) else None
    active = snapshot.members.where(is_active)
    may_write = (
        snapshot.settled and intent is not None and not owner.spec.paused and owner.metadata.deletion_timestamp is None
    )
    # A set without its newest revision runs all its VMIs, so the write of a revision is no failure of the set.
    writes = tuple(outcome for outcome in outcomes if outcome.action.resource is not CONTROLLER_REVISIONS)
    failure = _failure(find_true(old.conditions, REPLICA_FAILURE), writes, may_write=may_write)
    back_off = _find_back_off(snapshot, intent, active) if intent is not None else BackOff()
    replacing = _back_off_condition(snapshot, intent, active, back_off)
    health = _health(snapshot, parsed, active, back_off, failure=failure, replacing=replacing)
    ours = {
        REPLICA_FAILURE: failure,
        REPLICA_PAUSED: PAUSED if owner.spec.paused else None,
        REPLICA_BACK_OFF: replacing,
        **progress_conditions(health),
    }
    return ReplicaSetStatus(
        replicas=len(active),
        ready_replicas=len(active.where(is_ready)),
        # If the spec is invalid, no VMI counts as updated. The status keeps the last valid selector, because
        # autoscalers read the selector.
        updated_replicas=len(_updated(active, intent)) if intent else 0,
        observed_generation=owner.metadata.generation,
        label_selector=str(intent.selector) if intent else old.label_selector,
        current_revision=revision_in_use(active, intent.template) if intent else old.current_revision,
        update_revision=intent.template.hash if intent else old.update_revision,
        printable_status=str(health.word),
        problem=health.problem or problem_of(snapshot.wrong_annotations) or None,
        conditions=merge_conditions(old.conditions, ours, snapshot.now),
    )


def _health(
    snapshot: Snapshot,
    parsed: Intent | FieldError,
    active: VMIs,
    back_off: BackOff,
    *,
    failure: Condition | None,
    replacing: Condition | None,
) -> Health:
    if snapshot.owner.spec.paused:
        return Health(Word.PAUSED)
    if isinstance(parsed, FieldError):
        return invalid(parsed.message)
    return health_of(snapshot, parsed, active, back_off, failure=failure, replacing=replacing)


def transition_notices(old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
    """Return a notice if the set was paused or resumed between the status `old` and the status `new` (R8).

    The caller must publish the notice only after the new status has been written.
    """
    was_paused, is_paused = (
        find_true(status.conditions if status else None, REPLICA_PAUSED) is not None for status in (old, new)
    )
    if is_paused and not was_paused:
        return (Notice(reason="SuccessfulPaused", message="Paused", warning=False),)
    if was_paused and not is_paused:
        return (Notice(reason="SuccessfulResumed", message="Resumed", warning=False),)
    return ()


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """Return the notices about created, deleted and replaced VMIs (R12), and about revisions that could not be written
    (R17).

    The reasons and messages about VMIs are similar to KubeVirt's.
    """
    return tuple(notice for outcome in outcomes for notice in (_unready_notice(outcome), _notice_of(outcome)) if notice)


def _unready_notice(outcome: Outcome) -> Notice | None:
    match outcome:
        case Done(action=Delete(cause=Cause.HEALING, key=key, why=why)):
            return Notice(reason="UnreadyReplaced", message=f"virtual machine {key.name} is replaced: it is {why}")
        case _:
            return None


def _notice_of(outcome: Outcome) -> Notice | None:
    name = outcome.action.key.name
    noun = "virtual machine"
    if outcome.action.resource is CONTROLLER_REVISIONS:
        if not isinstance(outcome, Rejected | Unknown):
            return None
        noun = "revision"
    match outcome:
        case SuccessorRefused(action=Delete(cause=cause, uid=uid)):
            return Notice(
                reason="HealingHeld" if cause is Cause.HEALING else "UpdateHeld",
                message=f"virtual machine {name} is not deleted: {outcome.message}",
                once=f"{uid} successor refused",
            )
        case Done(action=Create()) | AlreadyThere():
            # AlreadyThere means that an earlier create succeeded, but its answer was lost.
            return Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)
        case Done(action=Delete()):
            return Notice(reason="SuccessfulDelete", message=f"Deleted virtual machine: {name}", warning=False)
        case Rejected(action=action) | Unknown(action=action) if reason := _failure_reason(outcome):
            verb = _VERBS.get(type(action), "updating")
            noun = "replica set" if isinstance(action, Patch) and action.is_note else noun
            return Notice(reason=reason, message=f"Error {verb} {noun} {name}: {outcome.message}")
        case _:
            return None


def _failure_reason(outcome: Outcome) -> str:
    """Return `FailedCreate`, `FailedDelete` or `FailedUpdate` if the server answered a create, a delete or a patch with
    an error.

    Return `FailedCreate` also if the server would refuse the successor of a VMI. This VMI was not deleted.

    For other actions and for connection errors, return "". If a user changed the object since the plan was made, the
    object is not deleted and not patched. That is no failure.
    """
    match outcome:
        case SuccessorRefused(error=StatusError()):
            return "FailedCreate"
        case Rejected(action=Delete() | Patch(), error=Conflict()):
            return ""
        case Rejected(action=Patch(), error=StatusError()) | Unknown(action=Patch(), error=StatusError()):
            return "FailedUpdate"
        case Rejected(action=Create(), error=StatusError()) | Unknown(action=Create(), error=StatusError()):
            return "FailedCreate"
        case Rejected(action=Delete(), error=StatusError()) | Unknown(action=Delete(), error=StatusError()):
            return "FailedDelete"
        case _:
            return ""


def _updated(active: VMIs, intent: Intent) -> VMIs:
    return active.where(lambda vmi: is_updated(vmi, intent.template))


def _find_back_off(snapshot: Snapshot, intent: Intent, active: VMIs) -> BackOff:
    spent = snapshot.members.where(lambda vmi: is_spent(vmi) and not is_deleting(vmi))
    return find_back_off(snapshot.now, intent.template, active, spent)


def _back_off_condition(snapshot: Snapshot, intent: Intent | None, active: VMIs, back_off: BackOff) -> Condition | None:
    """Return the condition `ReplicaBackOff` (R4a).

    Until the cache shows all earlier writes, the condition does not change.
    """
    if intent is None:
        return None
    if not snapshot.settled:
        return find_true((snapshot.owner.status or ReplicaSetStatus()).conditions, REPLICA_BACK_OFF)
    wanted = limited(intent.wanted, len(active), snapshot.max_replicas)
    creates = choose_creates(back_off, wanted - len(active), burst=snapshot.burst, now=snapshot.now)
    return condition_of(back_off, creates, active, intent.template)


def _failure(previous: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """Return the condition `ReplicaFailure` after these outcomes, or None (R10).

    A failed create or delete request sets the condition. If no such request failed, `without_failures` decides whether
    the condition in `previous` stays.
    """
    for outcome in outcomes:
        if isinstance(outcome, Rejected | Unknown) and (reason := _failure_reason(outcome)):
            return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=outcome.message)
    return without_failures(previous, outcomes, may_write=may_write)
