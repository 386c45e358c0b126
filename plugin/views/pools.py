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
from controller.pool.members.machine import Machine, Machines, vmi_revision_of
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
from plugin.views.disks import disk_steps
from plugin.views.problems import problem_of_vm, status_of_vm
from plugin.views.situation import Member, Situation, finalizers_of, marks_of, not_yet_tried, situation_in_plan

PLAIN = 10**9


def situation_of_pool(snapshot: Snapshot) -> Situation:
    owner = snapshot.owner
    plan = plan_pool(snapshot)
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    found = situation_of(snapshot)
    situation = None if isinstance(found, FieldError) else found
    intent = situation.intent if situation is not None else None
    revisions = read_revisions(snapshot, intent.template) if intent is not None else None
    machines = sorted(snapshot.members, key=lambda each: (_place(snapshot.ordinal_of(each)), each.metadata.name))
    since = {
        each.metadata.name: start
        for each in machines
        if (start := member_stuck_since(snapshot.revisions, each)) is not None
    }
    wanted = intent.replicas if intent is not None else owner.spec.replicas or 0
    step = waiting_step(situation) if situation is not None else ""
    members = tuple(_member(snapshot, revisions, each, since.get(each.metadata.name), situation) for each in machines)
    if situation is not None and step:
        later = {each.metadata.name for each in machines if not situation.is_above_partition(each)}
        members = tuple(
            _in_later_step(each) if each.name in later and not each.is_updated else each for each in members
        )
    bridged = situation.bridged if situation is not None else 0
    left_out = _left_out(situation) if situation is not None else 0
    staying = _staying(snapshot)
    outage = outage_of(staying, snapshot.now, intent.min_ready_s if intent is not None else 0)
    target = wanted - left_out
    updated = status.updated_replicas or 0
    return situation_in_plan(
        POOLS,
        snapshot.pools.group,
        snapshot,
        status,
        since,
        plan=plan,
        wanted=wanted,
        updated=updated,
        target=target,
        unavailable=outage.number - bridged + max(wanted - len(staying), 0),
        bridged=bridged,
        most_unavailable=situation.most_unavailable if situation is not None else None,
        percentage=limit if isinstance(limit := owner.spec.max_unavailable, str) else "",
        revision=revision_number(snapshot, status.update_revision or "") if intent is not None else "",
        old_revision=revision_number(snapshot, status.current_revision or ""),
        members=members,
        invalid=found.message if isinstance(found, FieldError) else "",
        by_hand=_by_hand(situation, revisions) if updated < target else "",
        left_out=_why_left_out(snapshot, left_out),
        step=step,
        takeover_held=is_takeover_held(owner.metadata),
        recreation_held=any(each.needs_user and MOST_DISRUPTIVE in each.reason for each in disk_steps(snapshot)),
    )


def revision_number(snapshot: Snapshot, name: str) -> str:
    """Return the number of a revision. A revision that does not exist yet gets the pool's generation."""
    for revision in snapshot.revisions:
        if revision.metadata.name == name:
            return str(revision.revision)
    return str(snapshot.owner.metadata.generation or "") if name else ""


def _place(ordinal: int | None) -> int:
    return PLAIN if ordinal is None else ordinal


def _left_out(situation: PoolSituation) -> int:
    """Return the number of outdated members that all steps of the partition or the update selectors leave out."""
    return sum(
        not is_updated(situation.revisions, each)
        and not (allows(situation.intent.update.selection, each.vm) and situation.is_in_steps(each))
        for each in _staying(situation.snapshot)
    )


def _why_left_out(snapshot: Snapshot, number: int) -> str:
    if not number:
        return ""
    partition = annotations_of(snapshot.owner.metadata).get(PARTITION)
    reason = f"{PARTITION} is {partition}" if partition is not None else "spec.updateStrategy does not select them"
    return f"update: {number} outdated VMs stay outdated, because {reason}"


def _by_hand(situation: PoolSituation | None, revisions: Revisions | None) -> str:
    if situation is None or revisions is None:
        return ""
    intent, staying = situation.intent, _staying(situation.snapshot)
    outdated = [each for each in staying if not is_updated(revisions, each)]
    if not outdated or len(staying) < intent.replicas:
        return ""
    if is_takeover_held(situation.pool):
        return "its first update waits for the annotation vmherd.dev/takeover=proceed"
    number = f"{len(outdated)} VMs are outdated"
    if intent.update.strategy is Strategy.UNMANAGED:
        return f"{number}, and spec.updateStrategy unmanaged leaves them so"
    if intent.update.strategy is Strategy.OPPORTUNISTIC and not pending_steps(situation):
        return f"{number} until a user restarts them: spec.updateStrategy is opportunistic"
    return ""


def _staying(snapshot: Snapshot) -> Machines:
    return snapshot.members.where(lambda each: not is_deleting(each.vm))


def _member(
    snapshot: Snapshot,
    revisions: Revisions | None,
    machine: Machine,
    since: datetime | None,
    situation: PoolSituation | None,
) -> Member:
    vm, vmi = machine.vm, machine.vmi
    found = member_of(
        vm,
        vmi,
        snapshot.now,
        revision=_revision(snapshot, revision_of(vm)),
        running_revision=_revision(snapshot, vmi_revision_of(vmi)) if vmi is not None else "",
        is_updated=revisions is not None and is_updated(revisions, machine),
        unready_since=since,
    )
    lost = lost_problem(situation, machine) if situation is not None else None
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


def _in_later_step(member: Member) -> Member:
    return replace(member, note=", ".join(filter(None, (member.note, "waits for a later step"))))


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
