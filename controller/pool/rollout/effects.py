"""What an update does to a VM, in one word. Previews, the history and the takeover use the same words.

The words `live`, `restart` and `recreate` are also the values of `vmherd.dev/most-disruptive-action`.
"""

from enum import StrEnum

from controller.kubevirt import vmis
from controller.kubevirt.live_updates import Change
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.live import live_change
from controller.pool.rollout.steps import PendingStep, Step
from controller.pool.spec.template import DiskChange, Template, disk_change


class Effect(StrEnum):
    """From the least to the most disruptive: nothing changes, only objects change, KubeVirt changes the running VM, the
    VM is restarted, it is stopped, or it is deleted with its disks and created again.
    """

    NOTHING = "nothing"
    NO_RESTART = "no restart"
    LIVE = "live"
    RESTART = "restart"
    STOP = "stop"
    RECREATE = "recreate"


def effect_between(past: Template, current: Template, live: LiveUpdates | None) -> Effect:
    """Return what an update between these templates does to a running VM that can migrate."""
    if past.digest == current.digest:
        return Effect.NOTHING
    if disk_change(past, current) not in (DiskChange.NONE, DiskChange.LARGER):
        return Effect.RECREATE
    if current.stops and not past.stops:
        return Effect.STOP
    change = live_change(live, past, current)
    if live is not None and (change is Change.PLACEMENT or (change is Change.SIZE and live.rollout.migrates)):
        return Effect.LIVE
    return Effect.RESTART if past.machine != current.machine else Effect.NO_RESTART


def effect_of(pending: PendingStep) -> Effect:
    """Return what the update does to the VM of this step. Later steps of the same update are part of it."""
    vmi = pending.machine.vmi
    match pending.step:
        case Step.RECREATE:
            return Effect.RECREATE
        case Step.RESTART:
            return Effect.RESTART
        case Step.UPDATE if pending.stops:
            return Effect.STOP
        case Step.UPDATE | Step.LIVE if pending.live:
            return Effect.RESTART if pending.obstacle else Effect.LIVE
        case Step.UPDATE if pending.costly or (pending.risky and vmi is not None and vmis.is_active(vmi)):
            return Effect.RESTART
        case _:
            return Effect.NO_RESTART
