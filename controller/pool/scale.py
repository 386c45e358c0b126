"""Scaling: new VMs get the smallest free ordinals (P3, P4), and policies choose the surplus VMs to delete (P8, P9).

A terminating VM still exists. For scale-out, a terminating VM counts as a VM of the pool, and its name stays taken. So
the pool never has too many VMs. For scale-in, a terminating VM counts as already deleted. So the pool does not delete a
second VM in place of a VM that is still terminating.
"""

from collections.abc import Mapping
from itertools import chain, filterfalse
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import PROTECT, SCALE_IN
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_finished
from controller.pool.failures import is_scale_out_failing
from controller.pool.healing.failing import read_records
from controller.pool.leaving.deletes import delete_of, hold
from controller.pool.leaving.disks import add_finalizers, is_safe_to_delete, reusable_disks, usable_disks
from controller.pool.members.machine import Machines
from controller.pool.members.revisions import plan_revision
from controller.pool.members.select import Candidates, choose_for_removal
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.successors import STANDING, SUBSTITUTED, body_of, template_for
from controller.pool.spec.indexing import own_disks
from controller.pool.spec.naming import free_ordinals, name_of, ordinal_of
from controller.pool.spec.policies import Strategy
from controller.pool.standby import missing_standbys, plan_wakes, to_wake
from controller.pool.substitutes import choose_leavers, is_substitute
from controller.replicas.conditions import counted
from controller.replicas.notes import MAX_NOTICES
from controller.runtime.actions import Confirm, ConfirmFree, Create, Notice, Plan, Stage, join, stage_of, waiting
from controller.runtime.waits import Why
from informers.meta import NO_LABELS, ObjectKey, ObjectMeta, controller_of, labels_of

NAMES_TAKEN: Final = "NamesTaken"

LOOK_AGAIN_S: Final = 10
"""The time in seconds until the next look at VMs without an owner. A change of such a VM wakes no pool."""


def plan_scale(situation: Situation) -> Plan:
    """Plan the creation of missing VMs or the deletion of surplus VMs."""
    missing, surplus = situation.target.wanted - len(situation.members), situation.surplus
    if waits_for_adoption(situation):
        return _wait_for_adoption(situation, unowned_vms(situation))
    if missing > 0:
        return _scale_out(situation, missing)
    if surplus <= 0:
        return Plan()
    if (strategy := situation.intent.scale_in.strategy) is not Strategy.PROACTIVE:
        stay = counted(surplus, "surplus virtual machine stays", "surplus virtual machines stay")
        held = f"{stay} until a user deletes VMs: scale-in is {strategy}"
        return waiting(held, Why.CHOICE)
    staying, number, waits = choose_leavers(situation)
    return join((_scale_in(situation, staying, number) if number > 0 else Plan(), waits))


def is_scale_out_refused(situation: Situation) -> bool:
    """Return True if VMs are missing, and the server refused to create VMs before. It will probably refuse again."""
    return len(situation.members) < situation.target.wanted and is_scale_out_failing(situation.snapshot.owner)


class Restored(Struct, frozen=True):
    """Tells for the metadata of a VM whether a backup may have restored it for this pool (P3)."""

    pool: str
    selector: Selector

    def __call__(self, vm: ObjectMeta) -> bool:
        is_free = controller_of(vm) is None and vm.deletion_timestamp is None
        return is_free and ordinal_of(vm.name, self.pool) is not None and self.selector.matches(labels_of(vm))


def unowned_vms(situation: Situation) -> list[VirtualMachine]:
    is_restored = Restored(situation.pool.name, situation.intent.selector)
    return [vm for vm in situation.snapshot.unowned if is_restored(vm.metadata)]


def waits_for_adoption(situation: Situation) -> bool:
    """Return True if VMs are missing, and a backup may have restored them, or some of them."""
    return len(situation.members) < situation.target.wanted and bool(unowned_vms(situation))


def _wait_for_adoption(situation: Situation, unowned: list[VirtualMachine]) -> Plan:
    names, more = tuple(vm.metadata.name for vm in unowned[:MAX_NOTICES]), len(unowned) - 1
    have, it, its = (f"and {more} more have names", "them", "their") if more else ("has a name", "it", "its")
    advice = f"adopt {it}, delete {it}, or change {its} labels"
    text = f"{names[0]} {have} of this pool and no owner, so the pool creates no virtual machine: {advice}"
    notice = Notice(reason=NAMES_TAKEN, message=text, once=f"{situation.pool.generation} {names[0]} {len(unowned)}")
    remedy = f"kubectl vmherd adopt {' '.join(f'vm/{name}' for name in names)} --to {{this}}"
    held = waiting(text, Why.USER, names=names, stall=NAMES_TAKEN, remedy=remedy)
    return replace(held, notices=(notice,), requeue_after_s=LOOK_AGAIN_S)


def _scale_out(situation: Situation, missing: int) -> Plan:
    """Plan the creation of missing VMs, or wake standbys in their place (P32). If the creates probably fail, their
    failure does not stop the update.
    """
    snapshot, target = situation.snapshot, situation.target
    why = f"{target.wanted - missing} of {target.wanted} VMs exist"
    # The last of the missing VMs are the substitutes (P28).
    regular = missing - max(target.substitutes - len(situation.members.where(is_substitute)), 0)
    woken = to_wake(situation, missing)
    left, room, limit = missing - len(woken), missing, snapshot.limits.max_replicas
    if situation.standby and limit:
        room = max(limit - len(snapshot.members), 0)  # outdated standbys leave first
    number = min(left, room, snapshot.limits.burst)
    marks = [SUBSTITUTED if each >= regular - len(woken) else NO_LABELS for each in range(number)]
    creation = _creation(situation, marks, why, essential=not is_scale_out_refused(situation))
    more = counted(left - number, "more create waits", "more creates wait")
    held = f"{more} for the next pass" if number < left else ""
    return join((plan_wakes(situation, woken, regular), Plan(stages=creation), waiting(held)))


def plan_new_standbys(situation: Situation) -> Plan:
    """Plan the creation of standbys. Their failure stops nothing."""
    number = 0 if unowned_vms(situation) else min(missing_standbys(situation), situation.snapshot.limits.burst)
    why = "a standby VM is missing"
    return Plan(stages=_creation(situation, [STANDING] * number, why, essential=False)) if number else Plan()


def _creation(situation: Situation, marks: list[Mapping[str, str]], why: str, *, essential: bool) -> tuple[Stage, ...]:
    """Return the stages that create a VM with each of these marks, with free ordinals."""
    snapshot, owner = situation.snapshot, situation.pool
    creates, usable = [], usable_disks(situation.intent, owner.name)
    ordinals, has_strangers = _free_slots(situation, len(marks)) if marks else ([], False)
    for mark, ordinal in zip(marks, ordinals, strict=False):
        revision, template = template_for(situation, ordinal)
        body = body_of(situation, ordinal, revision, template, mark)
        key = ObjectKey(owner.namespace, name_of(owner.name, ordinal))
        # The new VM must not use the disk of an earlier VM with the same name, because the garbage collector will
        # delete this disk.
        disks = reusable_disks(owner, own_disks(template, ordinal))
        create = Create(resource=VMS, key=key, body=body, owner_uid=owner.uid, why=why, reusable_disks=disks)
        creates.append(replace(create, usable=usable))
    return (
        *((_confirmation(snapshot),) if has_strangers else ()),
        *((_names_are_free(situation),) if creates and not snapshot.revisions else ()),
        *(plan_revision(snapshot, situation.revisions) if creates else ()),
        *stage_of(creates, essential=essential),
    )


def _free_slots(situation: Situation, number: int) -> tuple[list[int], bool]:
    """Return free ordinals, and whether a VM with one of them does not belong to the pool. The ordinals of healed VMs
    come first, because their kept disks wait for a VM with this name (P10), and then the smallest.
    """
    # The names of the members are compared first, because a look-up in the cache is slower.
    snapshot, pool = situation.snapshot, situation.pool.name
    own = {each.vm.metadata.name for each in snapshot.members}
    healed = sorted(each for each in read_records(situation) if name_of(pool, each) not in own)
    ordinals: list[int] = []
    has_strangers = False
    for ordinal in chain(healed, filterfalse({*healed}.__contains__, free_ordinals(pool, own))):
        if name_of(pool, ordinal) in snapshot.taken:
            has_strangers = True
            continue
        ordinals.append(ordinal)
        if len(ordinals) == number:
            break
    return ordinals, has_strangers


def _confirmation(snapshot: Snapshot) -> Stage:
    """Return a stage that checks on the server that the pool still exists.

    A VM with one of the smallest ordinals does not belong to the pool. It may have left it because a user deleted the
    pool with `--cascade=orphan`, and the cache may not show this yet. The garbage collector would soon delete the VMs
    that are created for a deleted pool, and their kept disks would stay without an owner.
    """
    owner = snapshot.owner.metadata
    why = "confirm the pool before new VMs replace those that left it"
    return Stage((Confirm(resource=snapshot.pools, key=owner.key, uid=owner.uid, why=why),))


def _names_are_free(situation: Situation) -> Stage:
    """Return a stage that looks on the server for VMs that a backup has restored (see `unowned_vms`): the cache may
    show them later than their pool. With its first revision, they would count as VMs that a user has detached.
    """
    key, selector = situation.snapshot.key, situation.intent.selector
    why, taken = "no VM without an owner has a name of this new pool", Restored(key.name, selector)
    return Stage((ConfirmFree(resource=VMS, key=key, selector=str(selector), taken=taken, why=why),))


def _scale_in(situation: Situation, staying: Machines, surplus: int) -> Plan:
    snapshot, intent = situation.snapshot, situation.intent
    most, if_unchanged = min(surplus, snapshot.limits.burst), intent.settings.spares_running
    # With `spares_running`, only VMs that have finished may leave (P25).
    eligible = staying.where(lambda each: has_finished(each.vm, each.vmi)) if if_unchanged else staying
    candidates = choose_for_removal(snapshot, intent.scale_in.selection, eligible, most=most)
    first = [each.vm for each in candidates.ranked]
    chosen = [vm for vm in first if vm.metadata.uid not in candidates.delicate]
    wanted, keep_disks = situation.target.regular, intent.scale_in.preserve
    unsafe = [vm for vm in chosen if keep_disks and not is_safe_to_delete(snapshot, vm)]
    why = f"surplus: {wanted + situation.surplus} VMs exist, {wanted} are wanted"
    safe = (vm for vm in chosen if vm not in unsafe)
    deletes = [delete_of(vm, why, keep_disks=keep_disks, if_unchanged=if_unchanged) for vm in safe]
    undeletable, unfinished = surplus - candidates.deletable, len(staying) - len(eligible)
    pattern = Notice(reason="ScaleInHeld", message="is surplus, but is not deleted now", once="scale-in held")
    delicate = [(vm, reason) for vm in first if (reason := candidates.delicate.get(vm.metadata.uid, ""))]
    waits = hold("scale-in", delicate, pattern)
    if undeletable > 0:
        held = f"{counted(undeletable, 'surplus virtual machine', 'surplus virtual machines')} may not be deleted"
        held += f": {SCALE_IN} keeps {unfinished} until they have finished" if unfinished else ""
        names = sorted(each.metadata.name for each in candidates.protected)
        kept = waiting(held, Why.PROTECTION if names else Why.USER, names=tuple(names[:MAX_NOTICES]))
        notice = _surplus_notice(situation, candidates, undeletable, unfinished)
        waits = replace(kept, notices=(notice, *waits.notices))
    elif not delicate and len(deletes) < surplus:
        waits = waiting(f"{surplus - len(deletes)} more deletes wait for the next pass")
    return replace(waits, stages=(*add_finalizers(unsafe), *stage_of(deletes, essential=True)))


def _surplus_notice(situation: Situation, candidates: Candidates, undeletable: int, unfinished: int) -> Notice:
    """Return an Event about the surplus VMs that may not be deleted (P8). It is sent again only if the spec or the
    wanted number of VMs changes.
    """
    reasons, wanted = [], situation.target.regular
    if candidates.unselected:
        reasons.append(f"{candidates.unselected} do not match the selectors of scaleInStrategy")
    if candidates.protected:
        reasons.append(f"{len(candidates.protected)} are protected by {PROTECT}")
    if unfinished:
        reasons.append(f"{unfinished} have not finished, and {SCALE_IN} keeps them until then")
    may_end = "ScaleInHeld" if unfinished else "ProtectedFromDeletion"
    return Notice(
        reason="ScaleInIncomplete" if candidates.unselected else may_end,
        message=f"{undeletable} surplus virtual machines stay, {wanted} are wanted: {', '.join(reasons)}",
        once=f"kept {situation.pool.generation} {wanted}",
    )
