"""The facts about a valid pool that the stages of a plan share. The status is computed from the same facts."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import IN_SERVICE, PARTITION_REVISION, standby_mark
from controller.kubevirt.vms import is_deleting, revision_of, template_labels_of
from controller.pool.leaving.claims import Claims, choose_claims
from controller.pool.members.ledger import count_substitutes, is_known_loss, lost_members, outage_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import Revisions, read_revisions, revisions_in_use, template_of
from controller.pool.members.select import allows
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.intent import Intent, parse_intent
from controller.pool.spec.partition import noted_step
from controller.pool.spec.policies import Strategy
from controller.pool.spec.template import Template
from controller.replicas import target
from controller.replicas.draining import is_draining
from controller.replicas.rollback import rolled_out, usable_template
from informers.memo import LastResult
from informers.meta import ObjectMeta, annotations_of


class Target(target.Target[Template], frozen=True, kw_only=True):
    """`step` is the present step of the update, from 1. VMs with an ordinal below `partition` keep their revision in
    this step, and those below `last_partition` in all steps. `standbys` is the number of standby VMs that have room.
    """

    step: int = 0
    partition: int = 0
    last_partition: int = 0
    standbys: int = 0


class Situation(Struct, frozen=True):
    """A valid pool in one reconciliation.

    - `lost`: the UIDs of the members whose node may not answer, if the pool has substitutes for them (P28).
    - `known_lost`: the members that are lost for certain.
    - `doomed`: the UIDs of the members that healing deletes, or that have finished and leave, in this reconciliation.
    - `known_steps`: the steps that `rollout.steps` has found, each with its VM, by the identity of the VM.
    """

    snapshot: Snapshot
    intent: Intent
    target: Target
    claims: Claims
    revisions: Revisions
    lost: frozenset[str]
    known_lost: Machines
    doomed: frozenset[str] = frozenset()
    known_steps: dict[int, tuple[Machine, Any]] = field(default_factory=dict)

    @property
    def members(self) -> Machines:
        """The VMs that stay in the pool."""
        return self.claims.kept

    @property
    def most_unavailable(self) -> int:
        """The maximum number of VMs that the controller may make unavailable at the same time (P14)."""
        return self.intent.max_unavailable.of(self.target.regular)

    @property
    def claimed(self) -> Machines:
        """The claimed VMs. They are members, but no rule counts, changes or replaces them (P33)."""
        return self.claims.claimed

    @property
    def standby(self) -> Machines:
        """The standby VMs. They are members, but only `pool.standby` and a scale-out count them (P32)."""
        return self.claims.standby

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
        return len(self.staying) - self.target.regular

    @property
    def bridged(self) -> int:
        """The number of lost VMs in whose place another VM exists."""
        return min(max(self.surplus + len(self.lost), 0), len(self.lost))

    @property
    def replaced(self) -> frozenset[str]:
        """The UIDs of the lost VMs if other VMs do the work of all of them (P28)."""
        lost = {each.metadata.uid for each in self.known_lost}
        return frozenset(lost if len(lost) <= self.bridged else ())

    def wholly_ready(self) -> tuple[str, datetime | None]:
        """Return the revision that all VMs and VMIs have, if all wanted VMs exist, at least one should run, and all
        that should run are available. Otherwise return "", and the time at which the next of them becomes available or
        None.
        """
        members, templates, names = self.members, self.revisions.templates, revisions_in_use(self.members)
        if not names <= templates.keys() or len({templates[name].digest for name in names}) != 1:
            return "", None
        is_changing = len(members) < self.target.wanted or members.some(lambda each: is_deleting(each.vm))
        if is_changing or not members.some(lambda each: each.should_run):
            return "", None
        outage = outage_of(members.without(self.replaced), self.now, self.intent.min_ready_s)
        return ("", outage.ends_at) if outage.number else (max(names), None)

    def may_update(self, machine: Machine) -> bool:
        """Return True if the update strategy and its selectors allow an update of the VM. The partition is not checked
        (see `is_above_partition`).
        """
        update = self.intent.update
        if update.strategy is Strategy.UNMANAGED or is_deleting(machine.vm) or self.is_left_out(machine):
            return False
        return allows(update.selection, machine.vm)

    def is_left_out(self, machine: Machine) -> bool:
        """Return True if the VM is out of its Services, and no mark says why: a backup has restored a standby or a VM
        that drained, without its annotations. It becomes a woken VM before its template changes (P32).
        """
        meta, wanted = machine.metadata, self.intent.template.machine_labels.get(IN_SERVICE)
        has_reason = bool(standby_mark(meta)) or is_draining(meta)
        return wanted == "true" and not has_reason and template_labels_of(machine.vm).get(IN_SERVICE) == "false"

    def revisions_of_spec(self) -> Revisions:
        """Return the revisions with the template of the spec, also after the VMs have returned from it (P29)."""
        is_return = self.target.rejected is not None
        return read_revisions(self.snapshot, self.intent.template) if is_return else self.revisions

    def is_above_partition(self, machine: Machine) -> bool:
        """Return True if the ordinal of the VM is not below the partition. A VM without an ordinal is never updated."""
        ordinal = self.snapshot.ordinal_of(machine)
        return ordinal is not None and ordinal >= self.target.partition

    def is_rejected(self, name: str) -> bool:
        """Return True if the VMs have returned from the template of the revision `name` (P29)."""
        template, rejected = self.revisions.templates.get(name), self.target.rejected
        return template is not None and rejected is not None and template.digest == rejected.digest

    def is_in_steps(self, machine: Machine) -> bool:
        """Return True if the VM is above the partition in the present step, or will be in a later step."""
        ordinal = self.snapshot.ordinal_of(machine)
        return ordinal is not None and ordinal >= self.target.last_partition


@LastResult
def situation_of(snapshot: Snapshot) -> Situation | FieldError:
    """Return the situation of a pool before any part of the plan is known, or the error of its spec."""
    intent = parse_intent(snapshot.owner)
    if isinstance(intent, FieldError):
        return intent
    claims = choose_claims(snapshot, intent)
    members, own, after = claims.kept, intent.template, intent.substitute_lost_after
    template, rejected, stranded = rolled_out(intent.settings, own, own.digest, usable_in(snapshot, intent))
    revisions = read_revisions(snapshot, template, rejected)
    lost = known_lost = Machines()
    if after is not None:
        lost = lost_members(members)
        known_lost = lost.where(lambda each: is_known_loss(each, after, snapshot.now))
    found = Target(
        template=template,
        rejected=rejected,
        stranded=stranded,
        replicas=_unclaimed(intent, snapshot.limits.max_replicas, len(claims.claimed), len(members)),
        limit=snapshot.limits.max_replicas,
        young=len(claims.placed),
        existing=len(members),
    )
    substitutes = count_substitutes(intent, found.regular, found.limit, known_lost, snapshot.now)
    found = replace(found, substitutes=substitutes, existing=max(found.existing - substitutes, 0))
    others = found.wanted + len(claims.claimed) + len(claims.young)
    room = max(found.limit - others, 0) if found.limit else intent.standbys
    found = replace(found, standbys=min(intent.standbys, room))
    found = _at_step(snapshot, intent, found, revisions, claims)
    uids = frozenset(each.metadata.uid for each in lost)
    return Situation(snapshot, intent, found, claims, revisions, uids, known_lost)


def _unclaimed(intent: Intent, limit: int, claimed: int, existing: int) -> int:
    """Return the number of wanted VMs without the claimed ones (P33). This is the number in the spec, if there is room
    beside the claimed VMs. VMs that exist stay.
    """
    if not claimed:
        return intent.replicas
    room = intent.replicas - max(claimed - intent.max_claimed, 0)
    room = min(room, limit - claimed) if limit else room
    return min(intent.replicas, max(room, existing))


def usable_in(snapshot: Snapshot, intent: Intent) -> Callable[[str], Template | str]:
    """Return a function that reads the template of a revision, or says why VMs cannot get it (P29)."""
    return lambda name: usable_template(name, snapshot.revisions, template_of, intent.selector)


def _at_step(snapshot: Snapshot, intent: Intent, found: Target, revisions: Revisions, claims: Claims) -> Target:
    """Return the target with the partition of the present step. A return to the template below the partition, by itself
    or by an undo, has no steps and no pauses.
    """
    if not intent.steps:
        return found
    meta = snapshot.owner.metadata
    members, ordinals = claims.kept, snapshot.ordinals_of(claims.kept)
    beside = snapshot.ordinals_of((*claims.claimed, *claims.standby, *claims.young))
    outdated = snapshot.ordinals_of(members.where(lambda each: not revisions.is_current(revision_of(each.vm))))
    missing = max(found.regular - len(ordinals), 0)
    partitions = [each.partition_of(ordinals, outdated, missing, beside) for each in intent.steps]
    is_return = found.rejected is not None or revisions.is_current(annotations_of(meta).get(PARTITION_REVISION, ""))
    step = len(partitions) if is_return else noted_step(meta, found.template.digest).step
    return replace(found, step=step, partition=min(partitions[:step]), last_partition=min(partitions))
