"""The status of a replica set after a reconciliation (R10, R11), and the notices for its Events (R8, R12).

The counts come from the newest snapshot. Conditions of vmherd exist only while they are true, and their transition time
is that of their addition. Conditions of other controllers do not change.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.apimachinery.field_error import FieldError
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicas.conditions import (
    REPLICA_BACK_OFF,
    REPLICA_FAILURE,
    REPLICA_PAUSED,
    held_reason,
    replica_failure,
    transitions,
    true_condition,
)
from controller.replicas.disruption_budget import budget_notices, without_budgets
from controller.replicas.kstatus import Waits, invalid, with_health
from controller.replicas.revisions import set_revision_name
from controller.replicas.rollback import with_return
from controller.replicaset.back_off import condition_of
from controller.replicaset.health import health_of, revision_in_use
from controller.replicaset.situation import Situation, situation_of
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import is_updated
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

PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")

_REASONS: Final[Mapping[type, str]] = {Create: "FailedCreate", Delete: "FailedDelete", Patch: "FailedUpdate"}
_VERBS: Final = {"FailedCreate": "creating", "FailedDelete": "deleting", "FailedUpdate": "updating"}


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome], waits: Waits = ()) -> ReplicaSetStatus:
    """Return the status after these outcomes and the waits of the plan. `snapshot` was taken after the writes."""
    old = snapshot.owner.status or ReplicaSetStatus()
    active, situation = snapshot.members.where(is_active), situation_of(snapshot)
    # Without its newest revision, a set still runs all its VMIs. So other failures are told first.
    writes = sorted(without_budgets(outcomes), key=lambda each: each.action.resource is CONTROLLER_REVISIONS)
    failure = replica_failure(snapshot, tuple(writes), _failure_of, valid=isinstance(situation, Situation))
    ours = {
        REPLICA_FAILURE: failure,
        REPLICA_PAUSED: PAUSED if snapshot.owner.spec.paused else None,
        REPLICA_BACK_OFF: None,
    }
    # If the spec is invalid, no VMI counts as updated. The status keeps the last valid selector, because autoscalers
    # read the selector.
    ready = len(active.where(is_ready))
    status = replace(old, replicas=len(active), ready_replicas=ready, updated_replicas=0)
    if isinstance(situation, FieldError):
        return with_health(status, snapshot, invalid(situation.message), ours)
    template = situation.intent.template
    # Until the cache shows all earlier writes, the condition does not change.
    replacing = true_condition(old, REPLICA_BACK_OFF)
    if snapshot.settled:
        replacing = condition_of(situation.back_off, situation.creates, active, situation.template)
    status = replace(
        status,
        updated_replicas=len(active.where(lambda vmi: is_updated(vmi, template))),
        label_selector=str(situation.intent.selector),
        current_revision=revision_in_use(active, template, snapshot.revisions),
        update_revision=template.hash,
    )
    names = (set_revision_name(snapshot.owner.metadata.name, each.hash) for each in (template, situation.template))
    health = with_return(health_of(situation, failure, replacing, waits), situation.target, *names)
    most = situation.rollout.max_unavailable if situation.rollout is not None else 0
    return with_health(status, snapshot, health, {**ours, REPLICA_BACK_OFF: replacing}, most_unavailable=most)


def transition_notices(old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
    """Return the Events about a pause, a resume and a missed deadline (R8, R11), for after the status is written."""
    paused = Notice(reason="SuccessfulPaused", message="Paused", warning=False)
    resumed = Notice(reason="SuccessfulResumed", message="Resumed", warning=False)
    return transitions(old, new, paused=paused, resumed=resumed)


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """Return the notices about VMIs, with KubeVirt's reasons (R12), and about revisions that failed (R17)."""
    outcomes = tuple(outcomes)
    others = without_budgets(outcomes)
    return (*chain.from_iterable(map(_notices_of, others)), *budget_notices(outcomes))


def _notices_of(outcome: Outcome) -> Iterator[Notice]:
    name = outcome.action.key.name
    is_note = isinstance(outcome.action, Patch) and outcome.action.is_note
    noun = "replica set" if is_note else "virtual machine"
    if outcome.action.resource is CONTROLLER_REVISIONS:
        if not isinstance(outcome, Rejected | Unknown):
            return
        noun = "revision"
    match outcome:
        case SuccessorRefused(action=Delete(cause=cause, uid=uid)):
            message = f"virtual machine {name} is not deleted: {outcome.message}"
            yield Notice(reason=held_reason(cause), message=message, once=f"{uid} successor refused")
        case Done(action=Create()) | AlreadyThere():
            # AlreadyThere means that an earlier create succeeded, but its answer was lost.
            yield Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)
        case Done(action=Delete(cause=cause, key=key, why=why)):
            if cause is Cause.HEALING:
                yield Notice(reason="UnreadyReplaced", message=f"virtual machine {name} is replaced: it is {why}")
            yield Notice(reason="SuccessfulDelete", message=f"Deleted VMI {key}: {why}", warning=False)
        case Rejected() | Unknown() if failure := _failure_of(outcome):
            yield Notice(reason=failure[0], message=f"Error {_VERBS[failure[0]]} {noun} {name}: {failure[1]}")


def _failure_of(outcome: Outcome) -> tuple[str, str] | None:
    """Return reason and message of a failed write or refused successor, not of a lost connection or lost race."""
    if not isinstance(outcome, Rejected | Unknown) or not isinstance(outcome.error, StatusError):
        return None
    action, is_refused = outcome.action, isinstance(outcome, SuccessorRefused)
    is_changed = isinstance(outcome, Rejected) and not is_refused and isinstance(outcome.error, Conflict)
    if is_changed and isinstance(action, Delete | Patch):
        return None
    reason = "FailedCreate" if is_refused else _REASONS.get(type(action), "")
    return (reason, outcome.message) if reason else None
