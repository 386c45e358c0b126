"""Drain before leaving: a VM that runs gets time to end its work before vmherd deletes or restarts it (P26).

The plans of both kinds choose the VMs as always. At the end, `drain_first` takes out the deletes and restarts of VMs
that have not drained yet, and marks these VMs instead. The mark has the cause, the deadline and the UID of the VMI. So
a crash forgets nothing, and a VM that was restarted has to drain again. A VM with a mark is the first in every choice.
So the next plans choose the same VMs, and each of them takes its turn in the limits from its mark on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.kubevirt import vmis
from controller.kubevirt.annotations import DRAIN_SECONDS, DRAINED, DRAINING, IN_SERVICE, is_marked
from controller.kubevirt.busy import time_of
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import template_labels_of
from controller.replicas.progress import wake_at
from controller.replicas.wrong_annotations import setting
from controller.runtime.actions import AnyResource, Cause, Delete, Notice, Patch, Plan, Restart, Stage, join
from controller.runtime.members.groups import Member, Members
from informers.meta import NO_LABELS, ObjectMeta, annotations_of, labels_of
from informers.objects import PatchType

T = TypeVar("T", bound=Member)

DEFAULT_S: Final = 600
SCALE_IN, UPDATE, HEALING = "scale-in", "update", "healing"
"""The causes in a mark."""

MAX_NOTICES: Final = 10


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
    `has_label` is true if the label `vmherd.dev/in-service` of the VMI may be changed.
    """

    resource: AnyResource
    meta: ObjectMeta
    instance: str
    has_label: bool

    @property
    def mark(self) -> Mark | None:
        """The mark of this guest. A mark of an earlier VMI does not count, unless the VM fails: otherwise, a VM in a
        crash loop would never be healed.
        """
        mark = mark_of(self.meta)
        return mark if mark is not None and (mark.instance == self.instance or mark.cause == HEALING) else None


def guest_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Guest:
    return Guest(VMS, vm.metadata, _instance(vmi), IN_SERVICE in template_labels_of(vm))


def guest_of_vmi(resource: AnyResource, selector: Selector, vmi: VirtualMachineInstance) -> Guest:
    """Return the guest of a set's VMI. If the selector of the set reads the label, a change would release the VMI."""
    is_selected = IN_SERVICE in (*selector.needed, *selector.refused)
    has_label = IN_SERVICE in labels_of(vmi.metadata) and not is_selected
    return Guest(resource, vmi.metadata, _instance(vmi), has_label)


def drain_marks(meta: ObjectMeta) -> tuple[str | None, str | None]:
    annotations = annotations_of(meta)
    return annotations.get(DRAINING), annotations.get(DRAINED)


def is_draining(meta: ObjectMeta) -> bool:
    return DRAINING in annotations_of(meta)


def mark_of(meta: ObjectMeta) -> Mark | None:
    """Return the mark of a VM or VMI, or None if there is none or it cannot be read."""
    cause, _, rest = annotations_of(meta).get(DRAINING, "").partition(" until ")
    until, _, instance = rest.partition(" of ")
    time = time_of(until)
    return Mark(cause, time, instance) if time is not None else None


def drain_time(owner: ObjectMeta) -> timedelta | None:
    """Return the longest time to drain, or None if VMs of this set or pool do not drain. A wrong value is 600 seconds,
    because harm is worse than delay.
    """
    if DRAIN_SECONDS not in annotations_of(owner):
        return None
    return timedelta(seconds=int(setting(owner, DRAIN_SECONDS) or DEFAULT_S))


def must_drain(owner: ObjectMeta, guest: Guest, now: datetime) -> bool:
    """Return True if the guest must neither be deleted nor restarted now: it runs, it has not said that it has drained,
    and its deadline is in the future.
    """
    if not guest.instance or drain_time(owner) is None:
        return False
    mark = guest.mark
    return mark is None or not (is_marked(guest.meta, DRAINED) or mark.until <= now)


def drain_first(
    plan: Plan,
    owner: ObjectMeta,
    members: Members[T],
    guest_of: Callable[[T], Guest],
    *,
    still_leaves: Callable[[T, str], bool],
    now: datetime,
) -> Plan:
    """Return the plan without the deletes and restarts of VMs that must drain first, and with the patches of marks.

    A VM with a mark that the plan does not delete or restart loses the mark, unless `still_leaves` says that the cause
    lasts and the VM only waits for its turn.
    """
    leaving = dict(_leaving(plan))
    marked = members.where(lambda each: is_draining(each.metadata))
    time = drain_time(owner)
    if not marked and (time is None or not leaving):
        return plan
    guests = {each.metadata.uid: guest_of(each) for each in members if each.metadata.uid in leaving}
    waiting = {uid: each for uid, each in guests.items() if must_drain(owner, each, now)}
    until = _whole(now + (time or timedelta()))
    begins = {uid: Mark(leaving[uid], until, each.instance) for uid, each in waiting.items() if each.mark is None}
    ended = [guest_of(each) for each in marked if each.metadata.uid not in leaving and not _lasts(each, still_leaves)]
    marks = begins | {uid: mark for uid, each in waiting.items() if (mark := each.mark) is not None}
    patches = (
        *(_patch(waiting[uid], mark, f"it drains before it leaves: {mark.cause}") for uid, mark in begins.items()),
        *(_patch(each, None, "it stays") for each in ended),
    )
    writes = Plan(
        stages=(*((Stage(patches, essential=False),) if patches else ()), *_without(plan, waiting, guests)),
        notices=(*plan.notices, *islice(_notices(guests, begins, waiting, ended), MAX_NOTICES)),
        held=plan.held,
        requeue_after_s=plan.requeue_after_s,
    )
    return join((writes, Plan(held=_held(waiting, marks)), wake_at((each.until for each in marks.values()), now)))


def _lasts(member: T, still_leaves: Callable[[T, str], bool]) -> bool:
    """Return True if the mark stays although the plan does nothing with the member."""
    mark = mark_of(member.metadata)
    is_deleting = member.metadata.deletion_timestamp is not None
    return is_deleting or (mark is not None and still_leaves(member, mark.cause))


def _leaving(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the UIDs of the objects that the plan deletes or restarts, each with the cause."""
    for action in plan.actions:
        if isinstance(action, Delete | Restart):
            yield _subject(action), _cause(action)


def _subject(action: Delete | Restart) -> str:
    return action.member.uid if action.member is not None else action.uid


def _cause(action: Delete | Restart) -> str:
    if action.member is not None or not isinstance(action, Delete) or action.cause is Cause.UPDATE:
        return UPDATE
    return HEALING if action.cause is Cause.HEALING else SCALE_IN


def _without(plan: Plan, waiting: Mapping[str, Guest], guests: Mapping[str, Guest]) -> Iterator[Stage]:
    """Yield the stages without the actions on VMs that must drain first.

    A VM whose guest does not run may start after the plan. So its delete gives up after any change of the VM.
    """
    for stage in plan.stages:
        actions = []
        for action in stage.actions:
            guest = guests.get(_subject(action)) if isinstance(action, Delete | Restart) else None
            if guest is None or guest.meta.uid not in waiting:
                is_stopped = guest is not None and not guest.instance and isinstance(action, Delete)
                actions.append(replace(action, owner_uid="") if is_stopped else action)
        if actions:
            yield replace(stage, actions=tuple(actions))


def _patch(guest: Guest, mark: Mark | None, why: str) -> Patch:
    """Return the patch that sets or removes the mark. Both remove an old answer."""
    labels = {IN_SERVICE: "true" if mark is None else "false"} if guest.has_label else NO_LABELS
    meta: dict[str, Any] = {
        "uid": guest.meta.uid,
        "annotations": {DRAINING: str(mark) if mark is not None else None, DRAINED: None},
    }
    body: dict[str, Any] = {"metadata": meta}
    if labels and guest.resource is VMS:
        body["spec"] = {"template": {"metadata": {"labels": labels}}}
    elif labels:
        meta["labels"] = labels
    encoded = msgspec.json.encode(body)
    return Patch(resource=guest.resource, key=guest.meta.key, body=encoded, type=PatchType.MERGE, why=why)


def _notices(
    guests: Mapping[str, Guest], begins: Mapping[str, Mark], waiting: Mapping[str, Guest], ended: Iterable[Guest]
) -> Iterator[Notice]:
    for uid, mark in begins.items():
        text = f"{_name(guests[uid])} drains until {time_text(mark.until)} at the latest: {mark.cause}"
        yield Notice(reason="Draining", message=text, warning=False, once=f"{uid} {mark}")
    for guest in ended:
        # After a restart, the mark is of an earlier VMI. Its removal needs no Event.
        if guest.mark is not None:
            text = f"{_name(guest)} stays, and drains no longer"
            yield Notice(reason="DrainCancelled", message=text, warning=False, once=f"{guest.meta.uid} {guest.mark}")
    for uid, guest in guests.items():
        ending = guest.mark if uid not in waiting else None
        if ending is not None and is_marked(guest.meta, DRAINED):
            text = f"{_name(guest)} has drained: {ending.cause}"
            yield Notice(reason="Drained", message=text, warning=False, once=f"{uid} {ending}")
        elif ending is not None:
            text = f"{_name(guest)} has not drained until {time_text(ending.until)}: {ending.cause}"
            yield Notice(reason="DrainDeadlineExceeded", message=text, once=f"{uid} {ending}")


def _name(guest: Guest) -> str:
    return f"virtual machine {guest.meta.name}"


def _held(waiting: Mapping[str, Guest], marks: Mapping[str, Mark]) -> str:
    if not waiting:
        return ""
    name, mark = min((guest.meta.name, marks[uid]) for uid, guest in waiting.items())
    others = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return f"{name} waits: it drains until {time_text(mark.until)} ({mark.cause}){others}"


def _instance(vmi: VirtualMachineInstance | None) -> str:
    """Return the UID of the VMI if its guest runs."""
    runs = vmi is not None and vmis.is_running(vmi) and vmis.is_active(vmi)
    return vmi.metadata.uid if vmi is not None and runs else ""


def _whole(time: datetime) -> datetime:
    """Return the next whole second, because a mark has no smaller unit."""
    return (time + timedelta(microseconds=999_999)).replace(microsecond=0)


def time_text(time: datetime) -> str:
    """Return the time as in a mark and in messages."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
