"""What a simulated VMI does: when it comes up, how it misbehaves, how long it takes to go. Pure.

A behavior is a timeline: looks, each with the time after the VMI's creation at which it begins. The VMI's next step is
to take on the look of this moment, or to wait for the next one. So a simulator that was away, or is late, goes straight
to where the VMI should be by now, and one that is restarted goes on.

All of Pending, Scheduling, Scheduled, Running and Ready can be watched where `ready-after` is a second or more. A look
that would last for less than `BRIEF_S` is not written: a VMI with the default of 300 ms gets one patch and is ready.

Annotations count at any time. One that is put on a running VMI breaks it, and a VMI that is merely unready or unknown
recovers when it is taken off; but no VMI goes back to a phase before Running, and a final one stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, assert_never

from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of
from sandbox.step import Step
from sandbox.vmis import (
    CONTAINERS_NOT_READY,
    ERR_IMAGE_PULL,
    FINAL,
    GUEST_NOT_RUNNING,
    IMAGE_PULL_BACK_OFF,
    POD_NOT_EXISTS,
    POD_TERMINATING,
    PVC_NOT_FOUND,
    UNSCHEDULABLE,
    Look,
    PhaseTransition,
    SimulatedVMI,
    change_hold,
    change_to,
    condition_of,
    grace_of,
    history_of,
    holds_on,
    look_of,
    phase_of,
)
from sandbox.wishes import Wishes, read_wishes

BRIEF_S: Final = 0.25
MOMENT_S: Final = 1.0
"""How long a VMI that ends, crashes or gets lost was up before."""

_WAY_UP: Final = ("", "Pending", "Scheduling", "Scheduled", "Running")


class Moment(Struct, frozen=True):
    at_s: float
    look: Look


class Timeline(Struct, frozen=True):
    """`moments` is all that happens, `visible` the part of it that lasts long enough to be written."""

    moments: tuple[Moment, ...]
    visible: tuple[Moment, ...]


class Obstacle(Struct, frozen=True):
    """What keeps a VMI from being scheduled: volumes that are not there, or not yet bound."""

    trouble: str = ""


def next_step(vmi: SimulatedVMI, now: datetime, first_seen: datetime, obstacle: Obstacle | None = None) -> Step:
    """What to do about this VMI next.

    `first_seen` need not be right after a restart of the simulator: it only tells more exactly when a VMI was created,
    of which the API server keeps whole seconds.
    """
    wishes = read_wishes(annotations_of(vmi.metadata), grace_s=grace_of(vmi))
    if vmi.metadata.deletion_timestamp is not None:
        return _go(vmi, wishes, now, vmi.metadata.deletion_timestamp)
    if phase_of(vmi) in FINAL:
        return Step(flaws=wishes.flaws)
    if obstacle is not None and phase_of(vmi) in ("", "Pending"):
        waiting = Look("Pending", POD_NOT_EXISTS, obstacle.trouble)
        return Step(write=None if look_of(vmi) == waiting else change_to(waiting, vmi, now=now), flaws=wishes.flaws)
    return _live(vmi, wishes, now, _began(vmi, first_seen))


def _live(vmi: SimulatedVMI, wishes: Wishes, now: datetime, began: datetime) -> Step:
    line = timeline(wishes)
    elapsed_s = (now - began).total_seconds()
    due = [moment for moment in line.visible if moment.at_s <= elapsed_s]
    coming = line.visible[len(due)].at_s - elapsed_s if len(due) < len(line.visible) else None
    resting = Step(after_s=coming, flaws=wishes.flaws)
    if not due:
        return resting
    look, hold = due[-1].look, True if wishes.shutdown_after_s else None
    if look != look_of(vmi) and not _goes_back(phase_of(vmi), look.phase):
        passed = tuple(_passed(vmi, line, due[-1], began))
        return Step(write=change_to(look, vmi, now=now, passed=passed, hold=hold), flaws=wishes.flaws)
    if hold and not holds_on(vmi):
        return Step(write=change_hold(vmi, hold=True), flaws=wishes.flaws)
    return resting


def _go(vmi: SimulatedVMI, wishes: Wishes, now: datetime, deleted: datetime) -> Step:
    """A VMI that is being deleted and still there: the guest shuts down, and whatever held the VMI lets it go.

    The shutdown begins when Ready=False with reason PodTerminating is written, and takes its whole time from then on. A
    guest that has ended has nothing to shut down.
    """
    phase, look = phase_of(vmi), look_of(vmi)
    ended = Look(_phase_after(phase), POD_TERMINATING)
    if holds_on(vmi) and wishes.shutdown_after_s and phase not in FINAL:
        going = Look(phase, POD_TERMINATING)
        if look != going:
            return Step(write=change_to(going, vmi, now=now), flaws=wishes.flaws)
        ready = condition_of(vmi, "Ready")
        since = (ready and ready.last_probe_time) or deleted
        left_s = wishes.shutdown_after_s - (now - since).total_seconds()
        if left_s > 0:
            return Step(after_s=left_s, flaws=wishes.flaws)
    if holds_on(vmi) or look != ended:
        return Step(write=change_to(ended, vmi, now=now, hold=False), flaws=wishes.flaws)
    return Step(flaws=wishes.flaws)


@lru_cache(maxsize=256)
def timeline(wishes: Wishes) -> Timeline:
    """All that happens to a VMI which is left alone."""
    moments = _moments(wishes)
    visible = tuple(moment for moment, after in pairwise(moments) if after.at_s - moment.at_s >= BRIEF_S)
    return Timeline(moments, (*visible, moments[-1]))


def _moments(wishes: Wishes) -> tuple[Moment, ...]:
    up_s = wishes.ready_after_s
    pending, scheduling, scheduled, running = boot = (
        Moment(0.0, Look("Pending", POD_NOT_EXISTS)),
        Moment(up_s * 0.25, Look("Scheduling", GUEST_NOT_RUNNING)),
        Moment(up_s * 0.5, Look("Scheduled", GUEST_NOT_RUNNING)),
        Moment(up_s * 0.75, Look("Running", CONTAINERS_NOT_READY)),
    )
    ready = Moment(up_s, Look("Running"))
    end_s = up_s + MOMENT_S
    match wishes.behavior:
        case "normal" | "slow-shutdown" | "datavolume-error":
            return (*boot, ready)
        case "never-ready":
            return boot
        case "crash-loop":
            return (*boot, Moment(end_s, Look("Failed", POD_TERMINATING)))
        case "fail":
            return pending, scheduling, scheduled, Moment(running.at_s, Look("Failed", POD_TERMINATING))
        case "image-error":
            pulling = Moment(scheduled.at_s, Look("Scheduling", GUEST_NOT_RUNNING, ERR_IMAGE_PULL))
            backing_off = Moment(end_s, Look("Scheduling", GUEST_NOT_RUNNING, IMAGE_PULL_BACK_OFF))
            return pending, scheduling, pulling, backing_off
        case "unschedulable":
            return pending, Moment(scheduling.at_s, Look("Scheduling", GUEST_NOT_RUNNING, UNSCHEDULABLE))
        case "pvc-missing":
            return (Moment(0.0, Look("Pending", POD_NOT_EXISTS, PVC_NOT_FOUND)),)
        case "finish":
            return (*boot, ready, Moment(end_s, Look("Succeeded", POD_TERMINATING)))
        case "unknown":
            return (*boot, ready, Moment(end_s, Look("Unknown", GUEST_NOT_RUNNING)))
        case _:
            assert_never(wishes.behavior)


def _began(vmi: SimulatedVMI, first_seen: datetime) -> datetime:
    """When its timeline began: what its own history says, else the latest time at which it can have been created."""
    for transition in history_of(vmi):
        if transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    return began(vmi.metadata, first_seen)


def began(meta: ObjectMeta, first_seen: datetime) -> datetime:
    """When an object was created, as exactly as can be known."""
    created = meta.creation_timestamp
    return first_seen if created is None else min(first_seen, created + timedelta(seconds=1))


def _passed(vmi: SimulatedVMI, line: Timeline, current: Moment, began: datetime) -> Iterator[PhaseTransition]:
    """The phases before this moment that the VMI's history lacks, at the times at which they came."""
    known = {transition.phase for transition in history_of(vmi)} | {current.look.phase}
    for moment in line.moments:
        if moment.at_s < current.at_s and moment.look.phase not in known:
            known.add(moment.look.phase)
            yield PhaseTransition(moment.look.phase, began + timedelta(seconds=moment.at_s))


def _goes_back(phase: str, following: str) -> bool:
    """Whether a VMI would have to boot a second time to get there."""
    return _height(following) < _height(phase)


def _height(phase: str) -> int:
    """How far up a phase is. One that is none of the way up comes after it."""
    return _WAY_UP.index(phase) if phase in _WAY_UP else len(_WAY_UP) - 1


def _phase_after(phase: str) -> str:
    """How a guest ends that is told to shut down: one that never ran has failed, as KubeVirt sees it."""
    if phase in FINAL:
        return phase
    return "Succeeded" if phase in ("Running", "Unknown") else "Failed"
