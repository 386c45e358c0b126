"""The settings that users write as annotations of a set, a pool or their members (R4a, R6, R14, P8, P14, P15).

The parser of each kind reads those of the owner once. No other module reads them.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.kubevirt.annotations import (
    DELETION_COST,
    DISRUPTION_BUDGET,
    DRAIN_SECONDS,
    PROGRESS_DEADLINE,
    READY_REVISION,
    REPLACE_UNREADY_AFTER,
    ROLLBACK,
    ROLLED_BACK,
    SCALE_IN,
)
from controller.kubevirt.busy import time_of
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta, annotations_of

PROGRESS_DEADLINE_S: Final = 600
DRAIN_S: Final = 600


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that both kinds have.

    - `deadline`: the time for which a rollout may wait for a VM to become ready. After it, a notice tells the user.
    - `drain`: the longest time to drain, or None if VMs do not drain (P26).
    - `replace_unready_after`: the time limit for a running VM to become ready, or None.
    - `budget`: the number or percentage of VMs that an eviction may take, or None if no disruption budget is asked for
      (P27). A wrong value is "".
    - `spares_running`: True if a scale-in deletes no VM that runs (P25).
    - `returns`: True if a rollout that stalls goes back by itself (P29).
    - `ready_revision`: the noted revision that was wholly ready, or "". It counts only if the VMs may return.
    - `returned`: the digest of the template from which the VMs have returned, and their revision. Both may be "".
    - `returned_at`: the time of this return, or None if it is not known.
    """

    deadline: timedelta
    drain: timedelta | None
    replace_unready_after: timedelta | None
    budget: str | None
    spares_running: bool
    returns: bool
    ready_revision: str
    returned: tuple[str, str]
    returned_at: datetime | None

    def return_target(self, digest: str) -> str:
        """Return the revision to which the VMs return while the spec has the template `digest`, or ""."""
        rejected, target = self.returned
        return target if self.returns and rejected == digest else ""


def read_settings(owner: ObjectMeta) -> Settings:
    """Read the annotations of a set or pool. A wrong value counts as absent. But a wrong time to drain is the default,
    and every value spares VMs that run, because harm is worse than delay.
    """
    annotations, returns = annotations_of(owner), setting(owner, ROLLBACK) is not None
    note, _, at = annotations.get(ROLLED_BACK, "").partition(" at ")
    rejected, _, target = note.partition(" to ")
    drain = time_limit(owner, DRAIN_SECONDS)
    return Settings(
        deadline=time_limit(owner, PROGRESS_DEADLINE) or timedelta(seconds=PROGRESS_DEADLINE_S),
        drain=timedelta(seconds=DRAIN_S) if drain is None and DRAIN_SECONDS in annotations else drain,
        replace_unready_after=time_limit(owner, REPLACE_UNREADY_AFTER),
        budget=setting(owner, DISRUPTION_BUDGET) or "" if asks_for_budget(owner) else None,
        spares_running=SCALE_IN in annotations,
        returns=returns,
        ready_revision=annotations.get(READY_REVISION, "") if returns else "",
        returned=(rejected, target),
        returned_at=time_of(at),
    )


def asks_for_budget(owner: ObjectMeta) -> bool:
    return DISRUPTION_BUDGET in annotations_of(owner)


def deletion_cost(meta: ObjectMeta) -> int:
    """Return the deletion cost of a VM or VMI, by default 0. A scale-in deletes those with a lower cost first."""
    return int(setting(meta, DELETION_COST) or 0)


def time_limit(owner: ObjectMeta, name: str) -> timedelta | None:
    """Return the time in an annotation of a set or pool, or None if the annotation is absent or invalid."""
    seconds = setting(owner, name)
    return timedelta(seconds=int(seconds)) if seconds is not None else None
