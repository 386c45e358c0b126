"""Drain before leaving: a VM that runs gets time to end its work before vmherd deletes or restarts it (P26).

The plans of both kinds choose the VMs as always. At the end, `drain_first` takes out the deletes and restarts of VMs
that have not drained yet, and marks these VMs instead. The mark has the cause, the deadline and the UID of the VMI. So
a crash forgets nothing, and a VM that was restarted has to drain again. A VM with a mark is the first in every choice.
So the next plans choose the same VMs, and each of them takes its turn in the limits from its mark on.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt import vmis
from controller.kubevirt.annotations import DRAINED, DRAINING, IN_SERVICE, is_marked
from controller.kubevirt.busy import time_of
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import template_labels_of
from controller.replicas.notes import MAX_NOTICES, merge_patch, wake_at
from controller.runtime.actions import (
    AnyResource,
    Cause,
    Delete,
    Notice,
    Patch,
    Plan,
    Restart,
    Stage,
    join,
    stage_of,
    waiting,
)
from controller.runtime.members.groups import Member, Members
from informers.meta import ObjectMeta, annotations_of, labels_of

T = TypeVar("T", bound=Member)

SCALE_IN, UPDATE, HEALING = "scale-in", "update", "healing"
"""The causes in a mark."""

_MARK: Final = re.compile(r"(scale-in|update|healing) until ([0-9-]{10}T[0-9:]{8}Z) of (\S+)", re.ASCII)


class Mark(Struct, frozen=True):
    """The mark of a VM that drains. `instance` is the UID of the VMI that drains."""

    cause: str
    until: datetime
    instance: str

    def __str__(self) -> str:
        return f"{self.cause} until {time_text(self.until)} of {self.instance}"


class Guest(Struct, frozen=True):
    """A VM of a pool, or a VMI of a set.

    `meta` is the metadata of the object that has the marks. `instance` is the UID of the VMI, or "" if no guest runs.
    `has_label` is true if the marks also change the label `vmherd.dev/in-service`, of the VMI or in the template of the
    VM. A VMI `is_out` if its own label says so: a policy or another controller may have removed the mark alone. `vmi`
    is the VMI of a VM whose template has the label.
    """

    resource: AnyResource
    meta: ObjectMeta
    instance: str
    has_label: bool
    is_out: bool = False
    vmi: "Guest | None" = None

    @property
    def is_marked(self) -> bool:
        return self.is_out or is_draining(self.meta)


class Drain(Struct, frozen=True):
    """The drain of a guest that has to leave. `is_new` is true if its mark is not written yet."""

    guest: Guest
    mark: Mark
    is_new: bool = False
    is_answered: bool = False
    is_over: bool = False


def guest_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Guest:
    value, instance = template_labels_of(vm).get(IN_SERVICE), _instance(vmi)
    inner = None
    if vmi is not None and instance and value is not None:
        inner = Guest(VMIS, vmi.metadata, instance, True, value == "true" and _is_out(vmi))
    return Guest(VMS, vm.metadata, instance, value == "false", vmi=inner)


def guest_of_vmi(selector: Selector, vmi: VirtualMachineInstance) -> Guest:
    """Return the guest of a set's VMI. If the selector of the set reads the label, a change would release the VMI."""
    has_label = IN_SERVICE in labels_of(vmi.metadata) and not selector.reads(IN_SERVICE)
    return Guest(VMIS, vmi.metadata, _instance(vmi), has_label, has_label and _is_out(vmi))


def _is_out(vmi: VirtualMachineInstance) -> bool:
    return labels_of(vmi.metadata).get(IN_SERVICE) == "false"


def drain_marks(meta: ObjectMeta) -> tuple[str | None, str | None]:
    annotations = annotations_of(meta)
    return annotations.get(DRAINING), annotations.get(DRAINED)


def is_draining(meta: ObjectMeta) -> bool:
    return DRAINING in annotations_of(meta)


def mark_of(meta: ObjectMeta) -> Mark | None:
    """Return the mark of a VM or VMI, or None if there is none or vmherd has not written it like this."""
    found = _MARK.fullmatch(annotations_of(meta).get(DRAINING, ""))
    until = time_of(found[2]) if found is not None else None
    return Mark(found[1], until, found[3]) if found is not None and until is not None else None


def drain_of(time: timedelta | None, guest: Guest, cause: str, now: datetime) -> Drain | None:
    """Return the drain of a guest that has to leave, or None if it need not drain. It drains for at most `time`.

    A mark of an earlier VMI does not count, except for a VM that fails: otherwise, a VM in a crash loop would never be
    healed. A deadline that is later than a new one does not count either: its clock was wrong, or its time was longer.
    """
    mark = mark_of(guest.meta)
    if not guest.instance or time is None:
        return None
    latest, is_answered = whole(now + time), is_marked(guest.meta, DRAINED)
    is_own = mark is not None and (mark.instance == guest.instance or mark.cause == cause == HEALING)
    if mark is None or not is_own or (mark.until > latest and not is_answered):
        return Drain(guest, Mark(cause, latest, guest.instance), is_new=True)
    is_over = is_answered or mark.until <= now
    if mark.cause != cause and not is_over:
        return Drain(guest, replace(mark, cause=cause), is_new=True)  # the guest may do something else for this cause
    return Drain(guest, mark, is_answered=is_answered, is_over=is_over)


def must_drain(time: timedelta | None, guest: Guest, cause: str, now: datetime) -> bool:
    """Return True if the guest must not leave now: it runs, has not said that it has drained, and has time left."""
    drain = drain_of(time, guest, cause, now)
    return drain is not None and not drain.is_over


def drain_first(
    plan: Plan,
    time: timedelta | None,
    members: Members[T],
    guest_of: Callable[[T], Guest],
    *,
    still_leaves: Callable[[T, str], bool],
    now: datetime,
    has_mark: Callable[[T], bool],
) -> Plan:
    """Return the plan without the deletes and restarts of VMs that must drain first, and with the patches of marks.

    `has_mark` is true for a VM with a mark, or with one on its VMI, and for one whose VMI is out of service without a
    mark. If the plan does not delete or restart the VM, it loses the mark and is in service again, unless
    `still_leaves` says that the cause lasts, nothing says stop, and the VM only waits for its turn.
    """
    leaving = {_subject(each): each for each in plan.actions if isinstance(each, Delete | Restart)}
    marked = members.where(has_mark)
    if not marked and (time is None or not leaving):
        return plan
    guests = [guest_of(each) for each in members if each.metadata.uid in leaving]
    causes = {uid: _cause(action) for uid, action in leaving.items()}
    drains = [each for guest in guests if (each := drain_of(time, guest, causes[guest.meta.uid], now)) is not None]
    postponed = {each.guest.meta.uid: each for each in drains if not each.is_over}
    begins = [each for each in drains if each.is_new]
    staying = [guest_of(each) for each in marked if each.metadata.uid not in leaving and not _lasts(each, still_leaves)]
    # A VMI whose guest does not run may have an old mark. It goes with the VMI.
    ended = [each for each in staying if any(part.is_marked for part in (each, each.vmi) if part is not None)]
    marks = [_mark(each, leaving[each.guest.meta.uid]) for each in begins]
    last = [each.vmi if each.vmi is not None and each.vmi.is_marked else each for each in ended]
    removals = [_patch(each, None, "it stays") for each in last]
    labels = [patch for each in postponed.values() if (patch := _label(each)) is not None]
    patches = (*marks, *labels, *removals)
    told = [replace(_notice(each), after=mark) for each, mark in zip(begins, marks, strict=True)]
    overdue = (_notice(each) for each in drains if each.is_over)
    notices = (*told, *_cancelled(zip(ended, removals, strict=True)), *overdue)
    writes = Plan(
        stages=(*stage_of(patches), *_without(plan, postponed, guests)),
        notices=(*plan.notices, *notices[:MAX_NOTICES]),
        waits=plan.waits,
        requeue_after_s=plan.requeue_after_s,
    )
    deadlines = wake_at((each.mark.until for each in postponed.values()), now)
    return join((writes, waiting(_held(postponed.values())), deadlines))


def _lasts(member: T, still_leaves: Callable[[T, str], bool]) -> bool:
    """Return True if the mark stays although the plan does nothing with the member."""
    mark = mark_of(member.metadata)
    is_deleting = member.metadata.deletion_timestamp is not None
    return is_deleting or (mark is not None and still_leaves(member, mark.cause))


def _subject(action: Delete | Restart) -> str:
    return action.member.uid if action.member is not None else action.uid


def _cause(action: Delete | Restart) -> str:
    if action.member is not None or not isinstance(action, Delete):
        return UPDATE
    return {Cause.UPDATE: UPDATE, Cause.HEALING: HEALING}.get(action.cause, SCALE_IN)


def _without(plan: Plan, waiting: Collection[str], guests: Iterable[Guest]) -> Iterator[Stage]:
    """Yield the stages without the actions on VMs that must drain first. A VM may get another guest after the plan,
    which has not drained, so its delete gives up after any change. So does that of a set's VMI whose guest may start.
    """
    changeable = {each.meta.uid for each in guests if each.resource is VMS or not each.instance}
    for stage in plan.stages:
        actions = []
        for action in stage.actions:
            subject = _subject(action) if isinstance(action, Delete | Restart) else ""
            if subject not in waiting:
                may_change = isinstance(action, Delete) and subject in changeable
                actions.append(replace(action, owner_uid="") if may_change else action)
        if actions:
            yield replace(stage, actions=tuple(actions))


def _mark(drain: Drain, action: Delete | Restart) -> Patch:
    """Return the patch that sets the mark, but not if the successor would be refused, or a disk would go too (P20).

    A policy may take the mark back, and then nothing knows the deadline. So a guest is in service until its mark shows.
    """
    is_taken_back = drain.guest.is_out and not is_draining(drain.guest.meta)
    guest = drain.guest if is_taken_back else replace(drain.guest, has_label=False)
    patch = _patch(guest, drain.mark, f"it drains before it leaves: {drain.mark.cause}", out=False)
    patch = replace(patch, disks=action.disks)
    return replace(patch, before=action) if isinstance(action, Delete) and action.successor else patch


def _label(drain: Drain) -> Patch | None:
    """Return the patch that takes a guest with a mark out of its Services.

    That of a pool's VM gives the VMI the mark and the label, so the next VMI is in service. If KubeVirt copies the
    label of the template to the VMI, it undoes the label and leaves the mark. Only then the template has to change.
    """
    guest, vmi = drain.guest, drain.guest.vmi
    if guest.resource is VMIS:
        is_due = guest.has_label and not (drain.is_new or guest.is_out)
        return _patch(guest, drain.mark, "it drains") if is_due else None
    if drain.is_new or guest.has_label or vmi is None or labels_of(vmi.meta).get(IN_SERVICE, "false") == "false":
        return None
    return _patch(replace(guest, has_label=True) if is_draining(vmi.meta) else vmi, drain.mark, "it drains")


def _patch(guest: Guest, mark: Mark | None, why: str, *, out: bool = True) -> Patch:
    """Return the patch that sets or removes the mark. A change of the mark removes an old answer. With a mark, the
    guest is taken `out` of its Services.
    """
    text = str(mark) if mark is not None else None
    answer = {DRAINED: None} if text is None or text != annotations_of(guest.meta).get(DRAINING) else {}
    marks: dict[str, object] = {"annotations": {DRAINING: text, **answer}}
    value = "false" if out and mark is not None else "true"
    labels: dict[str, object] = {"labels": {IN_SERVICE: value}} if guest.has_label else {}
    if labels and guest.resource is VMS:
        return merge_patch(VMS, guest.meta, marks, why, more={"spec": {"template": {"metadata": labels}}})
    return merge_patch(guest.resource, guest.meta, marks | labels, why)


def unmark_vmi(vmi: VirtualMachineInstance) -> Patch:
    """Return the patch that takes the mark off the VMI of a VM that has left its pool."""
    has_label = IN_SERVICE in labels_of(vmi.metadata)
    return _patch(Guest(VMIS, vmi.metadata, "", has_label), None, "its VM leaves the pool")


def _notice(drain: Drain) -> Notice:
    meta, mark = drain.guest.meta, drain.mark
    name, until, once = f"virtual machine {meta.name}", time_text(mark.until), f"{meta.uid} {mark}"
    if drain.is_new:
        text = f"{name} drains until {until} at the latest: {mark.cause}"
        return Notice(reason="Draining", message=text, warning=False, once=once)
    if drain.is_answered:
        return Notice(reason="Drained", message=f"{name} has drained: {mark.cause}", warning=False, once=once)
    text = f"{name} has not drained until {until}: {mark.cause}"
    return Notice(reason="DrainDeadlineExceeded", message=text, once=once)


def _cancelled(ended: Iterable[tuple[Guest, Patch]]) -> Iterator[Notice]:
    """Yield an Event for each guest that stays. After a restart, the mark is of an earlier VMI and needs no Event."""
    for guest, removal in ended:
        mark = mark_of(guest.meta)
        if mark is not None and mark.instance == guest.instance:
            text = f"virtual machine {guest.meta.name} stays, and drains no longer"
            once = f"{guest.meta.uid} {mark}"
            yield Notice(reason="DrainCancelled", message=text, warning=False, once=once, after=removal)


def _held(waiting: Collection[Drain]) -> str:
    if not waiting:
        return ""
    name, mark = min((each.guest.meta.name, each.mark) for each in waiting)
    others = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return f"{name} waits: it drains until {time_text(mark.until)} ({mark.cause}){others}"


def _instance(vmi: VirtualMachineInstance | None) -> str:
    runs = vmi is not None and vmis.is_running(vmi) and vmis.is_active(vmi)
    return vmi.metadata.uid if vmi is not None and runs else ""


def whole(time: datetime) -> datetime:
    """Return the next whole second in UTC, because marks and records have no smaller unit."""
    return (time.astimezone(UTC) + timedelta(microseconds=999_999)).replace(microsecond=0)
