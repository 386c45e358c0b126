"""This module decides when a simulated VMI boots, how the VMI fails, and how long the VMI needs to shut down.

All functions of this module are pure.

Each behavior has a timeline. A timeline is a list of states. Each state begins at a fixed time after the creation of
the VMI. The next step for a VMI is to write the state that is due now, or to wait until the next state is due. If the
simulator is late or was restarted, the simulator writes the state that is due now and skips the earlier states.

A state that lasts for less than `SHORTEST_VISIBLE_S` seconds is not written. If `ready-after` is at least one second,
all of the phases Pending, Scheduling, Scheduled and Running are written. With the default `ready-after` of 300 ms, one
patch makes the VMI ready.

Annotations can be changed at any time. If a user adds the annotation `behavior` to a running VMI, the VMI changes as
the behavior says. If the user removes the annotation, a VMI that is only unready or in phase Unknown becomes ready
again. No VMI changes from Running back to an earlier phase, and a final phase never changes.
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
"""The minimum duration in seconds of a state that is written. The last state of a timeline is always written."""

UP_BEFORE_END_S: Final = 1.0
"""The seconds from the end of `ready-after` until a VMI ends, crashes or changes to phase Unknown."""

_BOOT_PHASES: Final = ("", "Pending", "Scheduling", "Scheduled", "Running")


class TimedState(Struct, frozen=True):
    at_s: float
    state: VMIState


class Timeline(Struct, frozen=True):
    """The states of a VMI over time.

    `states` contains all states. `visible` contains the states that last long enough to be written.
    """

    states: tuple[TimedState, ...]
    visible: tuple[TimedState, ...]


class Obstacle(Struct, frozen=True):
    """The fact that a VMI cannot be scheduled because a PVC is missing or not bound.

    `problem` is the reason in the VMI's condition. `problem` is empty if the VMI only waits until its PVCs are bound.
    """

    problem: str = ""


def next_step(vmi: SimulatedVMI, now: datetime, first_seen: datetime, obstacle: Obstacle | None = None) -> Step:
    """Return the next step for this VMI.

    `first_seen` is the time at which this simulator first saw the VMI. This time makes the creation time more exact,
    because the API server stores the creation time in whole seconds only. After a restart of the simulator,
    `first_seen` may be later than the creation by any time. A late `first_seen` does no harm, because `creation_time`
    limits the error to one second. `obstacle` is the reason why the VMI cannot be scheduled, or None.
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

    The shutdown begins when the condition Ready=False with the reason PodTerminating is written, and lasts
    `settings.shutdown_after_s` seconds. If the VMI is already in a final phase, no shutdown is simulated.
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
    """Return the timeline of a VMI with these settings, if no user changes or deletes the VMI."""
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
    """Return the time at which the VMI's timeline began.

    The result is the first time in the VMI's phase history, or the creation time if the history contains no time.
    """
    for transition in history_of(vmi):
        if transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    return creation_time(vmi.metadata, first_seen)


def creation_time(meta: ObjectMeta, first_seen: datetime) -> datetime:
    """Return the latest possible creation time of an object.

    The API server stores the creation time in whole seconds only, so the actual creation may be up to one second later.
    `first_seen` is the time at which the simulator first saw the object.
    """
    created = meta.creation_timestamp
    return first_seen if created is None else min(first_seen, created + timedelta(seconds=1))


def _unseen_transitions(
    vmi: SimulatedVMI, line: Timeline, current: TimedState, began: datetime
) -> Iterator[PhaseTransition]:
    """Yield the earlier phases that are missing in the VMI's history, each with the time at which the phase was due."""
    known = {transition.phase for transition in history_of(vmi)} | {current.state.phase}
    for timed in line.states:
        if timed.at_s < current.at_s and timed.state.phase not in known:
            known.add(timed.state.phase)
            yield PhaseTransition(timed.state.phase, began + timedelta(seconds=timed.at_s))


def _is_earlier(phase: str, following: str) -> bool:
    """Return True if the VMI would have to boot again to change from `phase` to the phase `following`."""
    return _boot_position(following) < _boot_position(phase)


def _boot_position(phase: str) -> int:
    """Return the position of a phase in the boot sequence. Phases outside of the sequence are treated as Running."""
    return _BOOT_PHASES.index(phase) if phase in _BOOT_PHASES else len(_BOOT_PHASES) - 1


def _final_phase(phase: str) -> str:
    """Return the final phase of a VMI that is shut down in this phase.

    As in KubeVirt, the result is Failed if the guest never ran. A phase that is already final does not change.
    """
    if phase in FINAL_PHASES:
        return phase
    return "Succeeded" if phase in ("Running", "Unknown") else "Failed"
