"""The settings that users write as annotations: deletion cost, time limits (R4a, R6, R14, P8, P14, P15)."""

from datetime import timedelta

from controller.kubevirt.annotations import (
    DELETION_COST,
    PROGRESS_DEADLINE,
    REPLACE_UNREADY_AFTER,
    SCALE_IN,
    SUBSTITUTE_LOST_AFTER,
)
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta, annotations_of

PROGRESS_DEADLINE_S = 600


def deletion_cost(meta: ObjectMeta) -> int:
    """Return the deletion cost of a VM or VMI. Without a valid annotation, the cost is 0.

    When the number of replicas is reduced, VMs and VMIs with a lower cost are deleted first.
    """
    return int(setting(meta, DELETION_COST) or 0)


def spares_running(owner: ObjectMeta) -> bool:
    """Return True if a scale-in deletes no VM that runs (P25). Every value counts, because harm is worse than delay."""
    return SCALE_IN in annotations_of(owner)


def replace_unready_after(owner: ObjectMeta) -> timedelta | None:
    """Return the time limit for a running VM to become ready, or None if there is no limit.

    After this time, the VM is replaced. An invalid value counts as no annotation.
    """
    return _time_of(owner, REPLACE_UNREADY_AFTER)


def substitute_lost_after(owner: ObjectMeta) -> timedelta | None:
    """Return the time after which a lost VM gets a substitute, or None if it gets none (P28).

    An invalid value counts as no annotation.
    """
    return _time_of(owner, SUBSTITUTE_LOST_AFTER)


def parse_deadline(owner: ObjectMeta) -> timedelta:
    """Return the time that a rollout may wait for a VM to become ready. After this time a notice tells the user.

    Without a valid annotation, the result is the default.
    """
    return timedelta(seconds=int(setting(owner, PROGRESS_DEADLINE) or PROGRESS_DEADLINE_S))


def _time_of(owner: ObjectMeta, name: str) -> timedelta | None:
    seconds = setting(owner, name)
    return timedelta(seconds=int(seconds)) if seconds is not None else None
