"""The settings that users write as annotations: deletion cost, time limits (R4a, R6, R14, P8, P14, P15)."""

from datetime import timedelta

from controller.kubevirt.annotations import DELETION_COST, PROGRESS_DEADLINE, SCALE_IN
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


def time_limit(owner: ObjectMeta, name: str) -> timedelta | None:
    """Return the time in an annotation of a set or pool. Without the annotation, or if its value is invalid, the result
    is None.
    """
    seconds = setting(owner, name)
    return timedelta(seconds=int(seconds)) if seconds is not None else None


def parse_deadline(owner: ObjectMeta) -> timedelta:
    """Return the time that a rollout may wait for a VM to become ready. After this time a notice tells the user.

    Without a valid annotation, the result is the default.
    """
    return time_limit(owner, PROGRESS_DEADLINE) or timedelta(seconds=PROGRESS_DEADLINE_S)
