"""Reads the values of a replica set or pool for the metrics page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from controller.kubevirt.annotations import is_takeover_held
from controller.metrics.objects import ConditionFigure, SetFigures
from informers.meta import KubeObject


class _Spec(Protocol):
    @property
    def replicas(self) -> int | None: ...
    @property
    def paused(self) -> bool | None: ...


class _Status(Protocol):
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


class Owner(KubeObject, Protocol):
    """A replica set or pool, with only the fields that the metrics read."""

    @property
    def spec(self) -> _Spec: ...
    @property
    def status(self) -> _Status | None: ...


def _no_limit(_: Any) -> None:
    return None


def figures_of(
    kind: str,
    group: str,
    owners: Iterable[Owner],
    *,
    rolls_out: Callable[[Any], bool],
    max_unavailable: Callable[[Any], int | None] = _no_limit,
) -> Iterable[SetFigures]:
    """Yield the values that the metrics page shows for each replica set or pool.

    The sets and pools are immutable, so any thread may iterate the result. The function `rolls_out` returns True if a
    set or pool replaces all its outdated VMs or VMIs automatically. The function `max_unavailable` returns the number
    of replicas that may be unavailable at the same time, or None.
    """
    for owner in owners:
        meta, spec, status = owner.metadata, owner.spec, owner.status
        desired, ready = 1 if spec.replicas is None else spec.replicas, (status and status.ready_replicas) or 0
        yield SetFigures(
            kind=kind,
            group=group,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            created=meta.creation_timestamp,
            generation=meta.generation,
            desired=desired,
            paused=bool(spec.paused),
            rolls_out=rolls_out(owner),
            takeover_held=is_takeover_held(meta),
            current=(status and status.replicas) or 0,
            ready=ready,
            max_unavailable=max_unavailable(owner) if ready < desired else None,
            updated=status.updated_replicas if status else None,
            observed_generation=status.observed_generation if status else None,
            conditions=(status and status.conditions) or (),
            # The status of another kind may have no printableStatus.
            printable_status=getattr(status, "printable_status", None) or "",
        )
