"""What the update of a pool does to the disks of its VMs (P13, P21). The controller's own functions decide this."""

from typing import Final

from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.pool_types import Pool
from controller.pool.members.revisions import template_of
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.steps import PendingStep, Step
from controller.pool.rollout.update import pending_steps
from controller.pool.spec.intent import Intent, parse_intent
from controller.pool.spec.template import DiskChange, disk_change
from controller.replicas.conditions import counted
from plugin.views.history import Revision

LISTED: Final = 10


def disk_steps(snapshot: Snapshot) -> list[PendingStep]:
    """Return the steps that delete or expand disks, in the order of the update. A paused or deleted pool has none."""
    owner, situation = snapshot.owner, situation_of(snapshot)
    if isinstance(situation, FieldError) or owner.spec.paused or owner.metadata.deletion_timestamp is not None:
        return []
    return [each for each in pending_steps(situation) if each.step is Step.RECREATE or each.sizes]


def disk_lines(steps: list[PendingStep]) -> list[str]:
    """Return one line for each VM, at most `LISTED`."""
    lines = [f"vm/{each.machine.metadata.name}: {_fate(each)}" for each in steps[:LISTED]]
    more = len(steps) - LISTED
    return [*lines, *([f"and {more} more VMs"] if more > 0 else [])]


def _fate(step: PendingStep) -> str:
    if step.reason:
        return f"held: {step.reason}"
    if step.step is Step.RECREATE:
        return f"deleted with its disks {', '.join(step.lost_disks)}" if step.lost_disks else "deleted, it has no disks"
    return ", ".join(f"disk {name} grows to {size}" for name, (_, size) in step.sizes.items())


def lost_by_undo(snapshot: Snapshot, owner: Pool, revision: Revision) -> str:
    """Return the VMs and disks that a return to a revision deletes, for a sentence, or "" if it deletes none.

    `owner` is the pool after the return. If the user may not read the VMs of the pool, the templates are compared.
    """
    if revision.vms is None:
        intent = parse_intent(snapshot.owner)
        pasts = (template_of(each) for each in snapshot.revisions if each.metadata.name == revision.name)
        changes = (disk_change(past, intent.template) for past in pasts if past and isinstance(intent, Intent))
        return "VMs of the pool with their disks" if DiskChange.OTHER in changes else ""
    # A write increases the generation.
    metadata = replace(owner.metadata, generation=(owner.metadata.generation or 0) + 1)
    steps = disk_steps(replace(snapshot, owner=replace(owner, metadata=metadata)))
    lost = [each for each in steps if each.step is Step.RECREATE and not each.needs_user]
    disks = [disk for each in sorted(lost, key=lambda each: snapshot.rank_of(each.machine)) for disk in each.lost_disks]
    if not disks:
        return ""
    more = f" and {len(disks) - LISTED} more" if len(disks) > LISTED else ""
    return f"{counted(len(lost), 'VM', 'VMs')} with the disks {', '.join(disks[:LISTED])}{more}"
