"""The behavior of a simulated VMI: when it boots, how it fails, how long it takes to shut down. Pure.

A behavior is a timeline. A timeline is a list of states; each begins at a time after the VMI's creation. The next step
for a VMI is to write the state that is due now, or to wait for the next one. A simulator that was down or is late
writes the state that is due now and skips the earlier ones. A restarted simulator continues in the same way.

If `ready-after` is one second or more, the phases Pending, Scheduling, Scheduled and Running and the condition Ready
can all be watched. A state that would last for less than `SHORTEST_VISIBLE_S` is not written. With the default of 300
ms, a VMI gets one patch and is ready.

Annotations can be changed at any time. A `behavior` annotation breaks a running VMI. If the annotation is removed, a
VMI that is only unready or in phase Unknown recovers. No VMI returns to a phase before Running, and a final phase never
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, assert_never

from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of
from sandbox.settings import SimulationSettings, read_settings
from sandbox.step import Step
from sandbox.vmis import (
    CONTAINERS_NOT_READY,
    ERR_IMAGE_PULL,
    FINAL_PHASES,
    GUEST_NOT_RUNNING,
    IMAGE_PULL_BACK_OFF,
    POD_NOT_EXISTS,
    POD_TERMINATING,
    PVC_NOT_FOUND,
    UNSCHEDULABLE,
    PhaseTransition,
    SimulatedVMI,
    VMIState,
    condition_of,
    finalizer_patch,
    grace_period_of,
    has_finalizer,
    history_of,
    phase_of,
    state_of,
    state_patch,
)

SHORTEST_VISIBLE_S: Final = 0.25
UP_BEFORE_END_S: Final = 1.0
"""Seconds after `ready-after` at which a VMI ends, crashes or changes to phase Unknown."""

_BOOT_PHASES: Final = ("", "Pending", "Scheduling", "Scheduled", "Running")


class TimedState(Struct, frozen=True):
    at_s: float
    state: VMIState


class Timeline(Struct, frozen=True):
    """`states` has all states of the timeline. `visible` has those that last long enough to be written."""

    states: tuple[TimedState, ...]
    visible: tuple[TimedState, ...]


class Obstacle(Struct, frozen=True):
    """The reason why a VMI cannot be scheduled: some of its volumes are missing or not bound."""

    problem: str = ""


def next_step(vmi: SimulatedVMI, now: datetime, first_seen: datetime, obstacle: Obstacle | None = None) -> Step:
    """Return the next step for this VMI.

    `first_seen` is when this simulator first saw the VMI. It refines the creation time, which the API server stores in
    whole seconds only. After a restart of the simulator it may be too late; that does no harm.
    """
    settings = read_settings(annotations_of(vmi.metadata), grace_s=grace_period_of(vmi))
    if vmi.metadata.deletion_timestamp is not None:
        return _terminate(vmi, settings, now, vmi.metadata.deletion_timestamp)
    if phase_of(vmi) in FINAL_PHASES:
        return Step(warnings=settings.warnings)
    if obstacle is not None and phase_of(vmi) in ("", "Pending"):
        waiting = VMIState("Pending", POD_NOT_EXISTS, obstacle.problem)
        return Step(
            write=None if state_of(vmi) == waiting else state_patch(waiting, vmi, now=now), warnings=settings.warnings
        )
    return _follow_timeline(vmi, settings, now, _timeline_start(vmi, first_seen))


def _follow_timeline(vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, began: datetime) -> Step:
    line = timeline(settings)
    elapsed_s = (now - began).total_seconds()
    due = [timed for timed in line.visible if timed.at_s <= elapsed_s]
    next_s = line.visible[len(due)].at_s - elapsed_s if len(due) < len(line.visible) else None
    wait = Step(after_s=next_s, warnings=settings.warnings)
    if not due:
        return wait
    state, finalizer = due[-1].state, True if settings.shutdown_after_s else None
    if state != state_of(vmi) and not _is_earlier(phase_of(vmi), state.phase):
        unseen = tuple(_unseen_transitions(vmi, line, due[-1], began))
        return Step(
            write=state_patch(state, vmi, now=now, unseen=unseen, finalizer=finalizer), warnings=settings.warnings
        )
    if finalizer and not has_finalizer(vmi):
        return Step(write=finalizer_patch(vmi, finalizer=True), warnings=settings.warnings)
    return wait


def _terminate(vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, deleted: datetime) -> Step:
    """Return the next step for a VMI that is being deleted: the guest shuts down, then the finalizer is removed.

    The shutdown begins when Ready=False with the reason PodTerminating is written. The full shutdown time counts from
    then. A guest that has already ended is not shut down again.
    """
    phase, state = phase_of(vmi), state_of(vmi)
    ended = VMIState(_final_phase(phase), POD_TERMINATING)
    if has_finalizer(vmi) and settings.shutdown_after_s and phase not in FINAL_PHASES:
        shutting_down = VMIState(phase, POD_TERMINATING)
        if state != shutting_down:
            return Step(write=state_patch(shutting_down, vmi, now=now), warnings=settings.warnings)
        ready = condition_of(vmi, "Ready")
        since = (ready and ready.last_probe_time) or deleted
        left_s = settings.shutdown_after_s - (now - since).total_seconds()
        if left_s > 0:
            return Step(after_s=left_s, warnings=settings.warnings)
    if has_finalizer(vmi) or state != ended:
        return Step(write=state_patch(ended, vmi, now=now, finalizer=False), warnings=settings.warnings)
    return Step(warnings=settings.warnings)


@lru_cache(maxsize=256)
def timeline(settings: SimulationSettings) -> Timeline:
    """The states of a VMI that no user changes."""
    states = _all_states(settings)
    visible = tuple(timed for timed, after in pairwise(states) if after.at_s - timed.at_s >= SHORTEST_VISIBLE_S)
    return Timeline(states, (*visible, states[-1]))


def _all_states(settings: SimulationSettings) -> tuple[TimedState, ...]:
    up_s = settings.ready_after_s
    pending, scheduling, scheduled, running = boot = (
        TimedState(0.0, VMIState("Pending", POD_NOT_EXISTS)),
        TimedState(up_s * 0.25, VMIState("Scheduling", GUEST_NOT_RUNNING)),
        TimedState(up_s * 0.5, VMIState("Scheduled", GUEST_NOT_RUNNING)),
        TimedState(up_s * 0.75, VMIState("Running", CONTAINERS_NOT_READY)),
    )
    ready = TimedState(up_s, VMIState("Running"))
    end_s = up_s + UP_BEFORE_END_S
    match settings.behavior:
        case "normal" | "slow-shutdown" | "datavolume-error":
            return (*boot, ready)
        case "never-ready":
            return boot
        case "crash-loop":
            return (*boot, TimedState(end_s, VMIState("Failed", POD_TERMINATING)))
        case "fail":
            return pending, scheduling, scheduled, TimedState(running.at_s, VMIState("Failed", POD_TERMINATING))
        case "image-error":
            pulling = TimedState(scheduled.at_s, VMIState("Scheduling", GUEST_NOT_RUNNING, ERR_IMAGE_PULL))
            backing_off = TimedState(end_s, VMIState("Scheduling", GUEST_NOT_RUNNING, IMAGE_PULL_BACK_OFF))
            return pending, scheduling, pulling, backing_off
        case "unschedulable":
            return pending, TimedState(scheduling.at_s, VMIState("Scheduling", GUEST_NOT_RUNNING, UNSCHEDULABLE))
        case "pvc-missing":
            return (TimedState(0.0, VMIState("Pending", POD_NOT_EXISTS, PVC_NOT_FOUND)),)
        case "finish":
            return (*boot, ready, TimedState(end_s, VMIState("Succeeded", POD_TERMINATING)))
        case "unknown":
            return (*boot, ready, TimedState(end_s, VMIState("Unknown", GUEST_NOT_RUNNING)))
        case _:
            assert_never(settings.behavior)


def _timeline_start(vmi: SimulatedVMI, first_seen: datetime) -> datetime:
    """When the VMI's timeline began.

    This is the first time in its phase history. Without a history it is the VMI's creation time.
    """
    for transition in history_of(vmi):
        if transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    return creation_time(vmi.metadata, first_seen)


def creation_time(meta: ObjectMeta, first_seen: datetime) -> datetime:
    """The latest possible creation time of the object. The API server stores it in whole seconds only."""
    created = meta.creation_timestamp
    return first_seen if created is None else min(first_seen, created + timedelta(seconds=1))


def _unseen_transitions(
    vmi: SimulatedVMI, line: Timeline, current: TimedState, began: datetime
) -> Iterator[PhaseTransition]:
    """The earlier phases that are missing in the VMI's history, each with the time at which it was due."""
    known = {transition.phase for transition in history_of(vmi)} | {current.state.phase}
    for timed in line.states:
        if timed.at_s < current.at_s and timed.state.phase not in known:
            known.add(timed.state.phase)
            yield PhaseTransition(timed.state.phase, began + timedelta(seconds=timed.at_s))


def _is_earlier(phase: str, following: str) -> bool:
    """True if the VMI would have to boot again to reach the phase `following`."""
    return _boot_position(following) < _boot_position(phase)


def _boot_position(phase: str) -> int:
    """The position of a phase in the boot sequence. Every other phase has the position of Running."""
    return _BOOT_PHASES.index(phase) if phase in _BOOT_PHASES else len(_BOOT_PHASES) - 1


def _final_phase(phase: str) -> str:
    """The final phase of a guest that is shut down. As in KubeVirt, a guest that never ran has failed."""
    if phase in FINAL_PHASES:
        return phase
    return "Succeeded" if phase in ("Running", "Unknown") else "Failed"
