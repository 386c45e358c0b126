"""What the kinds are put together from, and how: queue, wake-ups, expectations, reconciler and workers of one kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from controller.apimachinery.three_way_merge import PLAIN
from controller.config.modes import KUBEVIRT_GROUPS, Mode
from controller.config.settings import Config
from controller.events.recorder import EventRecorder
from controller.metrics.figures import figures_of
from controller.metrics.page import SetFigures
from controller.metrics.registry import Metrics
from controller.runtime.controller import Controller
from controller.runtime.dry_run import DryRunReconciler
from controller.runtime.executor import Executor, Merge
from controller.runtime.expectations import Expectations
from controller.runtime.reconciler import Rules, RulesReconciler, S
from controller.runtime.result import Reconciler
from controller.runtime.status_writer import StatusWriter
from informers.client import ApiClient
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource
from informers.store import Change, Indexes, Removed
from informers.workqueue import WorkQueue

T = TypeVar("T", bound=KubeObject)

KUBEVIRT_STATUS: Final = frozenset({"replicas", "readyReplicas", "labelSelector", "conditions"})
"""The status fields of both kinds in KubeVirt's CRDs."""

Concerned = Callable[[Change[T]], Iterable[tuple[ObjectKey, float]]]
"""Whom a change concerns, and after how many seconds they are to be looked at."""


class Parts(NamedTuple):
    """What all kinds share. `now` is the wall clock."""

    config: Config
    client: ApiClient
    metrics: Metrics
    recorder: EventRecorder
    now: Callable[[], datetime]

    def informer(self, resource: Resource[T], *, indexes: Indexes[T]) -> SharedInformer[T]:
        """An informer of this resource in the namespaces that are watched."""
        return SharedInformer(
            resource,
            self.client,
            namespaces=self.config.namespaces,
            indexes=indexes,
            resync_period_s=self.config.resync_period_s,
            instruments=self.metrics,
        )


class Assembly(NamedTuple):
    """One kind, ready to run. `figures` gives the replicas of each of its objects, for the metrics page."""

    controller: Controller
    informers: tuple[SharedInformer[Any], ...]
    figures: Callable[[], Iterable[SetFigures]]


def queue_of(parts: Parts, name: str) -> WorkQueue[ObjectKey]:
    """The queue of a kind's keys."""
    return WorkQueue(name, instruments=parts.metrics)


def wakes(queue: WorkQueue[ObjectKey], concerned: Concerned[T]) -> Callable[[Change[T]], None]:
    """A handler that queues whoever a change concerns."""

    def handle(change: Change[T]) -> None:
        for key, delay_s in concerned(change):
            queue.add_after(key, delay_s)

    return handle


def assemble(
    parts: Parts,
    rules: Rules[S],
    queue: WorkQueue[ObjectKey],
    *,
    owners: SharedInformer[Any],
    children: Iterable[SharedInformer[Any]],
    shared: Iterable[SharedInformer[Any]] = (),
    merge: Merge = PLAIN.merge,
) -> Assembly:
    """The workers of a kind. `children` show what plans write; `shared` are those of them that others run. `merge` is
    how a `ThreeWayMerge` of this kind is done.
    """
    children = tuple(children)
    reconciler: Reconciler
    if parts.config.observe:
        reconciler = DryRunReconciler(
            rules, now=parts.now, instruments=parts.metrics, known_status=_known_status(parts, rules.resource.group)
        )
    else:
        reconciler = _writer(parts, rules, owners, children, merge)
    controller = Controller(rules.name, queue, reconciler, workers=parts.config.workers, instruments=parts.metrics)
    own = tuple(informer for informer in dict.fromkeys((owners, *children)) if informer not in tuple(shared))
    resource = rules.resource
    owners.add_handler(_forgetting(parts, resource.kind))
    figures = partial(figures_of, resource.kind, resource.group, rolls_out=rules.rolls_out)
    return Assembly(controller, own, lambda: figures(owners.store.values()))


def _forgetting(parts: Parts, kind: str) -> Callable[[Change[Any]], None]:
    """A handler that has the metrics forget the owners that are gone."""

    def handle(change: Change[Any]) -> None:
        if isinstance(change, Removed):
            parts.metrics.owner_gone(kind, change.last_known.metadata.key)

    return handle


def _writer(
    parts: Parts, rules: Rules[S], owners: SharedInformer[Any], children: Iterable[SharedInformer[Any]], merge: Merge
) -> RulesReconciler[S]:
    written = _expectations(parts, rules.name, children)
    parts.metrics.show_unsettled(rules.name, written.oldest_s)
    return RulesReconciler(
        rules,
        executor=Executor(
            parts.client,
            written,
            controller=rules.name,
            instruments=parts.metrics,
            told=partial(parts.metrics.carried_out, rules.name, rules.resource.kind),
            merge=merge,
        ),
        expectations=written,
        status_writer=StatusWriter(parts.client, rules.resource, _expectations(parts, rules.name, [owners])),
        recorder=parts.recorder,
        now=parts.now,
        instruments=parts.metrics,
        known_status=_known_status(parts, rules.resource.group),
    )


def _known_status(parts: Parts, group: str) -> frozenset[str] | None:
    """The status fields that the served schema knows; None if it is ours, which knows all."""
    return KUBEVIRT_STATUS if parts.config.mode == Mode.TAKEOVER and group in KUBEVIRT_GROUPS else None


def _expectations(parts: Parts, name: str, informers: Iterable[SharedInformer[Any]]) -> Expectations:
    stores = {informer.resource: informer.store for informer in informers}
    clock = asyncio.get_running_loop().time
    return Expectations(stores, now=clock, gave_up=lambda: parts.metrics.gave_up(name))
