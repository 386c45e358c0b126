"""The status of a replica set after a pass (R10, R11), and the notices for its Events (R8, R12).

The counts come from the newest snapshot. The conditions `ReplicaFailure` and `ReplicaPaused` are present while they are
true and absent otherwise. Their transition time is set when they appear and does not change while they stay. Conditions
of other types belong to other controllers and stay unchanged.
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
    """Return the status after a pass with these outcomes. `snapshot` was taken after the writes of the pass.

    `observedGeneration` is the generation of the set in the snapshot. The reconciler makes sure that this is the
    generation that the pass was planned for (see `runtime.status.recounted`).
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
        # With an invalid template no VMI is up to date. The last valid selector stays, for autoscalers.
        updated_replicas=sum(is_updated(vmi, intent.template.hash) for vmi in active) if intent else 0,
        observed_generation=owner.metadata.generation,
        label_selector=str(intent.selector) if intent else old.label_selector,
        conditions=merge_conditions(old.conditions, ours, snapshot.now),
    )


def transition_notices(old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
    """The notices about a pause or a resume, from the status before and after (R8).

    Publish them only after the new status has been written.
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
    """The notices about the VMIs that were created or deleted, or that could not be (R12).

    The messages use the words that users of KubeVirt know.
    """
    return tuple(notice for outcome in outcomes if (notice := _notice_of(outcome)) is not None)


def _notice_of(outcome: Outcome) -> Notice | None:
    name = outcome.action.key.name
    match outcome:
        case Done(action=Create()) | AlreadyThere():
            # AlreadyThere means that an earlier create succeeded but its answer was lost.
            return Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)
        case Done(action=Delete()):
            return Notice(reason="SuccessfulDelete", message=f"Deleted virtual machine: {name}", warning=False)
        case Rejected(action=action) | Unknown(action=action) if reason := _failure_reason(outcome):
            verb = "creating" if isinstance(action, Create) else "deleting"
            return Notice(reason=reason, message=f"Error {verb} virtual machine {name}: {outcome.message}")
        case _:
            return None


def _failure_reason(outcome: Outcome) -> str:
    """Return `FailedCreate` or `FailedDelete` if the server answered a create or delete with an error, else "".

    A connection error is not a failure of the set, because there is no message of the server to show.
    """
    match outcome:
        case Rejected(action=Create(), error=StatusError()) | Unknown(action=Create(), error=StatusError()):
            return "FailedCreate"
        case Rejected(action=Delete(), error=StatusError()) | Unknown(action=Delete(), error=StatusError()):
            return "FailedDelete"
        case _:
            return ""


def _failure(previous: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """Return the condition `ReplicaFailure` after these outcomes (R10).

    A failed write sets the condition. A pass without failures removes it.
    """
    for outcome in outcomes:
        if isinstance(outcome, Rejected | Unknown) and (reason := _failure_reason(outcome)):
            return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=outcome.message)
    return without_failures(previous, outcomes, may_write=may_write)
