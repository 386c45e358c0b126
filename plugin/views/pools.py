"""The situation of a pool. The input is the same snapshot as the controller takes of the pool."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS
from controller.kubevirt import vmis
from controller.kubevirt.annotations import MOST_DISRUPTIVE, PARTITION, is_takeover_held
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, is_ready, revision_of, stopped_by
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
from controller.pool.rollout.update import pending_steps
from controller.pool.spec.naming import ordinal_of
from controller.pool.spec.policies import Strategy
from controller.pool.status import next_status
from controller.pool.substitutes import lost_problem
from informers.meta import annotations_of
from plugin.views.problems import problem_of_vm, status_of_vm
from plugin.views.situation import Member, Situation, finalizers_of, marks_of, not_yet_tried, situation_in_plan

PLAIN = 10**9


def situation_of_pool(snapshot: Snapshot) -> Situation:
    plan, found, owner = plan_pool(snapshot), situation_of(snapshot), snapshot.owner
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    pool = None if isinstance(found, FieldError) else found
    wanted = pool.intent.replicas if pool is not None else owner.spec.replicas or 0
    machines = sorted(snapshot.members, key=lambda each: (_place(snapshot.ordinal_of(each)), each.metadata.name))
    fields = _of_valid(pool, status.updated_replicas or 0) if pool is not None else {}
    in_steps = bool(fields.get("step"))
    revisions = read_revisions(snapshot, pool.intent.template) if pool is not None else None
    return situation_in_plan(
        POOLS,
        snapshot.pools.group,
        snapshot,
        status,
        **{
            "plan": plan,
            "wanted": wanted,
            "target": wanted,
            "updated": status.updated_replicas or 0,
            "unavailable": max(wanted - (status.ready_replicas or 0), 0),
            "percentage": limit if isinstance(limit := owner.spec.max_unavailable, str) else "",
            "revision": revision_number(snapshot, status.update_revision or "") if pool is not None else "",
            "old_revision": revision_number(snapshot, status.current_revision or ""),
            "members": tuple(_member(snapshot, revisions, each, pool, in_steps=in_steps) for each in machines),
            "invalid": found.message if isinstance(found, FieldError) else "",
        }
        | fields,
    )


def _of_valid(pool: PoolSituation, updated: int) -> dict[str, Any]:
    """Return the fields that the situation of a valid pool shows."""
    intent, outdated = pool.intent, pool.members.where(lambda each: _stays_outdated(pool, each))
    excluded = sum(not (allows(intent.update.selection, each.vm) and pool.is_in_steps(each)) for each in outdated)
    target, steps = intent.replicas - excluded, pending_steps(pool)
    return {
        "target": target,
        "unavailable": outage_of(pool.staying, pool.now, intent.min_ready_s).number + max(-pool.surplus, 0),
        "bridged": pool.bridged,
        "most_unavailable": pool.most_unavailable,
        "by_hand": _by_hand(pool, has_steps=bool(steps)) if updated < target else "",
        "left_out": _why_left_out(pool, excluded),
        "step": waiting_step(pool),
        "recreation_held": any(each.needs_user and MOST_DISRUPTIVE in each.reason for each in steps),
    }


def revision_number(snapshot: Snapshot, name: str) -> str:
    """Return the number of a revision. A revision that does not exist yet gets the pool's generation."""
    for revision in snapshot.revisions:
        if revision.metadata.name == name:
            return str(revision.revision)
    return str(snapshot.owner.metadata.generation or "") if name else ""


def _place(ordinal: int | None) -> int:
    return PLAIN if ordinal is None else ordinal


def _stays_outdated(pool: PoolSituation, machine: Machine) -> bool:
    return not is_deleting(machine.vm) and not is_updated(pool.revisions, machine)


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
    if is_takeover_held(pool.pool):
        return "its first update waits for the annotation vmherd.dev/takeover=proceed"
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
    found = member_of(
        vm,
        vmi,
        snapshot.now,
        revision=_revision(snapshot, revision_of(vm)),
        running_revision=_revision(snapshot, vmi_revision_of(vmi)) if vmi is not None else "",
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
    return Member(
        kind="vm",
        name=vm.metadata.name,
        status=status_of_vm(vm),
        is_ready=is_ready(vm),
        is_deleting=is_deleting(vm),
        node=vmis.node_of(vmi) if vmi is not None else "",
        created=vm.metadata.creation_timestamp,
        problem=problem_of_vm(vm, vmi),
        finalizers=finalizers_of(vm.metadata),
        note=marks_of(vm, now),
        stopped=stopped_by(vm),
        **fields,
    )


def _revision(snapshot: Snapshot, name: str) -> str:
    """Return the number of a revision. If the revision does not exist any more, return its name."""
    return revision_number(snapshot, name) if any(r.metadata.name == name for r in snapshot.revisions) else name


def visible_members(
    owner: Pool, found: Iterable[tuple[VirtualMachine, VirtualMachineInstance | None]], now: datetime
) -> tuple[Member, ...]:
    """Return the VMs of a pool. The current revision and the numbers of revisions come from names alone."""
    members = (_visible_member(owner, vm, vmi, now) for vm, vmi in found)
    return tuple(sorted(members, key=lambda each: (_place(ordinal_of(each.name, owner.metadata.name)), each.name)))


def _visible_member(owner: Pool, vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> Member:
    current = (owner.status.update_revision if owner.status is not None else None) or ""
    revision = revision_of(vm)
    shown = revision.removeprefix(f"{owner.metadata.name}-")
    return member_of(vm, vmi, now, revision=shown, is_updated=bool(current) and revision == current)
