"""What a replica set reports (R10, R11) and what it tells in Events (R8, R12), after a pass.

Counts are facts of the newest snapshot. `ReplicaFailure` and `ReplicaPaused` are present while true and absent
otherwise; their transition time changes when they appear, and never while they stay. Conditions of other types belong
to somebody else and are written back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.apimachinery.conditions import Condition, find_true, merge_conditions
from controller.kubevirt.conditions import PAUSED, REPLICA_FAILURE, REPLICA_PAUSED, without_failures
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.rollout import is_updated
from controller.replicaset.snapshot import Snapshot
from controller.runtime.plan import AlreadyThere, Create, Delete, Done, Notice, Outcome, Rejected, Unknown
from informers.errors import StatusError


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> ReplicaSetStatus:
    """The status after a pass with these outcomes. `snapshot` is the newest, taken after the writes.

    `observedGeneration` is that of the snapshot's set: `recounted` keeps it the one that was planned from.
    """
    owner = snapshot.owner
    old = owner.status or ReplicaSetStatus()
    parsed = parse_intent(owner)
    intent = parsed if isinstance(parsed, Intent) else None
    active = [vmi for vmi in snapshot.members if is_active(vmi)]
    may_write = (
        snapshot.settled and intent is not None and not owner.spec.paused and owner.metadata.deletion_timestamp is None
    )
    ours = {
        REPLICA_FAILURE: _failure(find_true(old.conditions, REPLICA_FAILURE), tuple(outcomes), may_write=may_write),
        REPLICA_PAUSED: PAUSED if owner.spec.paused else None,
    }
    return ReplicaSetStatus(
        replicas=len(active),
        ready_replicas=sum(map(is_ready, active)),
        # Nothing is up to date with an invalid template; autoscalers keep the last selector that was good.
        updated_replicas=sum(is_updated(vmi, intent.template.hash) for vmi in active) if intent else 0,
        observed_generation=owner.metadata.generation,
        label_selector=str(intent.selector) if intent else old.label_selector,
        conditions=merge_conditions(old.conditions, ours, snapshot.now),
    )


def transition_notices(old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
    """What a status change tells the set's readers (R8). To be told after the status has been written."""
    was, now = (find_true(status.conditions if status else None, REPLICA_PAUSED) is not None for status in (old, new))
    if now and not was:
        return (Notice(reason="SuccessfulPaused", message="Paused", warning=False),)
    if was and not now:
        return (Notice(reason="SuccessfulResumed", message="Resumed", warning=False),)
    return ()


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """What happened to each VMI, in the words that users know (R12)."""
    return tuple(notice for outcome in outcomes if (notice := _notice_of(outcome)) is not None)


def _notice_of(outcome: Outcome) -> Notice | None:
    name = outcome.action.key.name
    match outcome:
        case Done(action=Create()) | AlreadyThere():
            # Found again is created: the answer that would have told so was lost.
            return Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)
        case Done(action=Delete()):
            return Notice(reason="SuccessfulDelete", message=f"Deleted virtual machine: {name}", warning=False)
        case Rejected(action=action) | Unknown(action=action) if reason := _failure_reason(outcome):
            verb = "creating" if isinstance(action, Create) else "deleting"
            return Notice(reason=reason, message=f"Error {verb} virtual machine {name}: {outcome.message}")
        case _:
            return None


def _failure_reason(outcome: Outcome) -> str:
    """`FailedCreate` or `FailedDelete` where the server failed one; "" for anything else.

    A lost connection, or none to begin with, is no failure of the set's: there is no word of the server to show.
    """
    match outcome:
        case Rejected(action=Create(), error=StatusError()) | Unknown(action=Create(), error=StatusError()):
            return "FailedCreate"
        case Rejected(action=Delete(), error=StatusError()) | Unknown(action=Delete(), error=StatusError()):
            return "FailedDelete"
        case _:
            return ""


def _failure(held: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """`ReplicaFailure` after these outcomes (R10): a failure sets it, a pass in which all went well takes it away."""
    for outcome in outcomes:
        if isinstance(outcome, Rejected | Unknown) and (reason := _failure_reason(outcome)):
            return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=outcome.message)
    return without_failures(held, outcomes, may_write=may_write)
