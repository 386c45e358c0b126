"""What the metrics page tells of an owner, read from the owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from controller.kubevirt.annotations import is_takeover_held
from controller.metrics.objects import ConditionFigure, SetFigures
from informers.meta import KubeObject


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


def figures_of(
    kind: str, group: str, owners: Iterable[Counted], *, rolls_out: Callable[[Any], bool]
) -> Iterable[SetFigures]:
    """The figures of these owners. They are made from immutable values, so any thread may iterate them.

    `rolls_out` tells whether an owner replaces all its outdated children unasked: if so, a rollout that does not end
    is a fault.
    """
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
