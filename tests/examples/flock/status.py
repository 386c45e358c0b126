"""The status and the Events of a flock, the example of a new kind."""

from collections.abc import Iterable

from controller.kubevirt.vmis import is_ready
from controller.runtime.actions import Create, Done, Notice, Outcome
from tests.examples.flock.snapshot import Snapshot
from tests.examples.flock.types import FlockStatus


def next_status(snapshot: Snapshot) -> FlockStatus:
    return FlockStatus(
        replicas=len(snapshot.members),
        ready_replicas=sum(map(is_ready, snapshot.members)),
        observed_generation=snapshot.owner.metadata.generation,
    )


def outcome_notices(outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    return tuple(
        Notice(reason="Hatched", message=f"Created {action.key.name}", warning=False)
        for outcome in outcomes
        if isinstance(outcome, Done) and isinstance(action := outcome.action, Create)
    )
