"""What a pool reports (P7, P17) and what it tells in Events (P18), after a pass.

Counts are facts of the newest snapshot: a VM that is being deleted still counts. `printableStatus` says in one word
what a user would ask first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from controller.apimachinery.conditions import Condition, find_true, merge_conditions
from controller.kubevirt import vmis
from controller.kubevirt.conditions import PAUSED, REPLICA_FAILURE, REPLICA_PAUSED, without_failures
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting, is_meant_to_run, is_ready, printable_status_of
from controller.pool.heal import count_recovering, read_records
from controller.pool.intent import Intent, parse_intent
from controller.pool.policies import Strategy
from controller.pool.revisions import Revisions, oldest_in_use, read_revisions
from controller.pool.snapshot import Snapshot
from controller.pool.update import is_updated
from controller.runtime.plan import (
    Action,
    AlreadyThere,
    Create,
    Delete,
    Done,
    Notice,
    Outcome,
    Patch,
    Rejected,
    RemoveOwnerReference,
    ThreeWayMerge,
    Unknown,
)
from informers.errors import StatusError

STARTING: Final = frozenset({"", "Starting", "Provisioning", "WaitingForVolumeBinding", "Stopping", "Stopped"})
"""The `printableStatus` of a VM that is on its way up, or between two of its VMIs, while it is meant to run."""

_WORDS: Final[Mapping[type, tuple[str, str, str]]] = {
    Create: ("SuccessfulCreate", "Created", "creating"),
    Delete: ("SuccessfulDelete", "Deleted", "deleting"),
    ThreeWayMerge: ("SuccessfulUpdate", "Updated", "updating"),
}


def next_status(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> PoolStatus:
    """The status after a pass with these outcomes. `snapshot` is the newest, taken after the writes."""
    owner = snapshot.owner
    old = owner.status or PoolStatus()
    parsed = parse_intent(owner)
    intent = parsed if isinstance(parsed, Intent) else None
    revisions = read_revisions(snapshot, intent.template) if intent else None
    leaving = owner.metadata.deletion_timestamp is not None
    may_write = snapshot.settled and intent is not None and not owner.spec.paused and not leaving
    held = find_true(old.conditions, REPLICA_FAILURE)
    failure = _failure(held, tuple(outcomes), may_write=may_write)
    ours = {REPLICA_FAILURE: failure, REPLICA_PAUSED: PAUSED if owner.spec.paused else None}
    return PoolStatus(
        replicas=len(snapshot.members),
        ready_replicas=sum(map(is_ready, snapshot.members)),
        updated_replicas=sum(_has_followed(snapshot, revisions, vm) for vm in snapshot.members) if revisions else 0,
        observed_generation=owner.metadata.generation,
        # Autoscalers keep the last selector that was good.
        label_selector=str(intent.selector) if intent else old.label_selector,
        current_revision=oldest_in_use(snapshot, revisions, snapshot.members) if revisions else old.current_revision,
        update_revision=revisions.current if revisions else old.update_revision,
        printable_status=_printable(snapshot, intent, revisions, failing=failure is not None),
        conditions=merge_conditions(old.conditions, ours, snapshot.now),
    )


def transition_notices(old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
    """What a status change tells the pool's readers (P17). To be told after the status has been written."""
    was, now = (find_true(status.conditions if status else None, REPLICA_PAUSED) is not None for status in (old, new))
    if now and not was:
        return (Notice(reason="SuccessfulPaused", message="Pool is paused", warning=False),)
    if was and not now:
        return (Notice(reason="SuccessfulResume", message="Pool is unpaused", warning=False),)
    return ()


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    """What happened to each VM, in the words that users know (P18). A deletion says why, as a healed VM's must."""
    return tuple(notice for outcome in outcomes if (notice := _notice_of(outcome)) is not None)


def _notice_of(outcome: Outcome) -> Notice | None:
    action = outcome.action
    if action.resource is not VMS and action.resource is not VMIS:
        return None
    words = _WORDS.get(type(action))
    if isinstance(action, Patch) and action.resource is VMIS and not isinstance(outcome, Done):
        # A label that changed is nobody's news; one that could not be changed leaves the VMI outdated.
        words = _WORDS[ThreeWayMerge]
    if words is None:
        return None
    success, done, doing = words
    subject = f"{action.resource.kind.replace('VirtualMachine', 'VM').replace('VMInstance', 'VMI')} {action.key}"
    match outcome:
        case Done() | AlreadyThere():
            why = f": {action.why}" if isinstance(action, Delete) else ""
            return Notice(reason=success, message=f"{done} {subject}{why}", warning=False)
        case Rejected() | Unknown() if _is_failure(outcome):
            reason = success.replace("Successful", "Failed")
            return Notice(reason=reason, message=f"Error {doing} {subject}: {outcome.message}")
        case _:
            return None


def _failure(held: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """`ReplicaFailure` after these outcomes (P17): a failure sets it, a pass in which all went well takes it away."""
    # A revision is kept for what comes after it.
    is_update = any(isinstance(outcome.action, ThreeWayMerge) for outcome in outcomes)
    for outcome in outcomes:
        if isinstance(outcome, Rejected | Unknown) and _is_failure(outcome):
            reason = _reason(outcome.action, is_update=is_update)
            if reason:
                return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=outcome.message)
    return without_failures(held, outcomes, may_write=may_write)


def _reason(action: Action, *, is_update: bool) -> str:
    is_revision = action.resource is CONTROLLER_REVISIONS
    if is_revision and isinstance(action, Delete):
        return "FailedRevisionPruning"
    if action.resource is VMIS or isinstance(action, ThreeWayMerge) or (is_revision and is_update):
        return "FailedUpdate"
    match action:
        case Create():
            return "FailedScaleOut"
        case Delete() | RemoveOwnerReference():
            return "FailedScaleIn"
        case _:
            return ""


def _is_failure(outcome: Rejected | Unknown) -> bool:
    """A lost connection is no failure of the pool's: nobody knows what became of the write."""
    return isinstance(outcome, Rejected) or isinstance(outcome.error, StatusError)


def _printable(snapshot: Snapshot, intent: Intent | None, revisions: Revisions | None, *, failing: bool) -> str:
    """The pool in one word."""
    if snapshot.owner.spec.paused:
        return "Paused"
    if intent is None or revisions is None or failing:
        return "Degraded"
    members = snapshot.members
    if intent.healing is not None:
        records = read_records(snapshot, intent.healing)
        if count_recovering(snapshot, intent, members, records).number:
            return "Healing"
    if len(members) != intent.wanted or any(map(is_deleting, members)):
        return "Scaling"
    if intent.update.strategy is not Strategy.UNMANAGED and not all(
        is_updated(snapshot, revisions, vm) for vm in members
    ):
        return "Updating"
    unready = [vm for vm in members if is_meant_to_run(vm) and not _serves(snapshot, vm)]
    if not unready:
        return "Running" if any(map(is_meant_to_run, members)) else "Stopped"
    if not all(_is_starting(vm) for vm in unready):
        return "Degraded"
    # The last VMs of an update come up when nothing else of it is left to see.
    before = snapshot.owner.status.printable_status if snapshot.owner.status is not None else None
    return "Updating" if before == "Updating" else "Scaling"


def _has_followed(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> bool:
    """Whether it counts as updated, so that an update is not told as done while the last VM is still to come back.

    One that is being deleted has not, nor has one that calls itself ready and has no VMI: it does not miss it yet.
    """
    has_lost_its_vmi = is_ready(vm) and snapshot.vmi_of(vm) is None
    return is_updated(snapshot, revisions, vm) and not is_deleting(vm) and not has_lost_its_vmi


def _serves(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Whether the VM and its VMI say that it is ready. The VM's own word comes later."""
    vmi = snapshot.vmi_of(vm)
    return is_ready(vm) and vmi is not None and vmis.is_ready(vmi)


def _is_starting(vm: VirtualMachine) -> bool:
    return is_ready(vm) or printable_status_of(vm) in STARTING
