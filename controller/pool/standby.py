"""Standby VMs: the pool prepares VMs beside its wanted ones, and they rest until a scale-out wakes them (P32).

A standby is created like any other VM, with a free ordinal and the mark `STANDBY_STATE`. It is stopped when it has been
ready with the template that a new VM of its ordinal would get. One patch writes the mark and the run strategy, and one
patch changes both back. So a crash leaves no VM between two states. Only the rules of this module count the standbys
(see `leaving.claims`). Wanted VMs come first: a standby is created only if no wanted VM is missing or lacks room.

If the pool pauses its standbys, a request to virt-api takes the place of the run strategy, so there are more steps. To
rest, the VM gets the mark `pausing`, its VMI is paused, and the mark says which VMI rests. To wake, the VMI is
unpaused, and then the VM is an ordinary one that still has the mark. So does a user who unpauses it. Each step follows
from the objects alone.

Nothing has ever served from a standby, so it is deleted and created again for a new template, a failure or a drain.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.raw_json import value_at
from controller.kubevirt.annotations import (
    DRAINED,
    DRAINING,
    IN_SERVICE,
    PAUSED,
    REMOVE,
    STANDBY_STATE,
    SUBSTITUTE,
    is_marked,
    is_to_be_paused,
)
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.resources import PAUSE, UNPAUSE
from controller.kubevirt.standby import TAKEN, Standby, has_standby_mark, is_resting, note_of, rests_with
from controller.kubevirt.vmis import is_active, is_paused, must_leave_node
from controller.kubevirt.vms import (
    BROKEN_STATES,
    has_finished,
    is_deleting,
    is_without_vmi,
    printable_status_of,
    revision_of,
    template_labels_of,
)
from controller.pool.failures import start_failure_of
from controller.pool.healing.failing import failure_of
from controller.pool.health import is_fully_ready, problem_of
from controller.pool.leaving.deletes import delete_of, hold, replacement_of
from controller.pool.leaving.disks import disks_in_use, is_safe_to_delete
from controller.pool.leaving.gates import Way, stop_of
from controller.pool.members.ledger import State, state_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.situation import Situation
from controller.pool.rollout.successors import successor_of, template_for
from controller.pool.spec.template import DiskChange, Template, disk_change
from controller.pool.woken import in_service, patch_of, plan_ordinary, request, woken_marks
from controller.replicas.conditions import machines_wait
from controller.replicas.notes import MAX_NOTICES, wake_at
from controller.runtime.actions import Action, Cause, Delete, Notice, Patch, Pause, Plan, join, stage_of, waiting
from controller.runtime.waits import LONGEST_DELAY
from informers.meta import annotations_of

_HALTED: Final = {"runStrategy": "Halted", "running": None}
_RESTS: Final = Notice(reason="StandbyRests", message="has been ready, and rests as a standby", warning=False)


def to_wake(situation: Situation, missing: int) -> list[Machine]:
    """Return the standbys that take the place of missing VMs, at most `burst` of them. Those that rest come first, in
    the order of their ordinals.

    A VM with RerunOnFailure does not start if KubeVirt sees its wake before the end of its VMI. A VM that is prepared
    out of service would stay so. A VM during a snapshot, one that fails, and one whose last change was refused, would
    not serve.
    """

    def may_wake(machine: Machine) -> bool:
        vm, vmi = machine.vm, machine.vmi
        is_stuck = vm.metadata.name in situation.snapshot.refused or delicate_reason(vm, vmi, situation.now)
        if is_deleting(vm) or is_stuck or not _is_current(situation, machine):
            return False
        if is_resting(machine.metadata):
            has_memory = vmi is not None and rests_with(vm, vmi) and not must_leave_node(vmi)
            return has_memory or (vmi is None and is_without_vmi(vm))
        problem = problem_of(situation, machine)
        return template_labels_of(vm).get(IN_SERVICE) != "false" and (problem is None or problem.is_slow)

    most = min(max(missing, 0), situation.snapshot.limits.burst)
    found = (each for each in situation.standby if may_wake(each)) if most else ()
    ranked = sorted(found, key=lambda each: (not is_resting(each.metadata), situation.snapshot.rank_of(each)))
    newest = [each for each in ranked if situation.is_above_partition(each)]
    room = max(missing - _lacking_below(situation), 0) if newest else 0
    left_out = {each.metadata.uid for each in newest[room:]}
    return [each for each in ranked if each.metadata.uid not in left_out][:most]


def _lacking_below(situation: Situation) -> int:
    """Return how many ordinals below the partition are free, if their VMs keep an earlier template. A standby with the
    new template does not take their place (P14).
    """
    snapshot, partition, newest = situation.snapshot, situation.target.partition, situation.revisions.template
    if not partition or template_for(situation, 0)[1].digest == newest.digest:
        return 0
    return partition - sum(ordinal < partition for ordinal in snapshot.ordinals_of(snapshot.members))


def plan_wakes(situation: Situation, machines: list[Machine], regular: int) -> Plan:
    """Plan to wake these standbys. Those after the first `regular` ones become substitutes (P28). One that is paused
    gets its marks when the cache shows that it runs.
    """
    wakes = [_wake(situation, each, number >= regular) for number, each in enumerate(machines)]
    told = Notice(reason="StandbyWoken", message="takes the place of a missing one", warning=False)
    return Plan(stages=stage_of(wakes), notices=_notices(told, wakes))


def _wake(situation: Situation, machine: Machine, is_substitute: bool) -> Patch | Pause:
    why = "it is a standby, and a VM is missing"
    if machine.vmi is not None and is_resting(machine.metadata):
        return request(machine.vmi, UNPAUSE, why)
    template = situation.revisions.templates[revision_of(machine.vm)]
    started = {name: value_at(template.spec, name) for name in ("runStrategy", "running")}
    return patch_of(machine, woken_marks(situation, machine, is_substitute), {**started, **in_service(machine)}, why)


def plan_standby(situation: Situation) -> Plan:
    """Plan the rest and the deletes of standbys. A scale-out wakes and creates them (`scale`)."""
    returned, number = plan_ordinary(situation), situation.target.standbys
    if not (situation.standby or number):
        return returned
    missing = situation.target.wanted - len(situation.members)
    taken = frozenset(each.metadata.uid for each in to_wake(situation, missing))
    alive = situation.standby.where(lambda each: not is_deleting(each.vm)).without(taken)
    in_order = sorted(alive, key=lambda each: (not is_fresh(situation, each), situation.snapshot.rank_of(each)))
    staying = in_order[:number]
    deletes, held = _deletes(situation, staying, in_order[number:])
    leaving = {each.uid for each in deletes}
    others = [each for each in staying if each.metadata.uid not in leaving]
    taken_off = [each for each in others if TAKEN in annotations_of(each.metadata)]
    marks = ((each, {STANDBY_STATE: annotations_of(each.metadata)[STANDBY_STATE]}) for each in taken_off)
    first: list[Patch | Pause] = [patch_of(each, {**mark}, {}, "its mark was removed") for each, mark in marks]
    others = [each for each in others if TAKEN not in annotations_of(each.metadata)]
    first += [step for each in others if (step := _begin_pause(situation, each)) is not None]
    rests = [rest for each in others if (rest := _end_preparation(situation, each)) is not None]
    pattern = Notice(reason="StandbyHeld", message="is a standby, and is not deleted now", once="standby held")
    own = Plan(
        stages=(*stage_of((*first, *rests)), *stage_of(deletes[: situation.snapshot.limits.burst])),
        notices=_notices(_RESTS, rests),
    )
    return join((returned, own, hold("standby", held, pattern), _progress(situation, staying)))


def lay_to_rest(situation: Situation, whole: Plan, scaling: Plan) -> Plan:
    """Return the whole plan. If the pool asks for it, VMs that the scale-in `scaling` deletes are laid to rest instead,
    as many as standbys are missing. They have drained, are ready and have the current template. A marked VM is deleted.
    """
    left = situation.target.standbys - len(situation.standby) if situation.intent.reuses else 0
    leaving = {each.uid for each in scaling.actions if isinstance(each, Delete)} if left > 0 else set()

    def may_serve_again(machine: Machine) -> bool:
        # The template of a VM depends on its ordinal, so each member is asked.
        is_fit = is_fully_ready(machine) and _runs_current(situation, machine)
        is_wanted = is_fit and not is_marked(machine.metadata, REMOVE)
        return is_wanted and not delicate_reason(machine.vm, machine.vmi, situation.now)

    found = (each for each in situation.members if each.metadata.uid in leaving) if leaving else ()
    reused = {each.metadata.uid: each for each in found if may_serve_again(each)}
    chosen = [each.uid for each in whole.actions if isinstance(each, Delete) and each.uid in reused][: max(left, 0)]
    if not chosen:
        return whole
    rests = {uid: _rest(reused[uid]) for uid in chosen}

    def instead(action: Action) -> Action:
        return rests.get(action.uid, action) if isinstance(action, Delete) else action

    stages = tuple(replace(each, actions=tuple(map(instead, each.actions))) for each in whole.stages)
    return replace(whole, stages=stages, notices=(*whole.notices, *_notices(_RESTS, list(rests.values()))))


def missing_standbys(situation: Situation) -> int:
    """Return the number of standbys to create now. While wanted VMs are missing or lack room, this is 0. Surplus VMs
    may be standbys that were started: then another one would be started, too.
    """
    # The release of a standby whose labels changed may wait, as that of any VM.
    young, target = situation.claims.young.where(lambda each: has_standby_mark(each.metadata)), situation.target
    number = target.standbys - len(situation.standby) - len(young) - max(situation.surplus, 0)
    if number <= 0 or len(situation.members) < target.wanted:
        return 0

    def lacks_room(machine: Machine) -> bool:
        return printable_status_of(machine.vm) == "ErrorUnschedulable" or start_failure_of(machine) is not None

    return 0 if situation.members.some(lacks_room) else number


def ready_standbys(situation: Situation) -> int:
    """Return the number of standbys whose Pods a disruption budget counts, on top of the others (P27)."""
    return len(situation.standby.where(lambda each: each.vmi is not None and is_fully_ready(each)))


def _is_current(situation: Situation, machine: Machine, revision: str = "") -> bool:
    """Return True if the VM, or this revision, has the template that a new VM of its ordinal would get."""
    past = situation.revisions.templates.get(revision or revision_of(machine.vm))
    return past is not None and past.digest == _template_of(situation, machine).digest


def _runs_current(situation: Situation, machine: Machine) -> bool:
    """Return True if the VM is current and its guest runs with this template. An update gives it to the VM first."""
    name = vmi_revision_of(machine.vmi) if machine.vmi is not None else ""
    return _is_current(situation, machine) and _is_current(situation, machine, name)


def is_fresh(situation: Situation, machine: Machine) -> bool:
    """Return True if the VM is current, and does not rest in the other mode."""
    meta, pauses = machine.metadata, situation.intent.pauses
    return _is_current(situation, machine) and (not is_resting(meta) or is_to_be_paused(meta) is pauses)


def _template_of(situation: Situation, machine: Machine) -> Template:
    return template_for(situation, situation.snapshot.ordinal_of(machine) or 0)[1]


def _may_rest(situation: Situation, machine: Machine) -> bool:
    state, _ = state_of(machine, situation.now, situation.intent.min_ready_s)
    is_due = state is State.AVAILABLE and not is_resting(machine.metadata) and _runs_current(situation, machine)
    return is_due and not delicate_reason(machine.vm, machine.vmi, situation.now)


def _begin_pause(situation: Situation, machine: Machine) -> Patch | Pause | None:
    """Return the first step or the second step to a VM that rests paused, or None."""
    if not situation.intent.pauses or machine.vmi is None or not _may_rest(situation, machine):
        return None
    why = "it has been ready, and rests as a standby with its memory"
    if is_to_be_paused(machine.metadata):
        return replace(request(machine.vmi, PAUSE, why), judged=True)
    return replace(patch_of(machine, {**note_of(Standby.PAUSING, machine.metadata.name)}, {}, why), judged=True)


def _end_preparation(situation: Situation, machine: Machine) -> Patch | None:
    """Return the last step to a VM that rests, or None."""
    meta, vmi = machine.metadata, machine.vmi
    if is_to_be_paused(meta) and not is_resting(meta) and vmi is not None and is_active(vmi) and is_paused(vmi):
        mark = note_of(f"{PAUSED}{vmi.metadata.uid}", meta.name)
        return patch_of(machine, {**mark}, {}, "it rests as a standby")
    return _rest(machine) if not situation.intent.pauses and _may_rest(situation, machine) else None


def _rest(machine: Machine) -> Patch:
    marks = {**note_of(Standby.RESTING, machine.metadata.name), **dict.fromkeys((DRAINING, DRAINED, SUBSTITUTE))}
    marks = {name: value for name, value in marks.items() if value or name in annotations_of(machine.metadata)}
    hidden = {"template": {"metadata": {"labels": {IN_SERVICE: "false"}}}}
    spec = {**_HALTED, **(hidden if IN_SERVICE in template_labels_of(machine.vm) else {})}
    why = "it has been ready, and rests as a standby"
    return replace(patch_of(machine, marks, spec, why), judged=True, disks=disks_in_use(machine.vm))


def _deletes(
    situation: Situation, staying: list[Machine], surplus: list[Machine]
) -> tuple[list[Delete], list[tuple[Any, str]]]:
    """Return the deletes of standbys, and those that must wait, each with its reason."""
    deletes, held = [], []
    preserve = situation.intent.scale_in.preserve
    for each, way, why in _leaving(situation, staying, surplus):
        if reason := stop_of(situation, each, way).reason:
            held.append((each.vm, reason))
        elif preserve and not is_safe_to_delete(situation.snapshot, each.vm):
            continue  # it gets its finalizer first
        elif way is Way.SURPLUS:
            deletes.append(delete_of(each.vm, why, keep_disks=preserve, if_unchanged=True))
        else:
            cause, keeps = Cause.HEALING if way is Way.HEALING else Cause.UPDATE, preserve and way is not Way.NEW_DISKS
            successor = successor_of(situation, each.vm)
            deletes.append(replacement_of(each.vm, why, cause=cause, successor=successor, keep_disks=keeps))
    return deletes, held


def _leaving(
    situation: Situation, staying: list[Machine], surplus: list[Machine]
) -> Iterator[tuple[Machine, Way, str]]:
    """Yield the standbys that leave, with the reason. The first one with a new template shows that it works. The others
    stay until then, but those that fail are of no use.
    """
    yield from ((each, Way.SURPLUS, "surplus: so many standby VMs are not wanted") for each in surplus)
    lost = {each.metadata.uid: why for each in staying if (why := _why_not_at_rest(each))}
    yield from ((each, Way.FINISHED, lost[each.metadata.uid]) for each in staying if each.metadata.uid in lost)
    staying = [each for each in staying if each.metadata.uid not in lost]
    outdated = [each for each in staying if not is_fresh(situation, each)]
    current = staying[: len(staying) - len(outdated)]  # they are first in the order
    is_proven = any(is_resting(each.metadata) for each in current)
    is_begun = len(outdated) < situation.target.standbys
    preserve = situation.intent.scale_in.preserve
    in_turn = len(outdated) if is_proven else 0 if is_begun else 1
    for number, each in enumerate(outdated):
        may_leave = number < in_turn or printable_status_of(each.vm) in BROKEN_STATES
        if not may_leave or situation.now < _known_until(situation, each):
            continue
        past, template = situation.revisions.templates.get(revision_of(each.vm)), _template_of(situation, each)
        has_other_disks = past is None or disk_change(past, template) is not DiskChange.NONE
        yield each, Way.NEW_DISKS if preserve and has_other_disks else Way.FINISHED, "the standby VM is outdated"
    for each in current:
        if (failure := _failure(situation, each)) is not None and failure[0] <= situation.now:
            yield each, Way.HEALING, f"healing: {failure[1]}"


def _why_not_at_rest(machine: Machine) -> str:
    """Return why a standby cannot rest with its memory, or has lost it, or ""."""
    vm, vmi = machine.vm, machine.vmi
    if has_finished(vm, vmi):
        return "the guest of the standby VM has ended"
    if not is_to_be_paused(vm.metadata):
        return ""
    if vmi is not None and must_leave_node(vmi):
        return "the node of the standby VM is drained"
    is_lost = (is_resting(vm.metadata) and not rests_with(vm, vmi)) or not machine.should_run
    return "the standby VM has lost its memory" if is_lost else ""


def _known_until(situation: Situation, machine: Machine) -> datetime:
    """Return when a standby whose revision is not known counts as outdated. A policy may take the label of each new
    one, so it is replaced slowly.
    """
    if revision_of(machine.vm) in situation.revisions.templates:
        return situation.now
    return (with_timezone(machine.metadata.creation_timestamp) or situation.now) + LONGEST_DELAY


def _failure(situation: Situation, machine: Machine) -> tuple[datetime, str] | None:
    """Return the time at which a failing standby is replaced, and why. So a broken template makes few VMs."""
    failure, created = failure_of(situation, machine), with_timezone(machine.metadata.creation_timestamp)
    return (max(failure.at, (created or failure.at) + LONGEST_DELAY), failure.why) if failure is not None else None


def _progress(situation: Situation, staying: list[Machine]) -> Plan:
    """Return a plan that writes nothing: it says what the standbys wait for, and asks for the next look."""
    now, min_ready_s = situation.now, situation.intent.min_ready_s
    preparing = [each for each in staying if not is_resting(each.metadata)]
    times = [state_of(each, now, min_ready_s)[1] for each in preparing]
    times += [at for each in staying if (at := _known_until(situation, each)) > now]
    times += [failure[0] for each in staying if (failure := _failure(situation, each)) and failure[0] > now]
    troubles = [(each.metadata.name, found.text) for each in preparing if (found := problem_of(situation, each))]
    refused = situation.snapshot.refused
    troubles += [
        (name, f"{name} is not paused: {refused[name].message}")
        for each in preparing
        if is_to_be_paused(each.metadata) and (name := each.metadata.name) in refused
    ]
    if troubles:
        text, names = f"standby: {troubles[0][1]}", tuple(name for name, _ in troubles[:MAX_NOTICES])
        return join((wake_at(times, now), waiting(text, names=names)))
    left, has_more = situation.target.standbys - len(situation.standby), situation.surplus > 0
    why = "because the pool has more than it wants" if has_more else "for room, because wanted ones come first"
    text = f"standby: {machines_wait(left)} {why}" if left > 0 and not missing_standbys(situation) else ""
    return join((wake_at(times, now), waiting(text)))


def _notices(pattern: Notice, steps: Sequence[Patch | Pause]) -> tuple[Notice, ...]:
    """Return an Event for each VM that is patched or unpaused, at most `MAX_NOTICES`."""
    return tuple(
        replace(pattern, message=f"virtual machine {each.key.name} {pattern.message}", after=each)
        for each in steps[:MAX_NOTICES]
    )
