"""What a replica set reports (R10, R11) and what it tells in Events (R8, R12), after a pass.

Counts are facts of the newest snapshot. `ReplicaFailure` and `ReplicaPaused` are present while true and absent
otherwise; their transition time changes when they appear, and never while they stay. Conditions of other types belong
to somebody else and are written back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.kubevirt.types import Condition, ReplicaSet, ReplicaSetStatus
from controller.kubevirt.vmis import is_active, is_ready
from controller.planning import AlreadyThere, Create, Delete, Done, Notice, Outcome, Refused, Unknown, Vanished
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.rollout import is_updated
from controller.replicaset.snapshot import Snapshot
from informers.errors import StatusError

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"

_PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> ReplicaSetStatus:
    """The status after a pass with these outcomes. `snapshot` is the newest, taken after the writes.

    `observedGeneration` is that of the snapshot's set: `snapshot.recounted` keeps it the one that was planned from.
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
        REPLICA_FAILURE: _failure(_find(old, REPLICA_FAILURE), tuple(outcomes), may_write=may_write),
        REPLICA_PAUSED: _PAUSED if owner.spec.paused else None,
    }
    return ReplicaSetStatus(
        replicas=len(active),
        ready_replicas=sum(map(is_ready, active)),
        # Nothing is up to date with an invalid template; autoscalers keep the last selector that was good.
        updated_replicas=sum(is_updated(vmi, intent.template.hash) for vmi in active) if intent else 0,
        observed_generation=owner.metadata.generation,
        label_selector=str(intent.selector) if intent else old.label_selector,
        conditions=_merge(old, ours, snapshot.now),
    )


def status_patch(owner: ReplicaSet, new: ReplicaSetStatus) -> bytes | None:
    """The merge patch that makes `new` the status of just this version of the set; None where it already is (R11)."""
    old = owner.status or ReplicaSetStatus()
    if replace(old, conditions=old.conditions or None) == new:
        return None
    # All fields, each time: null takes one away, and a list is replaced whole.
    fields = {
        "replicas": new.replicas,
        "readyReplicas": new.ready_replicas,
        "updatedReplicas": new.updated_replicas,
        "observedGeneration": new.observed_generation,
        "labelSelector": new.label_selector,
        "conditions": new.conditions,
    }
    metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    return msgspec.json.encode({"metadata": metadata, "status": fields})


def transition_notices(old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
    """What a status change tells the set's readers (R8). To be told after the status has been written."""
    was, now = (_find(status or ReplicaSetStatus(), REPLICA_PAUSED) is not None for status in (old, new))
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
        case Refused(action=action) | Unknown(action=action) if reason := _failure_reason(outcome):
            verb = "creating" if isinstance(action, Create) else "deleting"
            return Notice(reason=reason, message=f"Error {verb} virtual machine {name}: {outcome.message}")
        case _:
            return None


def _failure_reason(outcome: Outcome) -> str:
    """`FailedCreate` or `FailedDelete` where the server failed one; "" for anything else.

    A lost connection, or none to begin with, is no failure of the set's: there is no word of the server to show.
    """
    match outcome:
        case Refused(action=Create(), error=StatusError()) | Unknown(action=Create(), error=StatusError()):
            return "FailedCreate"
        case Refused(action=Delete(), error=StatusError()) | Unknown(action=Delete(), error=StatusError()):
            return "FailedDelete"
        case _:
            return ""


def _failure(held: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """`ReplicaFailure` after these outcomes (R10): a failure sets it, a pass in which all went well takes it away.

    A pass that was not free to write proves nothing, nor does one that was cut short.
    """
    for outcome in outcomes:
        if isinstance(outcome, Refused | Unknown) and (reason := _failure_reason(outcome)):
            return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=outcome.message)
    if outcomes:
        went_well = all(isinstance(outcome, Done | AlreadyThere | Vanished) for outcome in outcomes)
        return None if went_well else held
    return None if may_write else held


def _find(status: ReplicaSetStatus, type_: str) -> Condition | None:
    """A condition that is there and true."""
    for condition in status.conditions or ():
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def _merge(old: ReplicaSetStatus, ours: Mapping[str, Condition | None], now: datetime) -> tuple[Condition, ...] | None:
    """The whole list: foreign conditions as they were, then ours while true, dated when they appeared."""
    merged = [condition for condition in old.conditions or () if condition.type not in ours]
    for condition in ours.values():
        if condition is not None:
            before = _find(old, condition.type)
            since = before.last_transition_time if before else now.replace(microsecond=0)
            probed = before.last_probe_time if before else since
            merged.append(replace(condition, last_probe_time=probed, last_transition_time=since))
    return tuple(merged) or None
