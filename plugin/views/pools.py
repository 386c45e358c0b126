"""The situation of a pool. The input is the same snapshot as the controller takes of the pool."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS
from controller.kubevirt import vmis
from controller.kubevirt.annotations import is_to_be_paused
from controller.kubevirt.busy import is_claimed
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.problems import cause_text_of_vm
from controller.kubevirt.standby import is_standby
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    is_deleting,
    is_ready,
    printable_status_of,
    revision_of,
    should_run,
    start_failures_of,
    stopped_by,
)
from controller.pool.health import problem_of
from controller.pool.members.ledger import flapping_since, outage_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.revisions import Revisions, is_updated, read_revisions, revision_number, template_of
from controller.pool.members.situation import Situation as PoolSituation
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.rollout.left_out import count_excluded
from controller.pool.rollout.partition_steps import waiting_step
from controller.pool.rollout.successors import count_missing
from controller.pool.spec.naming import ordinal_of
from controller.pool.spec.partition import WRONG
from controller.pool.status import next_status
from controller.replicas.kstatus import texts_of
from plugin.views.situation import (
    TERMINATING,
    Member,
    Situation,
    finalizers_of,
    image_in,
    marks_of,
    not_yet_tried,
    situation_in_plan,
    told_of,
)

PLAIN = 10**9
CLAIMED, STANDBY = "claimed", "standby"


def situation_of_pool(snapshot: Snapshot) -> Situation:
    plan, found, owner = plan_pool(snapshot), situation_of(snapshot), snapshot.owner
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    pool: PoolSituation | None = None
    of_spec: Revisions | None = None
    fields: dict[str, Any]
    if isinstance(found, FieldError):
        fields = {"invalid": found.message, "revision": ""}
    else:
        pool, of_spec = found, read_revisions(snapshot, found.intent.template)
        fields = _of_valid(pool)
        fields["revision"] = revision_number(snapshot, status.update_revision or "")
    texts, in_steps = texts_of(status.conditions), bool(fields.get("step"))
    templates = ((each.metadata.name, template_of(each)) for each in snapshot.revisions)
    images = {name: image_in(template.spec) for name, template in templates if template is not None}

    def member(machine: Machine) -> Member:
        vm, vmi, downtime = machine.vm, machine.vmi, machine.downtime
        running = vmi_revision_of(vmi) if vmi is not None else ""
        found = member_of(
            vm,
            vmi,
            snapshot.now,
            revision=revision_number(snapshot, revision_of(vm), revision_of(vm)),
            image=images.get(revision_of(vm), ""),
            running_revision=revision_number(snapshot, running, running),
            is_updated=of_spec is not None and is_updated(of_spec, machine),
            unready_since=flapping_since(snapshot.revisions, machine, snapshot.now),
            restarts=(downtime.crashes if downtime is not None else 0) or start_failures_of(vm) or None,
        )
        if pool is None:
            return found
        found = told_of(found, problem_of(pool, machine), texts)
        if in_steps and not found.is_updated and not pool.is_above_partition(machine):
            found = replace(found, note=", ".join(filter(None, (found.note, "waits for a later step"))))
        return found

    machines = sorted(snapshot.members, key=lambda each: (_place(snapshot.ordinal_of(each)), each.metadata.name))
    fields["old_revision"] = revision_number(snapshot, status.current_revision or "")
    fields["members"] = tuple(map(member, machines))
    fields["percentage"] = limit if isinstance(limit := owner.spec.max_unavailable, str) else ""
    return situation_in_plan(POOLS, snapshot.pools.group, snapshot, plan, status, **fields)


def _of_valid(pool: PoolSituation) -> dict[str, Any]:
    intent, present = pool.intent, pool.members.without(pool.lost)
    down = outage_of(pool.staying, pool.now, intent.min_ready_s).number
    lost = len(pool.members) - len(present) - pool.bridged
    return {
        "wanted": intent.replicas,
        # A wrong partition leaves out all VMs, and no user wants that.
        "target": intent.replicas - (count_excluded(pool) if intent.steps != WRONG else 0),
        "unavailable": outage_of(present, pool.now, intent.min_ready_s).number + lost + count_missing(pool),
        "available": max(intent.replicas - down - max(-pool.surplus, 0), 0),
        "bridged": pool.bridged,
        "most_unavailable": pool.most_unavailable,
        "step": waiting_step(pool),
    }


def _place(ordinal: int | None) -> int:
    return PLAIN if ordinal is None else ordinal


def member_of(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, **fields: Any) -> Member:
    """Return a VM of a pool with what the VM and its VMI show. `fields` has the other fields."""
    is_paused = is_standby(vm, vmi, now) and is_to_be_paused(vm.metadata) and not is_deleting(vm)
    is_well = is_deleting(vm) or is_ready(vm) or not should_run(vm, vmi) or is_paused
    word = TERMINATING if is_deleting(vm) else printable_status_of(vm) or "Pending"
    beside = CLAIMED if is_claimed(vm.metadata) else STANDBY if is_standby(vm, vmi, now) else ""
    return Member(
        kind="vm",
        name=vm.metadata.name,
        status="Standby" if is_paused and word == "Paused" else word,
        is_ready=is_ready(vm),
        is_deleting=is_deleting(vm),
        node=vmis.node_of(vmi) if vmi is not None else "",
        created=vm.metadata.creation_timestamp,
        problem="" if is_well else cause_text_of_vm(vm, vmi),
        finalizers=finalizers_of(vm.metadata),
        stopped="" if beside == STANDBY else stopped_by(vm, vmi),
        beside=beside,
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
