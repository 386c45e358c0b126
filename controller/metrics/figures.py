"""What the metrics page tells of an owner, read from the owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from controller.kubevirt.annotations import PARTITION, ROLLING_UPDATE, is_takeover_held
from controller.kubevirt.pool_types import PoolSpec, UpdateStrategy
from controller.metrics.objects import ConditionFigure, SetFigures
from informers.meta import KubeObject, annotations_of


class _Wish(Protocol):
    @property
    def replicas(self) -> int | None: ...
    @property
    def paused(self) -> bool | None: ...


class _Counts(Protocol):
    @property
    def replicas(self) -> int | None: ...
    @property
    def ready_replicas(self) -> int | None: ...
    @property
    def updated_replicas(self) -> int | None: ...
    @property
    def observed_generation(self) -> int | None: ...
    @property
    def conditions(self) -> Sequence[ConditionFigure] | None: ...


class Counted(KubeObject, Protocol):
    """An owner, as far as figures are made from it."""

    @property
    def spec(self) -> _Wish: ...
    @property
    def status(self) -> _Counts | None: ...


def figures_of(kind: str, group: str, owners: Iterable[Counted]) -> Iterable[SetFigures]:
    """Made from values that never change, so it may be iterated anywhere."""
    for owner in owners:
        meta, spec, status = owner.metadata, owner.spec, owner.status
        yield SetFigures(
            kind=kind,
            group=group,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            created=meta.creation_timestamp,
            generation=meta.generation,
            desired=1 if spec.replicas is None else spec.replicas,
            paused=bool(spec.paused),
            rolls_out=rolls_out(owner),
            takeover_held=is_takeover_held(meta),
            current=(status and status.replicas) or 0,
            ready=(status and status.ready_replicas) or 0,
            updated=status.updated_replicas if status else None,
            observed_generation=status.observed_generation if status else None,
            conditions=(status and status.conditions) or (),
            # Replica sets have none.
            printable_status=getattr(status, "printable_status", None) or "",
        )


def rolls_out(owner: Counted) -> bool:
    """Whether all that is outdated is going to be replaced, unasked: a rollout that does not end is then amiss."""
    annotations, spec = annotations_of(owner.metadata), owner.spec
    if isinstance(spec, PoolSpec):
        return PARTITION not in annotations and _updates_all(spec.update_strategy or UpdateStrategy())
    return ROLLING_UPDATE in annotations


def _updates_all(strategy: UpdateStrategy) -> bool:
    if strategy.opportunistic is not None or strategy.unmanaged is not None:
        return False
    policy = strategy.proactive.selection_policy if strategy.proactive is not None else None
    return policy is None or policy.selectors is None
