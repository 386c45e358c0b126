"""Updates VMs to the current template, within limits (P14). A VM first gets the new spec (P12). Then its VMI gets the
change (P13).

If a new spec needs a restart, the proactive strategy also limits the number of ready VMs that get the spec. So a
template with an error reaches at most `maxUnavailable` ready VMs. A VM with the new spec counts towards this limit
until its VMI runs with the new template and is available. A live change makes no VM unavailable, so it has a limit of
its own (P13).
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nsmallest
from itertools import chain, islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.busy import lasting
from controller.kubevirt.delicate import PROTECTED, needs_manual_recovery
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, RESTART, VM_REQUESTS, VMIS, VMS
from controller.kubevirt.vms import AfterStop, after_stop, revision_of
from controller.pool.leaving.deletes import replacement_of
from controller.pool.leaving.disks import disks_in_use, kept_label, reusable_disks, usable_disks
from controller.pool.leaving.gates import own_disks_of
from controller.pool.members.ledger import member_stuck_since, outage_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.revisions import is_updated, plan_revision, revision_number
from controller.pool.members.select import in_order
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.effects import effect_of
from controller.pool.rollout.live import because, late_change, most_live_changes, note_scout
from controller.pool.rollout.steps import PendingStep, Step, pending_step
from controller.pool.rollout.successors import note_recreations, successor_of
from controller.pool.spec.indexing import encode_disks, encode_shape, own_disks
from controller.pool.spec.template import Template
from controller.replicas.conditions import machines_wait
from controller.replicas.kstatus import is_overdue
from controller.replicas.notes import MAX_NOTICES, merge_patch, wake_at, watch_progress
from controller.runtime.actions import (
    Cause,
    Delete,
    ExpandClaim,
    Member,
    Notice,
    Patch,
    Plan,
    Restart,
    Stage,
    ThreeWayMerge,
    join,
    stage_of,
)
from controller.runtime.waits import Wait, Why
from informers.meta import ObjectKey, controller_of, labels_of

UPDATE_HELD: Final = "UpdateHeld"
"""The reason of the Events about VMs whose update waits, and of the stall if it waits for a user."""


class Allowance(Struct, frozen=True):
    """The limits of one reconciliation (P14).

    `ready` is the number of ready VMs that may become unavailable. `is_unproven` is true if `maxUnavailable` or more
    VMs with the current template are unavailable. The template may then be broken, so unready VMs keep their template.
    `waits_s` is the time until the next VM counts as available, or None.
    """

    ready: int
    is_unproven: bool
    waits_s: float | None = None


class Choice(Struct, frozen=True):
    """The update steps of one reconciliation.

    `waiting` is the number of steps that wait for other VMs. `held` are the steps that must wait because of the state
    of the VM itself, for example during a snapshot. `changing` are the steps of VMs that KubeVirt changes while they
    run.
    """

    steps: list[PendingStep]
    waiting: int
    held: list[PendingStep]
    changing: list[PendingStep]


def pending_steps(situation: Situation) -> list[PendingStep]:
    """Return the next step of each VM that needs one, in the order of the sort policy. The VMs that healing deletes in
    the same plan are not updated.
    """

    def needs_step(machine: Machine) -> bool:
        return situation.may_update(machine) and pending_step(situation, machine) is not None

    needy = situation.members.where(needs_step).without(situation.doomed)
    eligible = filter(situation.is_above_partition, needy)
    ordered = in_order(situation.snapshot, situation.intent.update.selection, eligible)
    return [step for each in ordered if (step := pending_step(situation, each)) is not None]


def in_turn(pending: Iterable[PendingStep]) -> list[PendingStep]:
    """Return the steps in the order in which they begin: steps that put no ready VM at risk come first. Of the others,
    VMs that drain come first (P26), and then VMs that already have the current spec.
    """
    return sorted(pending, key=lambda each: (each.costly, not each.drains, not each.begun))


def plan_update(situation: Situation, pending: list[PendingStep], *, missing: int = 0) -> Plan:
    """Plan the pending update steps that come next, within the limits of one reconciliation. `missing` is the number of
    VMs that the controller has deleted and that the server does not let it create again: they are unavailable (P20).
    """
    if not pending:
        return Plan()
    allowance = _allowance(situation, pending, missing)
    choice = _choose(situation, pending, allowance)
    progress = Plan(
        stages=_stages(situation, choice.steps),
        notices=_held_notices(choice.held),
        waits=tuple(_waits(situation, choice)),
        requeue_after_s=allowance.waits_s if choice.waiting else None,
    )
    progress = join((progress, _watch_live_changes(situation, pending)))
    if choice.steps or not choice.waiting:
        return progress
    stuck, deadline = list(_blocking(situation, choice.held)), situation.intent.settings.deadline
    return watch_progress(progress, stuck, deadline, now=situation.now, template=situation.revisions.template.digest)


def _watch_live_changes(situation: Situation, pending: list[PendingStep]) -> Plan:
    """Return a plan that judges the live changes again in time, with an Event if one has exceeded the deadline."""
    deadline, live = situation.intent.settings.deadline, situation.snapshot.live or LiveUpdates()
    changing = [each for each in pending if each.is_unfinished]
    machines = (each.machine for each in changing)
    late = (each for each in machines if is_overdue(live.since.get(each.metadata.uid), situation.now, deadline))
    once = f"live {situation.revisions.template.digest}"
    notices = (Notice(reason="RolloutStalled", message=late_change(each), once=once) for each in islice(late, 1))
    return replace(wake_at((each.due for each in changing), situation.now), notices=tuple(notices))


def _blocking(situation: Situation, held: Iterable[PendingStep]) -> Iterator[tuple[datetime, str]]:
    """Yield the VMs that block the update of other VMs. Each entry has the time since when, and the name of the VM.

    A VM blocks the others if it is updated and not ready, if it or its VMI is terminating, or if it is not ready and
    its step is held (P22).
    """
    members, revisions = situation.members, situation.revisions
    new = members.where(lambda each: is_updated(revisions, each))
    for machine in chain(new, (each.machine for each in held)):
        if (since := member_stuck_since(situation.snapshot.revisions, machine)) is not None:
            yield since, machine.metadata.name
    for machine in members:
        of_vmi = vmis.terminating_since(machine.vmi) if machine.vmi is not None else None
        for since in (with_timezone(machine.metadata.deletion_timestamp), of_vmi):
            if since is not None:
                yield since, machine.metadata.name


def _allowance(situation: Situation, pending: Iterable[PendingStep], missing: int) -> Allowance:
    """Return the limits of this reconciliation. The VMs that the same plan heals, missing VMs, and VMs that are not
    ready and take the place of a wanted one until their release, are unavailable.
    """
    now, most, min_ready_s = situation.now, situation.most_unavailable, situation.intent.min_ready_s
    present = situation.members.without(situation.doomed).without(situation.lost)
    outage = outage_of(present, now, min_ready_s)
    on_current = present.where(lambda each: situation.revisions.is_current(revision_of(each.vm)))
    unproven = outage_of(on_current, now, min_ready_s).number
    # Another VM does the work of a lost VM, so such a lost VM does not count as unavailable (P28).
    leaving = len(situation.members) - len(present) - situation.bridged + missing
    young = outage_of(situation.claims.placed, now, min_ready_s)
    leaving += min(young.number, situation.target.kept - situation.target.regular)
    ends = [each for each in (outage.ends_at, young.ends_at) if each is not None]
    ready = most - outage.number - leaving
    # A VM that has the new spec and still runs is proof soon, but only if it can restart. If it waits for a VM that is
    # not ready, that VM must not wait for it.
    begun = sum(each.begun and each.takes_turn for each in pending) if ready > 0 else 0
    return Allowance(
        ready=ready,
        is_unproven=unproven + begun >= most,
        waits_s=max((min(ends) - now).total_seconds(), 0.0) if ends else None,
    )


def _choose(situation: Situation, pending: list[PendingStep], allowance: Allowance) -> Choice:
    """Return the update steps of this reconciliation: at most `burst` updates of VMs and `burst` other steps."""
    ready, waiting, burst = allowance.ready, 0, situation.snapshot.limits.burst
    # VMs that drain are out of service already. If too many VMs are, some of those that drain stay.
    drained = sum(each.costly and each.drains for each in pending) + min(ready, 0)
    chosen: list[PendingStep] = []
    held: list[PendingStep] = []
    left = {True: burst, False: burst}
    live_left = _live_room(situation, pending)
    for each in in_turn(pending):
        begins_live = each.live and each.step is Step.UPDATE
        needs_ready = each.costly or (begins_live and not each.risky)
        room = drained if each.drains else ready
        # A broken VM with the rejected template has nothing to lose by the way back (P29).
        is_risky = each.risky and not situation.is_rejected(revision_of(each.machine.vm))
        may_start = room > 0 if needs_ready else not (is_risky and allowance.is_unproven)
        ready -= each.takes_turn
        drained -= each.costly and not each.reason and each.drains
        if each.reason:
            held.append(each)
        elif each.step is Step.LIVE:
            continue
        elif not may_start or not left[each.step is Step.UPDATE] or (begins_live and live_left <= 0):
            waiting += 1
        else:
            left[each.step is Step.UPDATE] -= 1
            live_left -= begins_live
            chosen.append(each)
    return Choice(chosen, waiting, held, [each for each in pending if each.step is Step.LIVE])


def _live_room(situation: Situation, pending: list[PendingStep]) -> int:
    """Return the number of live changes that may begin. If restarts are forbidden, there is one scout at a time."""
    begun = [each for each in pending if each.step is not Step.UPDATE]
    if situation.intent.forbids_restarts and any(each.is_open for each in pending):
        return 1 - sum(each.is_open for each in begun)
    return most_live_changes(situation) - sum(each.live for each in begun)


def _stages(situation: Situation, steps: list[PendingStep]) -> tuple[Stage, ...]:
    """Return the stages of these steps. No stage is essential but the notes of the recreations and of the scout: a VM
    that cannot be patched or deleted must not delay other VMs.
    """
    merges = tuple(_spec_update(situation, each) for each in steps if each.step is Step.UPDATE)
    scouts = [each for each in steps if each.step is Step.BACK]
    expansions = (expansion for each in steps for expansion in _expansions(situation, each))
    changes = (_change_of_vmi(situation, each) for each in steps if each.step in (Step.RELABEL, Step.RESTART))
    recreated = [each for each in steps if each.step is Step.RECREATE]
    return (
        *(plan_revision(situation.snapshot, situation.revisions) if merges else ()),
        *stage_of(expansions),
        *stage_of(merges),
        *stage_of(changes),
        *(note_recreations(situation.snapshot, [each.machine for each in recreated]) if recreated else ()),
        *stage_of(_recreation(situation, each) for each in recreated),
        *(note_scout(situation, scouts[0].machine) if scouts else ()),
        *stage_of(_spec_update(situation, each) for each in scouts),
    )


def _expansions(situation: Situation, pending: PendingStep) -> Iterator[ExpandClaim]:
    vm = pending.machine.metadata
    for name, (old_size, size) in pending.sizes.items():
        yield ExpandClaim(
            resource=PVCS,
            key=ObjectKey(vm.namespace, name),
            size=size,
            old_size=old_size,
            owner=vm.key,
            owner_uid=vm.uid,
            source=DATA_VOLUMES,
            why=f"the pool's template has the size {size}, the size before was {old_size}",
            usable=None if situation.intent.adopts_disks else (kept_label(situation.pool.name),),
        )


def _recreation(situation: Situation, pending: PendingStep) -> Delete:
    vm, disks, current = pending.machine.vm, ", ".join(pending.lost_disks) or "none", situation.revisions.current
    why = f"its dataVolumeTemplates differ from revision {current}; its disks are deleted with it: {disks}"
    return replacement_of(vm, why, cause=Cause.UPDATE, successor=successor_of(situation, vm))


def _waits(situation: Situation, choice: Choice) -> Iterator[Wait]:
    if choice.waiting:
        yield Wait(text=f"update: {machines_wait(choice.waiting)} until more are ready", why=Why.OTHERS)
    if choice.changing:
        first, more = choice.changing[0], len(choice.changing) - 1
        others = f", and so are {more} more virtual machines" if more else ""
        yield Wait(text=f"update: {first.machine.metadata.name} is changed while it runs{others}")
    if choice.held:
        # A step that waits for its user comes first.
        rank_of = situation.snapshot.rank_of
        held = nsmallest(MAX_NOTICES, choice.held, key=lambda each: (not each.needs_user, rank_of(each.machine)))
        first, more = held[0], len(choice.held) - 1
        others = f", and {machines_wait(more, 'more ')}" if more else ""
        yield Wait(
            text=f"update: {first.machine.metadata.name} waits: {first.reason}{others}",
            why=Why.PROTECTION if first.reason == PROTECTED else Why.USER,
            names=tuple(each.machine.metadata.name for each in held),
            stall=UPDATE_HELD if first.needs_user else "",
            remedy=first.remedy,
        )


def _held_notices(held: list[PendingStep]) -> tuple[Notice, ...]:
    """Return an Event for each VM whose update waits, at most `MAX_NOTICES`. Each reason is reported once for a VM."""
    return tuple(
        Notice(
            reason=UPDATE_HELD,
            message=f"{each.machine.metadata.name} is not updated now: {each.reason}",
            warning=needs_manual_recovery(each.machine.vm),
            once=f"{each.machine.metadata.uid} {lasting(each.reason)}",
        )
        for each in held[:MAX_NOTICES]
    )


def _spec_update(situation: Situation, pending: PendingStep) -> ThreeWayMerge:
    vm, revisions = pending.machine.vm, situation.revisions
    ordinal, name, wanted = situation.snapshot.ordinal_of(vm) or 0, revision_of(vm), revisions.current
    if pending.step is Step.BACK and pending.machine.vmi is not None:
        wanted = vmi_revision_of(pending.machine.vmi)
    template, label = revisions.templates[wanted], labels_of(vm.metadata).get(REVISION_NAME, "")
    past = revisions.templates.get(name)
    known, disks = own_disks_of(pending.machine), own_disks(template, ordinal)
    return ThreeWayMerge(
        resource=VMS,
        key=vm.metadata.key,
        uid=vm.metadata.uid,
        old=_known_shape(pending.machine, past or template, ordinal, label if past is not None else None),
        new=encode_shape(template, ordinal, wanted),
        why=f"{effect_of(pending)}{because(pending.obstacle)}, from revision {label or '(not known)'} to {wanted}",
        owner_uid=situation.pool.uid,
        is_exact=pending.is_open and situation.intent.forbids_restarts,
        judged=pending.stops,
        disks=disks_in_use(vm) if pending.interrupts else (),
        reusable_disks=reusable_disks(vm.metadata, [each for each in disks if each not in known]),
        usable=usable_disks(situation.intent, situation.pool.name),
    )


def _known_shape(machine: Machine, template: Template, ordinal: int, label: str | None) -> bytes:
    """Return what the VM has of its template, with its `label`. If its revision is unknown, the label is None. Then the
    merge sets every field of the new template, but it leaves disks with other names as they are (P2).
    """
    if label is not None:
        return encode_shape(template, ordinal, label)
    own = own_disks_of(machine)
    return encode_disks(template, ordinal) if own and {*own} != {*own_disks(template, ordinal)} else b"{}"


def _change_of_vmi(situation: Situation, pending: PendingStep) -> Delete | Patch | Restart:
    machine = pending.machine
    vm, revision = machine.metadata, revision_of(machine.vm)
    assert machine.vmi is not None, "only a VM with a VMI needs such a step"
    vmi = machine.vmi.metadata
    if pending.step is Step.RELABEL:
        why = "KubeVirt has changed the running VMI" if pending.live else "the VMI template did not change"
        return merge_patch(VMIS, vmi, {"labels": {REVISION_NAME: revision}}, why, judged=pending.live)
    number = revision_number(situation.snapshot, revision, revision)
    why = f"its template is older than the pool's template (revision {number})"
    owner, disks = controller_of(vm), disks_in_use(machine.vm)
    owner_uid = owner.uid if owner is not None else ""
    member = Member(resource=VMS, key=vm.key, uid=vm.uid, owner_uid=owner_uid, must_ask=pending.live)
    if after_stop(machine.vm) is AfterStop.STARTS:
        # Without an owner's UID, the action gives up after a change of the VMI, and a new plan judges it again (P20).
        return Delete(
            resource=VMIS, key=vmi.key, uid=vmi.uid, version=vmi.resource_version, why=why, member=member, disks=disks
        )
    return Restart(
        resource=VMS,
        key=vm.key,
        uid=vm.uid,
        requests=VM_REQUESTS,
        subresource=RESTART,
        instance=VMIS,
        instance_uid=vmi.uid,
        why=why,
        member=member,
        disks=disks,
    )
