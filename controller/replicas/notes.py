"""The parts of a plan that both kinds have: notes, times to look again, the progress deadline, the limit of replicas,
and Events about fields that cannot be read.

Notes are annotations that the controller writes on a set, a pool or a VM, so that a restart forgets nothing. The limit
stops a wrong number, such as 2147483647: it would fill the API server's storage and delay all other objects.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import AnyResource, Notice, Patch, Plan, Stage, waiting
from controller.runtime.waits import Why
from informers.meta import ObjectMeta
from informers.objects import PatchType


def merge_patch(
    resource: AnyResource,
    meta: ObjectMeta,
    changed: Mapping[str, object],
    why: str,
    *,
    more: Mapping[str, object] = {},
    **fields: Any,
) -> Patch:
    """Return a patch of the `changed` metadata of the object with this UID, and of `more` of its fields."""
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, **changed}, **more})
    return Patch(resource=resource, key=meta.key, uid=meta.uid, body=body, type=PatchType.MERGE, why=why, **fields)


def note_patch(resource: AnyResource, meta: ObjectMeta, changes: Mapping[str, str | None], why: str) -> Patch:
    """Return a patch that writes these annotations. An annotation without a value is removed."""
    return merge_patch(resource, meta, {"annotations": changes}, why, is_note=True)


def plan_note(
    resource: AnyResource,
    meta: ObjectMeta,
    changes: Mapping[str, str | None],
    why: str,
    *,
    essential: bool = False,
    notice: Notice | None = None,
) -> Plan:
    """Return a plan with this patch. If it fails, other writes stop only if it is `essential`. `notice` is the Event
    about a note that was written.
    """
    patch = note_patch(resource, meta, changes, why)
    notices = (replace(notice, after=patch),) if notice is not None else ()
    return Plan(stages=(Stage((patch,), essential=essential),), notices=notices)


REPLICAS_LIMITED: Final = "ReplicasLimited"


def limited(wanted: int, existing: int, most: int) -> int:
    """Return the number of replicas, at most `most` if not 0. Only creates are limited: existing replicas stay."""
    return min(wanted, max(most, existing)) if most else wanted


def plan_limit(owner: ObjectMeta, wanted: int, existing: int, most: int) -> Plan:
    """Return a notice for each generation with `wanted` over `most`, and a stall when as many exist as it allows."""
    if not most or wanted <= most:
        return Plan()
    message = f"spec.replicas is {wanted}: at most {most} are created (--max-replicas)"
    notice = Notice(reason=REPLICAS_LIMITED, message=message, once=f"generation-{owner.generation}")
    stall = REPLICAS_LIMITED if most <= existing < wanted else ""
    return replace(waiting(message, Why.USER, stall=stall), notices=(notice,))


UNDECODABLE: Final = "UndecodableVirtualMachine"

MAX_NOTICES: Final = 10
"""The maximum number of Events of one kind, about single VMs or annotations, in one reconciliation."""


def undecodable_notices(
    objects: Iterable[VirtualMachine | VirtualMachineInstance], now: datetime
) -> tuple[Notice, ...]:
    """Return an Event for each undecodable object, at most `MAX_NOTICES`."""
    found = sorted((each for each in objects if each.undecodable), key=lambda each: each.metadata.name)
    return tuple(_notice(each, now) for each in found[:MAX_NOTICES])


def _notice(each: VirtualMachine | VirtualMachineInstance, now: datetime) -> Notice:
    meta, noun, effect = each.metadata, "virtual machine instance", "not ready, and not deleted"
    if isinstance(each, VirtualMachine):
        noun, effect = "virtual machine", "not healed, updated or scaled in"
    age = now - (with_timezone(meta.creation_timestamp) or now)
    doublings = max(int(age.total_seconds()), 0).bit_length()
    text = f"{noun} {meta.name} has a field that cannot be decoded ({each.undecodable}): it is {effect}"
    return Notice(reason=UNDECODABLE, message=text, once=f"{meta.uid} {doublings}")


def wake_at(times: Iterable[datetime | None], now: datetime) -> Plan:
    first = min((each for each in times if each is not None), default=None)
    return Plan(requeue_after_s=(first - now).total_seconds() if first is not None else None)


def watch_progress(
    progress: Plan, stuck: Sequence[tuple[datetime, str]], deadline: timedelta, *, now: datetime, template: str
) -> Plan:
    """Return the plan, with a notice if a VM that blocks the rollout has exceeded the deadline, or a requeue at the
    deadline.

    `stuck` has the time at which each such VM became unready, and its name.
    """
    if not stuck:
        return progress
    since, name = min(stuck)
    remaining = deadline - (now - since)
    if remaining > timedelta():
        # The clock of a node may be ahead of our clock. So the wait is never longer than the deadline.
        wake_s = min(remaining, deadline).total_seconds()
        return replace(progress, requeue_after_s=min(wake_s, progress.requeue_after_s or wake_s))
    stalled = Notice(
        reason="RolloutStalled",
        message=(
            f"{len(stuck)} virtual machines block the rollout because they are not ready, {name} for longer than "
            f"{int(deadline.total_seconds())} seconds; no more are replaced until they are"
        ),
        once=f"stalled {template}",
    )
    return replace(progress, notices=(*progress.notices, stalled))
