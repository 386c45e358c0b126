"""The facts about a valid pool that the stages of a plan share. The status is computed from the same facts."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.vms import is_deleting, revision_of
from controller.pool.members.lost import count_substitutes, lost_members
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import Revisions, read_revisions, template_of
from controller.pool.members.select import allows
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.intent import Intent
from controller.pool.spec.partition import noted_step
from controller.pool.spec.policies import Strategy
from controller.pool.spec.template import Template
from controller.replicas.release_delay import wanted_beside
from controller.replicas.replica_limit import limited
from controller.replicas.rollback import after_return, usable_template
from informers.meta import ObjectMeta


class Situation(Struct, frozen=True):
    """A valid pool in one reconciliation.

    - `members`: in a plan, the VMs that stay in the pool. In the status, all VMs that the pool controls.
    - `lost`: the UIDs of the members whose node may not answer, if the pool has substitutes for them (P28).
    - `doomed`: the UIDs of the members that healing deletes, or that have finished and leave, in this reconciliation.
    """

    snapshot: Snapshot
    intent: Intent
    revisions: Revisions
    members: Machines
    lost: frozenset[str] = frozenset()
    doomed: frozenset[str] = frozenset()

    @property
    def now(self) -> datetime:
        return self.snapshot.now

    @property
    def pool(self) -> ObjectMeta:
        return self.snapshot.owner.metadata

    @property
    def staying(self) -> Machines:
        """The members that stay in this reconciliation. Lost VMs are not counted, because they do no work."""
        return self.members.where(lambda each: not is_deleting(each.vm)).without(self.doomed | self.lost)

    @property
    def surplus(self) -> int:
        """The number of members that the pool has too many. It is negative if members are missing."""
        return len(self.staying) - self.intent.wanted_without_substitutes

    @property
    def bridged(self) -> int:
        """The number of lost VMs in whose place another VM exists."""
        return min(max(self.surplus + len(self.lost), 0), len(self.lost))

    def may_update(self, machine: Machine) -> bool:
        """Return True if the update strategy and its selectors allow an update of the VM. A terminating VM is not
        updated.

        The result depends only on the traits of the VM. The partition is not checked (see `is_above_partition`).
        """
        update = self.intent.update
        if update.strategy is Strategy.UNMANAGED or is_deleting(machine.vm):
            return False
        return allows(update.selection, machine.vm)

    def is_above_partition(self, machine: Machine) -> bool:
        """Return True if the ordinal of the VM is not below the partition. A VM without an ordinal is never updated."""
        ordinal = self.snapshot.ordinal_of(machine)
        return ordinal is not None and ordinal >= self.intent.partition

    def is_rejected(self, name: str) -> bool:
        """Return True if the VMs have returned from the template of the revision `name` (P29)."""
        template, rejected = self.revisions.templates.get(name), self.intent.rejected
        return template is not None and rejected is not None and template.digest == rejected.digest

    def is_in_steps(self, machine: Machine) -> bool:
        """Return True if the VM is above the partition in the present step, or will be in a later step."""
        ordinal = self.snapshot.ordinal_of(machine)
        return ordinal is not None and ordinal >= self.intent.last_partition


def situation_of(snapshot: Snapshot, intent: Intent, members: Machines, *, young: int = 0) -> Situation:
    """Return the situation of a pool with these members, before any part of the plan is known.

    `young` is the number of further members whose release waits.
    """
    wanted = limited(wanted_beside(young, intent.replicas, len(members)), len(members), snapshot.limits.max_replicas)
    intent = replace(intent, wanted=wanted)
    usable = usable_in(snapshot, intent)
    intent = after_return(intent, snapshot.owner.metadata, intent.template.digest, usable)
    revisions = read_revisions(snapshot, intent.template, intent.rejected)
    lost = lost_members(members) if intent.substitute_lost_after is not None else Machines()
    substitutes = count_substitutes(snapshot, intent, members)
    intent = replace(_at_step(snapshot, intent, revisions), wanted=intent.wanted + substitutes, substitutes=substitutes)
    return Situation(snapshot, intent, revisions, members, frozenset(each.metadata.uid for each in lost))


def usable_in(snapshot: Snapshot, intent: Intent) -> Callable[[str], Template | str]:
    """Return a function that reads the template of a revision, or says why VMs cannot get it (P29)."""
    return lambda name: usable_template(name, snapshot.revisions, template_of, intent.selector)


def _at_step(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> Intent:
    """Return the intent with the partition of the present step.

    The VM with the lowest ordinal is updated last. If it has the current template, the pool returns to this template,
    or the update has reached the last step. A return needs no steps. While this VM is missing, only the note counts.
    """
    if not intent.steps:
        return intent
    machines = {ordinal: each for each in snapshot.members if (ordinal := snapshot.ordinal_of(each)) is not None}
    ordinals, missing = sorted(machines), max(intent.wanted - len(machines), 0)
    partitions = [each.partition_of(ordinals, missing) for each in intent.steps]
    step, _ = noted_step(snapshot.owner.metadata, intent.template.digest)
    lowest = machines.get(0 if missing or not ordinals else ordinals[0])
    if lowest is not None and revisions.is_current(revision_of(lowest.vm)):
        step = len(partitions)
    return replace(intent, step=step, partition=min(partitions[:step]), last_partition=min(partitions))
