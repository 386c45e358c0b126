"""The situation of a pool. The input is the same snapshot as the controller takes of the pool."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS
from controller.kubevirt import vmis
from controller.kubevirt.annotations import PARTITION
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.problems import cause_text_of_vm
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    is_deleting,
    is_meant_to_run,
    is_ready,
    printable_status_of,
    revision_of,
    stopped_by,
)
from controller.pool.health import find_troubles
from controller.pool.members.ledger import member_stuck_since, outage_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.revisions import Revisions, read_revisions
from controller.pool.members.select import allows
from controller.pool.members.situation import Situation as PoolSituation
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.rollout.partition_steps import waiting_step
from controller.pool.rollout.steps import is_updated
from controller.pool.rollout.successors import count_missing
from controller.pool.rollout.update import pending_steps
from controller.pool.spec.naming import ordinal_of
from controller.pool.spec.policies import Strategy
from controller.pool.status import next_status
from controller.pool.substitutes import lost_problem
from informers.meta import annotations_of
from plugin.views.situation import (
    TERMINATING,
    Member,
    Situation,
    finalizers_of,
    marks_of,
    not_yet_tried,
    situation_in_plan,
)

PLAIN = 10**9


def situation_of_pool(snapshot: Snapshot) -> Situation:
    plan, found, owner = plan_pool(snapshot), situation_of(snapshot), snapshot.owner
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    pool = None if isinstance(found, FieldError) else found
    fields: dict[str, Any] = {"invalid": found.message, "revision": ""} if isinstance(found, FieldError) else {}
    if pool is not None:
        fields = _of_valid(pool, status.updated_replicas or 0)
        fields["revision"] = revision_number(snapshot, status.update_revision or "")
    in_steps = bool(fields.get("step"))
    revisions = read_revisions(snapshot, pool.intent.template) if pool is not None else None
    machines = sorted(snapshot.members, key=lambda each: (_place(snapshot.ordinal_of(each)), each.metadata.name))
    fields["old_revision"] = revision_number(snapshot, status.current_revision or "")
    fields["members"] = tuple(_member(snapshot, revisions, each, pool, in_steps=in_steps) for each in machines)
    fields["percentage"] = limit if isinstance(limit := owner.spec.max_unavailable, str) else ""
    return situation_in_plan(POOLS, snapshot.pools.group, snapshot, plan, status, **fields)


def _of_valid(pool: PoolSituation, updated: int) -> dict[str, Any]:
    intent, outdated = (
        pool.intent,
        pool.members.where(lambda each: not is_deleting(each.vm) and not is_updated(pool.revisions, each)),
    )
    excluded = sum(not (allows(intent.update.selection, each.vm) and pool.is_in_steps(each)) for each in outdated)
    target, steps, present = intent.replicas - excluded, pending_steps(pool), pool.members.without(pool.lost)
    down = outage_of(pool.staying, pool.now, intent.min_ready_s).number
    lost = len(pool.members) - len(present) - pool.bridged
    subjects = [each.name for each, _ in find_troubles(pool, intent.settings.deadline)]
    return {
        "wanted": intent.replicas,
        "target": target,
        "unavailable": outage_of(present, pool.now, intent.min_ready_s).number + lost + count_missing(pool),
        "available": max(intent.replicas - down - max(-pool.surplus, 0), 0),
        "bridged": pool.bridged,
        "most_unavailable": pool.most_unavailable,
        "by_hand": _by_hand(pool, has_steps=bool(steps)) if updated < target else "",
        "left_out": _why_left_out(pool, excluded),
        "step": waiting_step(pool),
        "subject": next(iter([*subjects, *sorted(each.metadata.name for each in pool.known_lost)]), ""),
    }


def revision_number(snapshot: Snapshot, name: str, otherwise: str = "") -> str:
    """Return the number of a revision. A revision that does not exist is `otherwise`, or else the pool's generation,
    which is the number that a new revision gets.
    """
    found = (str(each.revision) for each in snapshot.revisions if each.metadata.name == name)
    return next(found, otherwise or str(snapshot.owner.metadata.generation or "")) if name else ""


def _place(ordinal: int | None) -> int:
    return PLAIN if ordinal is None else ordinal


def _why_left_out(pool: PoolSituation, number: int) -> str:
    if not number:
        return ""
    partition = annotations_of(pool.pool).get(PARTITION)
    reason = f"{PARTITION} is {partition}" if partition is not None else "spec.updateStrategy does not select them"
    return f"update: {number} outdated VMs stay outdated, because {reason}"


def _by_hand(pool: PoolSituation, *, has_steps: bool) -> str:
    revisions = read_revisions(pool.snapshot, pool.intent.template)
    outdated = sum(not is_deleting(each.vm) and not is_updated(revisions, each) for each in pool.members)
    if not outdated or pool.surplus < 0:
        return ""
    match pool.intent.update.strategy:
        case Strategy.UNMANAGED:
            return f"{outdated} VMs are outdated, and spec.updateStrategy unmanaged leaves them so"
        case Strategy.OPPORTUNISTIC if not has_steps:
            return f"{outdated} VMs are outdated until a user restarts them: spec.updateStrategy is opportunistic"
    return ""


def _member(
    snapshot: Snapshot, revisions: Revisions | None, machine: Machine, pool: PoolSituation | None, *, in_steps: bool
) -> Member:
    vm, vmi = machine.vm, machine.vmi
    running = vmi_revision_of(vmi) if vmi is not None else ""
    found = member_of(
        vm,
        vmi,
        snapshot.now,
        revision=revision_number(snapshot, revision_of(vm), revision_of(vm)),
        running_revision=revision_number(snapshot, running, running),
        is_updated=revisions is not None and is_updated(revisions, machine),
        unready_since=member_stuck_since(snapshot.revisions, machine),
    )
    if pool is None:
        return found
    if in_steps and not found.is_updated and not pool.is_above_partition(machine):
        found = replace(found, note=", ".join(filter(None, (found.note, "waits for a later step"))))
    lost = lost_problem(pool, machine)
    return replace(found, problem=lost.detail, lost_node=found.node) if lost is not None else found


def member_of(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, **fields: Any) -> Member:
    """Return a VM of a pool with what the VM and its VMI show. `fields` has the other fields."""
    is_well = is_deleting(vm) or is_ready(vm) or not is_meant_to_run(vm)
    return Member(
        kind="vm",
        name=vm.metadata.name,
        status=TERMINATING if is_deleting(vm) else printable_status_of(vm) or "Pending",
        is_ready=is_ready(vm),
        is_deleting=is_deleting(vm),
        node=vmis.node_of(vmi) if vmi is not None else "",
        created=vm.metadata.creation_timestamp,
        problem="" if is_well else cause_text_of_vm(vm, vmi),
        finalizers=finalizers_of(vm.metadata),
        stopped=stopped_by(vm),
        **marks_of(vm, "vm", now),
        **fields,
    )


def visible_members(
    owner: Pool, found: Iterable[tuple[VirtualMachine, VirtualMachineInstance | None]], now: datetime
) -> tuple[Member, ...]:
    """Return the VMs of a pool. The current revision and the numbers of revisions come from names alone."""
    current = (owner.status.update_revision if owner.status is not None else None) or ""
    members = []
    for vm, vmi in found:
        revision = revision_of(vm)
        shown, is_current = revision.removeprefix(f"{owner.metadata.name}-"), bool(current) and revision == current
        members.append(member_of(vm, vmi, now, revision=shown, is_updated=is_current))
    return tuple(sorted(members, key=lambda each: (_place(ordinal_of(each.name, owner.metadata.name)), each.name)))
