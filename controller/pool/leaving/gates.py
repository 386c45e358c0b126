"""The gates: which VMs may leave their place now, and why others must not (P20, P21).

One table has the gates of each way to leave, and of the changes that come before. A VM passes the gates of its way in
the order of the table. The first gate that says no gives the reason, and the VM stays. Three gates follow for every
way: the room of the step that asks, the drain (`replicas.draining`), and the executor. It asks whether the server would
accept the successor, and judges the VM again from the objects on the server. A scale-in, which chooses among groups of
VMs, asks for the gates of SURPLUS itself (`members.select`). A protection stops deletes, and no restarts.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from controller.kubevirt.annotations import MOST_DISRUPTIVE, RECREATE, RESTART, is_protected
from controller.kubevirt.delicate import PROTECTED, delicate_reason
from controller.kubevirt.vms import printable_status_of, starts_after_creation
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.rollout.live import because, change_of
from controller.pool.spec.policies import Strategy

Gate: TypeAlias = Callable[[Situation, Machine], str]
"""A function that returns the reason why the VM must stay, or ""."""

DISK_STATES: Final = frozenset({"DataVolumeError", "ErrorPvcNotFound"})
"""The values of `printableStatus` that report a failure of the VM's disk."""

INCURABLE_STATES: Final = frozenset({"ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff"})
"""The values of `printableStatus` that report a failure that a new disk does not cure."""


class Way(Enum):
    """What is done with a VM.

    - SURPLUS: it is deleted, and nothing takes its place.
    - FINISHED: it has finished, and is deleted and created again.
    - NEW_DISKS: it is a standby, and is deleted with its disks and created again.
    - HEALING: it fails, and is deleted and created again.
    - RECREATION: the update deletes it with its disks and creates it again.
    - RESTART: the update restarts its VMI.
    - TEMPLATE: it gets a template with which its VMI has to restart.
    - CHANGE: it gets a template, and no VMI restarts.
    - LABELS: it gets labels and annotations.
    """

    SURPLUS = auto()
    FINISHED = auto()
    NEW_DISKS = auto()
    HEALING = auto()
    RECREATION = auto()
    RESTART = auto()
    TEMPLATE = auto()
    CHANGE = auto()
    LABELS = auto()


class Stop(NamedTuple):
    """The reason why a VM must not go a way now, or "". With `needs_user`, it waits until a user acts. `remedy` is the
    command that lets it go, as in a `Wait`, or "".
    """

    reason: str = ""
    needs_user: bool = False
    remedy: str = ""


def stop_of(situation: Situation, machine: Machine, way: Way) -> Stop:
    for gate in GATES[way]:
        if reason := gate(situation, machine):
            allowed = _ALLOWS.get(gate)
            remedy = f"kubectl annotate --overwrite {{this}} {MOST_DISRUPTIVE}={allowed}" if allowed else ""
            harm = "  # deletes the disks" if allowed == RECREATE else ""
            return Stop(reason, gate in _OF_USERS, remedy + harm)
    return Stop()


def _protection(_: Situation, machine: Machine) -> str:
    return PROTECTED if is_protected(machine.metadata) else ""


def _moment(situation: Situation, machine: Machine) -> str:
    return delicate_reason(machine.vm, machine.vmi, situation.now)


def _moment_of_restart(situation: Situation, machine: Machine) -> str:
    # KubeVirt may have begun to resize the VMI because the pool changed the VM. The pool's restart gives the same size.
    return delicate_reason(machine.vm, machine.vmi, situation.now, may_interrupt_resizing=True)


def _limit(situation: Situation, _: Machine) -> str:
    limit = situation.snapshot.limits.max_replicas
    if 0 < limit < len(situation.snapshot.members):
        return f"the pool has more virtual machines than --max-replicas ({limit}) allows, so none would come back"
    return ""


def _refusal(situation: Situation, machine: Machine) -> str:
    refused = situation.snapshot.refused.get(machine.metadata.name)
    return f"its last change was refused: {refused.message}" if refused is not None else ""


def _answer(situation: Situation, machine: Machine) -> str:
    is_lost = machine.metadata.uid in situation.lost
    return "its node does not answer, or its Pod is terminating" if is_lost else ""


def _failing_disk(situation: Situation, machine: Machine) -> str:
    state, name = printable_status_of(machine.vm), machine.metadata.name
    if not situation.intent.scale_in.preserve or state not in DISK_STATES:
        return ""
    return (
        f"its disk fails ({state}), and statePreservation keeps the disk, so a new virtual machine would use the "
        f"same disk; repair or delete the disk, or delete {name}"
    )


def _disks_in_vain(situation: Situation, machine: Machine) -> str:
    state, disks = printable_status_of(machine.vm), own_disks_of(machine)
    if situation.intent.scale_in.preserve or state not in INCURABLE_STATES or not disks:
        return ""
    return (
        f"{state} is not cured by new disks, and its disks would be deleted ({_list(disks)}); "
        f"correct the cause, or delete {machine.metadata.name}"
    )


def _strategy(situation: Situation, _: Machine) -> str:
    if situation.intent.update.strategy is Strategy.PROACTIVE:
        return ""
    return "it needs new disks, and spec.updateStrategy deletes no virtual machine: delete it"


def _run_strategy(_: Situation, machine: Machine) -> str:
    if starts_after_creation(machine.vm):
        return ""
    return "it needs new disks, and its run strategy does not start a new virtual machine: delete it"


def _disks_to_keep(situation: Situation, machine: Machine) -> str:
    intent, why = situation.intent, ""
    if intent.most_disruptive == RECREATE:
        return ""
    if intent.most_disruptive is not None:
        why = f"the annotation {MOST_DISRUPTIVE} forbids it"
    elif situation.target.rejected is not None:
        why = "a return to an earlier revision deletes no disk by itself"
    elif intent.scale_in.preserve:
        why = "statePreservation keeps the disks of this pool"
    return (
        f"its disks would be deleted ({_list(own_disks_of(machine))}), and {why}; "
        f"annotate the pool with {MOST_DISRUPTIVE}={RECREATE} to allow it"
        if why
        else ""
    )


def _cap(situation: Situation, machine: Machine) -> str:
    if not situation.intent.forbids_restarts:
        return ""
    _, obstacle = change_of(situation, machine, situation.revisions.template)
    return (
        f"it needs a restart{because(obstacle)}, and the annotation {MOST_DISRUPTIVE}="
        f"{situation.intent.most_disruptive} forbids it; annotate the pool with {MOST_DISRUPTIVE}={RESTART} to allow it"
    )


GATES: Final[Mapping[Way, tuple[Gate, ...]]] = {
    Way.SURPLUS: (_protection, _moment),
    Way.FINISHED: (_refusal, _limit, _protection, _moment),
    Way.NEW_DISKS: (_disks_to_keep, _refusal, _limit, _protection, _moment),
    Way.HEALING: (_failing_disk, _disks_in_vain, _refusal, _limit, _protection, _moment),
    Way.RECREATION: (_strategy, _run_strategy, _disks_to_keep, _protection, _limit, _moment, _answer, _refusal),
    Way.RESTART: (_cap, _moment_of_restart, _answer, _refusal),
    Way.TEMPLATE: (_cap, _moment, _answer, _refusal),
    Way.CHANGE: (_moment, _answer, _refusal),
    Way.LABELS: (_answer, _refusal),
}

_OF_USERS: Final = frozenset({_strategy, _run_strategy, _disks_to_keep, _protection, _limit, _cap})
"""The gates that wait until a user acts. The others end by themselves."""

_ALLOWS: Final[Mapping[Gate, str]] = {_disks_to_keep: RECREATE, _cap: RESTART}
"""The gates that one value of the annotation opens."""


def own_disks_of(machine: Machine) -> tuple[str, ...]:
    """Return the disks that the VM's dataVolumeTemplates have made. They are deleted together with the VM."""
    templates = (machine.vm.spec.data_volume_templates if machine.vm.spec is not None else None) or ()
    return tuple(name for each in templates if each.metadata is not None and (name := each.metadata.name))


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(sorted(names)) or "none"
