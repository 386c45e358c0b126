"""The conditions of a pool about failures (P17): `ReplicaFailure` for writes that failed, and `VirtualMachineFailure`
for VMs that cannot start.

If KubeVirt cannot create the VMI of a VM, the VM gets the condition `Failure`. A typical reason is a missing
instancetype. The `printableStatus` of such a VM is only Stopped, so the pool's condition shows the reason.
"""

from typing import Final

from controller.apimachinery.conditions import Condition, find_true
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.resources import CONTROLLER_REVISIONS, MIGRATIONS, VMIS
from controller.kubevirt.standby import mark_in
from controller.kubevirt.vm_types import FAILURE, MANUAL_RECOVERY_REQUIRED
from controller.kubevirt.vms import is_deleting
from controller.pool.members.machine import Machine
from controller.pool.members.snapshot import Snapshot
from controller.replicas.conditions import REPLICA_FAILURE, replica_failure, true_condition
from controller.runtime.actions import (
    Action,
    Cause,
    Create,
    Delete,
    ExpandClaim,
    Outcome,
    Patch,
    Pause,
    Postponed,
    Rejected,
    RemoveOwnerReference,
    Restart,
    ThreeWayMerge,
    Unknown,
    Unserved,
)
from controller.runtime.execute.deletes import Obstructed
from controller.runtime.members.groups import by_name
from informers.errors import Conflict, StatusError

FAILED_SCALE_OUT: Final = "FailedScaleOut"
FAILED_SCALE_IN: Final = "FailedScaleIn"
FAILED_UPDATE: Final = "FailedUpdate"
FAILED_POOL_UPDATE: Final = "FailedPoolUpdate"
FAILED_HEALING: Final = "FailedHealing"
FAILED_REVISION_PRUNING: Final = "FailedRevisionPruning"

VIRTUAL_MACHINE_FAILURE: Final = "VirtualMachineFailure"
"""The condition of a pool with VMs that cannot start. KubeVirt's pool controller does not set it."""

POSTPONED_FOR_LONG_S: Final = 10.0
"""A create that waits for a disk for this time, in seconds, is a failure. A shorter wait is normal: the garbage
collector deletes the disk of the VM's predecessor.
"""

LONGEST_CAUSE: Final = 300
"""The maximum length of a VM's message in the message of the condition `VirtualMachineFailure`."""


def pool_failure(snapshot: Snapshot, outcomes: tuple[Outcome, ...], *, valid: bool) -> Condition | None:
    """Return the condition `ReplicaFailure` after these outcomes, or None (P17).

    The message starts with the same words as in KubeVirt's pool controller. If the next try of a refused write is not
    due yet, the condition stays. `valid` is true for a valid spec.
    """
    # A plan creates a revision before the write that needs the revision. If the reconciliation updates VMs, a failed
    # creation of a revision has the reason FailedUpdate.
    is_update = any(isinstance(outcome.action, ThreeWayMerge) for outcome in outcomes)

    def cause_of(outcome: Outcome) -> tuple[str, str] | None:
        if not isinstance(outcome, Rejected | Unknown | Unserved | Postponed) or not is_failure(outcome):
            return None
        cause = _cause(outcome.action, is_update=is_update)
        return None if cause is None else (cause[0], f"error {cause[1]}: {outcome.message}")

    # Without a new standby, the pool still has its wanted VMs.
    counted = tuple(each for each in outcomes if not (isinstance(each.action, Create) and mark_in(each.action.body)))
    failure = replica_failure(snapshot, counted, cause_of, valid=valid)
    if failure is None and snapshot.refused:
        return true_condition(snapshot.owner.status, REPLICA_FAILURE)
    return failure


def is_failure(outcome: Rejected | Unknown | Unserved | Postponed) -> bool:
    """Return True if the server rejected the write, does not serve the request, or answered with an error, and for a
    create that has waited for a disk for long.

    A lost connection is no failure, because the write may have succeeded. Nor is a conflict (409) after a delete or a
    patch: a user has changed the object since the plan was made. Nor is a request that the judge of the pool stopped.
    """
    if isinstance(outcome, Postponed):
        return outcome.waited_s >= POSTPONED_FOR_LONG_S
    if isinstance(outcome.error, Obstructed):
        return False
    if isinstance(outcome.action, Delete | Patch | Pause) and isinstance(outcome.error, Conflict):
        return False
    return isinstance(outcome, Rejected | Unserved) or isinstance(outcome.error, StatusError)


def is_scale_out_failing(pool: Pool) -> bool:
    """Return True if the pool's condition `ReplicaFailure` reports a failed creation of VMs."""
    failure = true_condition(pool.status, REPLICA_FAILURE)
    return failure is not None and failure.reason == FAILED_SCALE_OUT


def virtual_machine_failure(snapshot: Snapshot) -> Condition | None:
    """Return the condition `VirtualMachineFailure`, with the failure of the VM with the first name, or None."""
    failing = by_name(snapshot.members.where(lambda each: start_failure_of(each) is not None))
    failure = start_failure_of(failing[0]) if failing else None
    if failure is None:
        return None
    text = failure.message or failure.reason or failure.type
    cause = text if len(text) <= LONGEST_CAUSE else f"{text[: LONGEST_CAUSE - 3]}..."
    counts = f"{len(failing)} of {len(snapshot.members)} virtual machines cannot start"
    return Condition(
        type=VIRTUAL_MACHINE_FAILURE,
        status="True",
        reason=failure.reason or failure.type,
        message=f"{counts}; {failing[0].metadata.name}: {cause}",
    )


def start_failure_of(machine: Machine) -> Condition | None:
    """Return the condition that explains why a VM without a VMI cannot start, or None."""
    vm, spec = machine.vm, machine.vm.spec
    is_halted = spec is None or spec.run_strategy == "Halted" or (spec.run_strategy is None and not spec.running)
    if vm.status is None or is_deleting(vm) or is_halted or machine.vmi is not None:
        return None
    conditions = vm.status.conditions
    return find_true(conditions, FAILURE) or find_true(conditions, MANUAL_RECOVERY_REQUIRED)


def _cause(action: Action, *, is_update: bool) -> tuple[str, str] | None:
    """Return the reason of the condition `ReplicaFailure` after a failed action, and the first words of the message, or
    None if the failure sets no condition.
    """
    if isinstance(action, Patch) and action.resource.kind == POOL_KIND:
        return FAILED_POOL_UPDATE, "while updating the metadata of the pool"
    is_revision = action.resource is CONTROLLER_REVISIONS
    if is_revision and isinstance(action, Patch):
        return FAILED_UPDATE, "while noting the rollout of a revision"
    if is_revision and isinstance(action, Delete):
        return FAILED_REVISION_PRUNING, "while pruning vmpool revisions"
    if isinstance(action, Restart) or (action.resource is VMIS and not isinstance(action, Pause)):
        return FAILED_UPDATE, "during VMI update"
    is_of_update = action.resource is MIGRATIONS or isinstance(action, ThreeWayMerge | ExpandClaim)
    if is_of_update or (is_revision and is_update):
        return FAILED_UPDATE, "during VM update"
    match action:
        case Create():
            return FAILED_SCALE_OUT, "during scale out"
        case Delete(cause=Cause.HEALING | Cause.FINISHED):
            return FAILED_HEALING, "during healing"
        case Delete(cause=Cause.UPDATE):
            return FAILED_UPDATE, "during VM update"
        case Delete() | RemoveOwnerReference():
            return FAILED_SCALE_IN, "during scale in"
        case Patch():
            return FAILED_UPDATE, f"while updating the metadata of {action.key.name}"
        case _:
            return None
