"""Decides about the boot, the failures and the shutdown of a simulated VMI. All functions are pure.

Each behavior has a timeline: a list of states, each at a fixed time after the creation of the VMI. The next step is to
write the state that is due now. So a late or restarted simulator skips earlier states. docs/sandbox.md has the rest.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, assert_never

from msgspec import Struct

from controller.kubevirt.vmi_types import PhaseTransition
from informers.meta import ObjectMeta, annotations_of
from sandbox.settings import DEFAULT, SimulationSettings, read_settings
from sandbox.step import Step
from sandbox.vmi_status import detail_patch, hotplug_patch, state_patch, vmi_patch
from sandbox.vmis import (
    CONTROLLER_FINALIZER,
    FINALIZER,
    OBSERVED_VERSIONS,
    UNSCHEDULED_PHASES,
    Reason,
    SimulatedVMI,
    VMIState,
    final_phase,
    is_observed,
)

SHORTEST_VISIBLE_S: Final = 0.25
"""The minimum duration of a written state in seconds. The last state of a timeline is always written."""

UP_BEFORE_END_S: Final = 1.0
"""The time, in seconds, for which a VMI is ready before it ends, crashes, is paused or becomes Unknown."""

_BOOT_PHASES: Final = ("", "Pending", "Scheduling", "Scheduled", "Running")


class TimedState(Struct, frozen=True):
    at_s: float
    state: VMIState


def next_step(
    vmi: SimulatedVMI,
    now: datetime,
    first_seen: datetime,
    obstacle: str | None = None,
    *,
    vm_exists: bool = False,
    defaults: SimulationSettings = DEFAULT,
) -> Step:
    """Return the next step for this VMI. `first_seen` is when this simulator first saw it, exactly.

    `obstacle` is None, or the reason why the VMI waits for a node: "" if all PVCs exist and one of them is not bound.
    """
    grace_s = vmi.spec.termination_grace_period_seconds or 0
    settings = read_settings(annotations_of(vmi.metadata), grace_s=grace_s, defaults=defaults)
    is_full = settings.detail == "full"
    if vmi.metadata.deletion_timestamp is not None:
        return _terminate(vmi, settings, now, vmi.metadata.deletion_timestamp, vm_exists=vm_exists)
    if is_full and not is_observed(vmi.metadata):
        return Step(write=vmi_patch(vmi, annotations=OBSERVED_VERSIONS, finalizers=_with_finalizer(vmi)))
    if vmi.is_final:
        # virt-handler wrote the final phase. Then virt-controller changes the condition Ready.
        ended = VMIState(vmi.phase, Reason.POD_TERMINATING)
        is_still_ready = vmi.state == VMIState(vmi.phase)
        return Step(write=state_patch(ended, vmi, now=now) if is_still_ready else None)
    if obstacle is not None and vmi.phase in ("", "Pending"):
        waiting = VMIState("Pending", Reason.POD_NOT_EXISTS, obstacle)
        patch = state_patch(waiting, vmi, now=now, finalizers=_with_finalizer(vmi), detailed=is_full)
        return Step(write=patch if vmi.state != waiting else None)
    return _follow_timeline(vmi, settings, now, _timeline_start(vmi, first_seen))


def _follow_timeline(vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, began: datetime) -> Step:
    every, is_full = timeline(settings), settings.detail == "full"
    if is_full and (patch := detail_patch(vmi)) is not None:
        return Step(write=patch)
    states = every if is_full else visible(every)
    elapsed_s = (now - began).total_seconds()
    due = [timed for timed in states if timed.at_s <= elapsed_s]
    if is_full:
        due = due[: _position(states, vmi.state) + 2]
    next_s = states[len(due)].at_s - elapsed_s if len(due) < len(states) else None
    goes_back = bool(due) and _boot_position(due[-1].state.phase) < _boot_position(vmi.phase)
    if due and not _is_reached(vmi, due[-1].state) and not goes_back:
        unseen, finalizers = _unseen_transitions(vmi, every, due[-1], began), _with_finalizer(vmi)
        state = due[-1].state
        return Step(write=state_patch(state, vmi, now=now, unseen=unseen, finalizers=finalizers, detailed=is_full))
    if vmi.phase == "Running" and (patch := hotplug_patch(vmi)) is not None:
        return Step(write=patch)
    return Step(after_s=next_s)


def _is_reached(vmi: SimulatedVMI, state: VMIState) -> bool:
    """Return True if the VMI has this state. The condition Ready counts only if the state has it."""
    current = vmi.state
    if current is None or state.unready_reason != Reason.CONDITION_MISSING:
        return current == state
    return (current.phase, current.problem) == (state.phase, state.problem)


def _position(states: tuple[TimedState, ...], current: VMIState | None) -> int:
    """Return the position of the state, of the first with its phase, or of the last. A new VMI has -1."""
    if current is None:
        return -1
    exact = (number for number, timed in enumerate(states) if timed.state == current)
    similar = (number for number, timed in enumerate(states) if timed.state.phase == current.phase)
    return next(exact, next(similar, len(states) - 1))


def _with_finalizer(vmi: SimulatedVMI) -> tuple[str, ...]:
    return vmi.finalizers if FINALIZER in vmi.finalizers else (*vmi.finalizers, FINALIZER)


def _terminate(
    vmi: SimulatedVMI, settings: SimulationSettings, now: datetime, deleted: datetime, *, vm_exists: bool
) -> Step:
    """Return the next step for a deleted VMI. The VM controller removes its own finalizer, if the VM exists."""
    is_full, phase = settings.detail == "full", vmi.phase
    of_others = tuple(name for name in vmi.finalizers if name not in (FINALIZER, CONTROLLER_FINALIZER))
    waits_for_vm = vm_exists and CONTROLLER_FINALIZER in vmi.finalizers
    left = (CONTROLLER_FINALIZER, *of_others) if waits_for_vm else of_others
    if vmi.is_final:
        if vmi.finalizers in (left, ()) or (is_full and waits_for_vm):
            return Step()
        gone = {"launcherContainerImageVersion": None, "activePods": None}  # the Pod was deleted
        return Step(write=vmi_patch(vmi, status=gone, finalizers=left))
    if phase not in UNSCHEDULED_PHASES and FINALIZER in vmi.finalizers and (is_full or settings.shutdown_after_s):
        shutting_down = VMIState(phase, Reason.POD_TERMINATING)
        if vmi.state != shutting_down:
            return Step(write=state_patch(shutting_down, vmi, now=now, detailed=is_full))
        ready = vmi.condition("Ready")
        since = (ready and ready.last_transition_time) or deleted
        left_s = settings.shutdown_after_s - (now - since).total_seconds()
        if left_s > 0:
            return Step(after_s=left_s)
    ended = VMIState(final_phase(phase), Reason.POD_NOT_EXISTS if phase in ("", "Pending") else Reason.POD_TERMINATING)
    finalizers = vmi.finalizers if is_full else left
    return Step(write=state_patch(ended, vmi, now=now, finalizers=finalizers, detailed=is_full))


@lru_cache(maxsize=256)
def visible(states: tuple[TimedState, ...]) -> tuple[TimedState, ...]:
    lasting = (timed for timed, after in pairwise(states) if after.at_s - timed.at_s >= SHORTEST_VISIBLE_S)
    return (*lasting, states[-1])


@lru_cache(maxsize=256)
def timeline(settings: SimulationSettings) -> tuple[TimedState, ...]:
    up_s = settings.ready_after_s
    end_s = up_s + UP_BEFORE_END_S
    starting = _at(0.0, "Pending", Reason.CONDITION_MISSING), _at(up_s * 0.25, "Scheduling", Reason.GUEST_NOT_RUNNING)
    boot = (
        *starting,
        _at(up_s * 0.5, "Scheduled", Reason.GUEST_NOT_RUNNING),
        _at(up_s * 0.75, "Running", Reason.GUEST_NOT_RUNNING),
    )
    up = (*boot, _at(up_s, "Running"))
    match settings.behavior:
        case "normal" | "slow-shutdown" | "datavolume-error":
            return up
        case "never-ready":
            return (*boot, _at(up_s, "Running", Reason.CONTAINERS_NOT_READY))
        case "crash-loop":
            return (*up, _at(end_s, "Failed"))
        case "fail":
            return (*starting, _at(up_s * 0.75, "Failed", Reason.POD_TERMINATING))
        case "image-error":
            pulling = _at(up_s * 0.5, "Scheduling", Reason.GUEST_NOT_RUNNING, Reason.ERR_IMAGE_PULL)
            backing_off = _at(end_s, "Scheduling", Reason.GUEST_NOT_RUNNING, Reason.IMAGE_PULL_BACK_OFF)
            return (*starting, pulling, backing_off)
        case "unschedulable":
            refused = _at(up_s * 0.25, "Scheduling", Reason.GUEST_NOT_RUNNING, Reason.UNSCHEDULABLE)
            return starting[0], refused
        case "pvc-missing":
            return (_at(0.0, "Pending", Reason.POD_NOT_EXISTS, Reason.PVC_NOT_FOUND),)
        case "finish":
            return (*up, _at(end_s, "Succeeded"))
        case "paused" | "io-error":
            # virt-handler writes the condition Paused. Then the Pod is not ready any more, and the VMI follows it.
            reason = Reason.PAUSED_BY_USER if settings.behavior == "paused" else Reason.PAUSED_IO_ERROR
            unready = Reason.READINESS_GATES_NOT_READY
            return (*up, _at(end_s, "Running", "", reason), _at(end_s, "Running", unready, reason))
        case "lost":
            return (*up, _at(end_s, "Running", Reason.NO_ANSWER))
        case "unknown":
            return (*up, _at(end_s, "Unknown", Reason.GUEST_NOT_RUNNING))
        case _:
            assert_never(settings.behavior)


def _at(at_s: float, phase: str, unready_reason: str = "", problem: str = "") -> TimedState:
    return TimedState(at_s, VMIState(phase, unready_reason, problem))


def _timeline_start(vmi: SimulatedVMI, first_seen: datetime) -> datetime:
    for transition in vmi.history:
        if transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    return creation_time(vmi.metadata, first_seen)


def creation_time(meta: ObjectMeta, first_seen: datetime) -> datetime:
    """Return the latest possible creation time, at most `first_seen`: the API server drops fractions of a second."""
    created = meta.creation_timestamp
    return first_seen if created is None else min(first_seen, created + timedelta(seconds=1))


def _unseen_transitions(
    vmi: SimulatedVMI, states: tuple[TimedState, ...], current: TimedState, began: datetime
) -> Iterator[PhaseTransition]:
    known = {transition.phase for transition in vmi.history} | {current.state.phase}
    for timed in states:
        if timed.at_s < current.at_s and timed.state.phase not in known:
            known.add(timed.state.phase)
            yield PhaseTransition(timed.state.phase, began + timedelta(seconds=timed.at_s))


def _boot_position(phase: str) -> int:
    return _BOOT_PHASES.index(phase) if phase in _BOOT_PHASES else len(_BOOT_PHASES) - 1
