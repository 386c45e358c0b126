"""This module decides about the boot, the failures and the shutdown of a simulated VMI.

All functions of this module are pure.

An annotation selects the behavior of a VMI, for example `fail`. Each behavior has a timeline: a list of states. Each
state begins at a fixed time after the creation of the VMI. The next step for a VMI is to write the state that is due
now, or to wait for the next state. A late or restarted simulator skips the earlier states. States shorter than
`SHORTEST_VISIBLE_S` seconds are not written. The annotation `ready-after` has the default value 300 ms. With this
value, one patch makes the VMI ready. If the value is at least one second, the phases Pending, Scheduling, Scheduled and
Running are all written. If the setting `detail` (an annotation or an option) is `full`, all states are written, one
after the other.

Annotations can be changed at any time. If a user adds the annotation `behavior` to a running VMI, the new behavior
takes effect. If the user removes the annotation, an unready or paused VMI or a VMI in phase Unknown becomes ready
again. A VMI never changes from Running back to an earlier phase, and a final phase never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of
from sandbox.settings import DEFAULT, SimulationSettings, read_settings
from sandbox.step import Patch, Step
from sandbox.vmi_status import (
    detail_patch,
    hotplug_patch,
    observed_patch,
    released_patch,
    state_patch,
)
from sandbox.vmis import (
    CONDITION_MISSING,
    CONTAINERS_NOT_READY,
    CONTROLLER_FINALIZER,
    ERR_IMAGE_PULL,
    FINAL_PHASES,
    FINALIZER,
    GUEST_NOT_RUNNING,
    IMAGE_PULL_BACK_OFF,
    PAUSED_BY_USER,
    PAUSED_IO_ERROR,
    POD_NOT_EXISTS,
    POD_TERMINATING,
    PVC_NOT_FOUND,
    READINESS_GATES_NOT_READY,
    UNSCHEDULABLE,
    UNSCHEDULED_PHASES,
    PhaseTransition,
    SimulatedVMI,
    VMIState,
    condition_of,
    finalizers_of,
    grace_period_of,
    has_finalizer,
    history_of,
    is_final,
    is_observed,
    phase_of,
    state_of,
)

SHORTEST_VISIBLE_S: Final = 0.25
"""The minimum duration of a written state in seconds. The last state of a timeline is always written."""

UP_BEFORE_END_S: Final = 1.0
"""The time, in seconds, for which a VMI is ready before it ends, crashes, is paused or becomes Unknown."""

_BOOT_PHASES: Final = ("", "Pending", "Scheduling", "Scheduled", "Running")


class TimedState(Struct, frozen=True):
    at_s: float
    state: VMIState


class Timeline(Struct, frozen=True):
    """The states of a VMI over time.

    `states` contains all states. `visible` contains only the states that are long enough to be written to the VMI.
    """

    states: tuple[TimedState, ...]
    visible: tuple[TimedState, ...]


class Obstacle(Struct, frozen=True):
    """The reason why a VMI waits for a node: a PVC is missing or not bound.

    If a PVC is missing, `problem` is the reason in the VMI's condition. If all PVCs exist, `problem` is empty.
    """

    problem: str = ""


def next_step(
    vmi: SimulatedVMI,
    now: datetime,
    first_seen: datetime,
    obstacle: Obstacle | None = None,
    *,
    vm_exists: bool = False,
    defaults: SimulationSettings = DEFAULT,
) -> Step:
    """Return the next step for this VMI.

    `first_seen` is the time at which this simulator first saw the VMI. This time can be more exact than the creation
    time, which the API server stores in whole seconds. `obstacle` is the reason why the VMI cannot be scheduled, or
    None. `vm_exists` is True if the VMI's VM exists.
    """
    settings = read_settings(annotations_of(vmi.metadata), grace_s=grace_period_of(vmi), defaults=defaults)
    step = _next_step(vmi, settings, now, first_seen, obstacle, vm_exists=vm_exists)
    return msgspec.structs.replace(step, warnings=settings.warnings) if settings.warnings else step


def _next_step(
    vmi: SimulatedVMI,
    settings: SimulationSettings,
    now: datetime,
    first_seen: datetime,
    obstacle: Obstacle | None,
    *,
    vm_exists: bool,
) -> Step:
    if vmi.metadata.deletion_timestamp is not None:
        return _terminate(vmi, settings, now, vmi.metadata.deletion_timestamp, vm_exists=vm_exists)
    if settings.detail == "full" and not is_observed(vmi.metadata):
        return Step(write=observed_patch(vmi, _with_finalizer(vmi)))
    if is_final(vmi):
        # virt-handler wrote the final phase. Then virt-controller changes the condition Ready.
        ended = VMIState(phase_of(vmi), POD_TERMINATING)
        is_still_ready = state_of(vmi) == VMIState(phase_of(vmi))
        return Step(write=state_patch(ended, vmi, now=now) if is_still_ready else None)
    if obstacle is not None and phase_of(vmi) in ("", "Pending"):
        waiting = VMIState("Pending", POD_NOT_EXISTS, obstacle.problem)
        return Step(write=None if state_of(vmi) == waiting else _written(waiting, vmi, settings, now))
    return _follow_timeline(vmi, settings, now, _timeline_start(vmi, first_seen))


def _follow_timeline(vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, began: datetime) -> Step:
    line, is_full = timeline(settings), settings.detail == "full"
    if is_full and (patch := detail_patch(vmi)) is not None:
        return Step(write=patch)
    states = line.states if is_full else line.visible
    elapsed_s = (now - began).total_seconds()
    due = [timed for timed in states if timed.at_s <= elapsed_s]
    if is_full:
        due = due[: _position(states, state_of(vmi)) + 2]
    next_s = states[len(due)].at_s - elapsed_s if len(due) < len(states) else None
    if due and not _is_reached(vmi, due[-1].state) and not _is_earlier(phase_of(vmi), due[-1].state.phase):
        unseen = tuple(_unseen_transitions(vmi, line, due[-1], began))
        return Step(write=_written(due[-1].state, vmi, settings, now, unseen))
    if phase_of(vmi) == "Running" and (patch := hotplug_patch(vmi)) is not None:
        return Step(write=patch)
    return Step(after_s=next_s)


def _is_reached(vmi: SimulatedVMI, state: VMIState) -> bool:
    """Return True if the VMI has this state.

    If the state has no condition Ready, the condition Ready of the VMI is not compared.
    """
    current = state_of(vmi)
    if current is None or state.unready_reason != CONDITION_MISSING:
        return current == state
    return (current.phase, current.problem) == (state.phase, state.problem)


def _position(states: tuple[TimedState, ...], current: VMIState | None) -> int:
    """Return the position of the current state in the timeline.

    Return -1 for a new VMI. If the state is missing in the timeline, return the first position with the same phase. If
    the phase is missing too, return the last position.
    """
    if current is None:
        return -1
    exact = (number for number, timed in enumerate(states) if timed.state == current)
    similar = (number for number, timed in enumerate(states) if timed.state.phase == current.phase)
    return next(exact, next(similar, len(states) - 1))


def _written(
    state: VMIState,
    vmi: SimulatedVMI,
    settings: SimulationSettings,
    now: datetime,
    unseen: tuple[PhaseTransition, ...] = (),
) -> Patch:
    return state_patch(
        state,
        vmi,
        now=now,
        unseen=unseen,
        finalizers=_with_finalizer(vmi),
        detailed=settings.detail == "full",
    )


def _with_finalizer(vmi: SimulatedVMI) -> tuple[str, ...]:
    """Return the VMI's finalizers and the finalizer that KubeVirt's webhook adds to each new VMI."""
    return finalizers_of(vmi) if has_finalizer(vmi) else (*finalizers_of(vmi), FINALIZER)


def _terminate(
    vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, deleted: datetime, *, vm_exists: bool
) -> Step:
    """Return the next step for a VMI that is being deleted: the guest shuts down, then the finalizers are removed.

    The shutdown begins with the condition Ready=False and the reason PodTerminating. It lasts
    `settings.shutdown_after_s` seconds. A VMI without a node or in a final phase has no shutdown. If the VM of the VMI
    exists, the finalizer of the VM controller stays, because the simulated VM controller removes it.
    """
    is_full, phase = settings.detail == "full", phase_of(vmi)
    of_others = tuple(name for name in finalizers_of(vmi) if name not in (FINALIZER, CONTROLLER_FINALIZER))
    waits_for_vm = vm_exists and has_finalizer(vmi, CONTROLLER_FINALIZER)
    left = (CONTROLLER_FINALIZER, *of_others) if waits_for_vm else of_others
    if is_final(vmi):
        if finalizers_of(vmi) in (left, ()) or (is_full and waits_for_vm):
            return Step()
        return Step(write=released_patch(vmi, left))
    if phase not in UNSCHEDULED_PHASES and has_finalizer(vmi) and (is_full or settings.shutdown_after_s):
        shutting_down = VMIState(phase, POD_TERMINATING)
        if state_of(vmi) != shutting_down:
            return Step(write=state_patch(shutting_down, vmi, now=now, detailed=is_full))
        ready = condition_of(vmi, "Ready")
        since = (ready and ready.last_transition_time) or deleted
        left_s = settings.shutdown_after_s - (now - since).total_seconds()
        if left_s > 0:
            return Step(after_s=left_s)
    ended = VMIState(_final_phase(phase), POD_NOT_EXISTS if phase in ("", "Pending") else POD_TERMINATING)
    finalizers = finalizers_of(vmi) if is_full else left
    return Step(write=state_patch(ended, vmi, now=now, finalizers=finalizers, detailed=is_full))


@lru_cache(maxsize=256)
def timeline(settings: SimulationSettings) -> Timeline:
    """Return the timeline of a VMI with these settings."""
    states = _all_states(settings)
    visible = tuple(timed for timed, after in pairwise(states) if after.at_s - timed.at_s >= SHORTEST_VISIBLE_S)
    return Timeline(states, (*visible, states[-1]))


def _all_states(settings: SimulationSettings) -> tuple[TimedState, ...]:
    up_s = settings.ready_after_s
    pending, scheduling, _, running = boot = (
        TimedState(0.0, VMIState("Pending", CONDITION_MISSING)),
        TimedState(up_s * 0.25, VMIState("Scheduling", GUEST_NOT_RUNNING)),
        TimedState(up_s * 0.5, VMIState("Scheduled", GUEST_NOT_RUNNING)),
        TimedState(up_s * 0.75, VMIState("Running", GUEST_NOT_RUNNING)),
    )
    ready = TimedState(up_s, VMIState("Running"))
    end_s = up_s + UP_BEFORE_END_S
    match settings.behavior:
        case "normal" | "slow-shutdown" | "datavolume-error":
            return (*boot, ready)
        case "never-ready":
            return (*boot, TimedState(up_s, VMIState("Running", CONTAINERS_NOT_READY)))
        case "crash-loop":
            return (*boot, ready, TimedState(end_s, VMIState("Failed")))
        case "fail":
            return pending, scheduling, TimedState(running.at_s, VMIState("Failed", POD_TERMINATING))
        case "image-error":
            pulling = TimedState(up_s * 0.5, VMIState("Scheduling", GUEST_NOT_RUNNING, ERR_IMAGE_PULL))
            backing_off = TimedState(end_s, VMIState("Scheduling", GUEST_NOT_RUNNING, IMAGE_PULL_BACK_OFF))
            return pending, scheduling, pulling, backing_off
        case "unschedulable":
            return pending, TimedState(scheduling.at_s, VMIState("Scheduling", GUEST_NOT_RUNNING, UNSCHEDULABLE))
        case "pvc-missing":
            return (TimedState(0.0, VMIState("Pending", POD_NOT_EXISTS, PVC_NOT_FOUND)),)
        case "finish":
            return (*boot, ready, TimedState(end_s, VMIState("Succeeded")))
        case "paused" | "io-error":
            # virt-handler writes the condition Paused. Then the Pod is not ready any more, and the VMI follows it.
            reason = PAUSED_BY_USER if settings.behavior == "paused" else PAUSED_IO_ERROR
            paused = VMIState("Running", "", reason), VMIState("Running", READINESS_GATES_NOT_READY, reason)
            return (*boot, ready, *(TimedState(end_s, state) for state in paused))
        case "unknown":
            return (*boot, ready, TimedState(end_s, VMIState("Unknown", GUEST_NOT_RUNNING)))
        case _:
            assert_never(settings.behavior)


def _timeline_start(vmi: SimulatedVMI, first_seen: datetime) -> datetime:
    """Return the start of the VMI's timeline: the first time in the VMI's phase history, or else the creation time."""
    for transition in history_of(vmi):
        if transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    return creation_time(vmi.metadata, first_seen)


def creation_time(meta: ObjectMeta, first_seen: datetime) -> datetime:
    """Return the latest possible creation time of an object.

    The API server stores creation times without fractions of a second. So the object may have been created up to one
    second after the stored time. `first_seen` is the time at which the simulator first saw the object.
    """
    created = meta.creation_timestamp
    return first_seen if created is None else min(first_seen, created + timedelta(seconds=1))


def _unseen_transitions(
    vmi: SimulatedVMI, line: Timeline, current: TimedState, began: datetime
) -> Iterator[PhaseTransition]:
    """Yield a transition for each past phase that the VMI's phase history does not contain.

    The timeline `line` has the past phases and their times.
    """
    known = {transition.phase for transition in history_of(vmi)} | {current.state.phase}
    for timed in line.states:
        if timed.at_s < current.at_s and timed.state.phase not in known:
            known.add(timed.state.phase)
            yield PhaseTransition(timed.state.phase, began + timedelta(seconds=timed.at_s))


def _is_earlier(phase: str, following: str) -> bool:
    """Return True if a change from `phase` to `following` goes back in the boot sequence."""
    return _boot_position(following) < _boot_position(phase)


def _boot_position(phase: str) -> int:
    """Return the position of a phase in the boot sequence. Phases outside of the sequence are treated as Running."""
    return _BOOT_PHASES.index(phase) if phase in _BOOT_PHASES else len(_BOOT_PHASES) - 1


def _final_phase(phase: str) -> str:
    """Return the final phase of a VMI that is shut down in the phase `phase`.

    As in KubeVirt, the result is Failed if the guest never ran. A final phase does not change.
    """
    if phase in FINAL_PHASES:
        return phase
    return "Succeeded" if phase in ("Running", "Unknown") else "Failed"
