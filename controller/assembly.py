"""Functions that assemble the parts of a kind: caches, queue, event handlers, expectations, reconciler and workers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import structlog

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.indexes import NAMESPACE, OWNER_UID, by_namespace, by_owner_uid
from controller.config.modes import Mode
from controller.config.settings import Config
from controller.events.recorder import EventRecorder, ref_of
from controller.kinds import Kind
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.resources import DISRUPTION_BUDGETS, MIGRATIONS
from controller.leaderelection.own_thread import Elected, elected_in_own_thread
from controller.metrics.objects import Figures, SetFigures
from controller.metrics.registry import Metrics
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.disruption_budget import wakes_of_budget
from controller.runtime.actions import AnyResource, Notice
from controller.runtime.dry_run import DryRunReconciler
from controller.runtime.execute.executor import Executor
from controller.runtime.execute.late_cache import LateCache
from controller.runtime.execute.requests import Requests
from controller.runtime.reconciler import Rules, RulesReconciler, S, Tools
from controller.runtime.result import Reconciler
from controller.runtime.settle.cache_check import CacheCheck
from controller.runtime.settle.expectations import Expectations
from controller.runtime.settle.history_writer import HistoryWriter
from controller.runtime.settle.status_writer import StatusWriter
from controller.runtime.workers.controller import Controller
from controller.runtime.workers.loop_share import LoopShare
from controller.runtime.workers.side_thread import SideThread
from controller.takeover.discovery import raw_items
from informers.http.client import ApiClient, open_client
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey, ObjectMeta
from informers.resource import Resource
from informers.store import Change, Indexes, Removed, Store, StoreView
from informers.workqueue import WorkQueue

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

Triggers = Callable[[Change[T]], Iterable[tuple[ObjectKey, float]]]
"""A function that returns the keys to reconcile after a change, each with a delay in seconds."""

OpenClient: TypeAlias = Callable[..., AbstractAsyncContextManager[ApiClient]]


class Cache(NamedTuple):
    """`transform` makes objects smaller, or drops them by None. Rules work without a cache that `is_optional`."""

    indexes: Indexes[Any]
    transform: Callable[[Any], Any] | None = None
    is_optional: bool = False

    async def read(self, client: Requests, resource: Resource[T], namespace: str = "") -> Store[T]:
        """Return a store with the objects of a resource that the server has now. Raise ApiError."""
        store: Store[T] = Store(indexes=self.indexes)
        async for raw in raw_items(client, resource.path(namespace)):
            each = resource.decode(raw)
            kept = self.transform(each) if self.transform else each
            if kept is not None:
                store.apply(kept)
        return store


BUDGET_CACHE: Final = Cache({NAMESPACE: by_namespace}, without_foreign_annotations, is_optional=True)
"""The cache of PodDisruptionBudgets, which exists only with the flag `--disruption-budgets` (P27)."""

MIGRATION_CACHE: Final = Cache({OWNER_UID: by_owner_uid}, without_foreign_annotations, is_optional=True)
"""The cache of live migrations, which exists only with the flag `--migrations` (P13)."""


class Platform(NamedTuple):
    """What a simulation replaces. `now` is the wall clock. `lease_clock` goes on while the machine sleeps."""

    elected: Elected = elected_in_own_thread
    side_thread: Callable[[], SideThread] = SideThread
    clock: Callable[[], float] = time.monotonic
    lease_clock: Callable[[], float] = partial(
        time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    )
    cpu: Callable[[], float] = time.thread_time
    now: Callable[[], datetime] = partial(datetime.now, UTC)  # noqa: TID251 - only here: components receive it
    open_client: OpenClient = open_client


class Parts(NamedTuple):
    """What the controllers of all kinds use. `now` is the wall clock. `rollout` returns what KubeVirt says about live
    changes.

    `check` compares the caches with the API server. `share` limits the time of each namespace on the event loop.
    """

    config: Config
    client: ApiClient
    metrics: Metrics
    recorder: EventRecorder
    now: Callable[[], datetime]
    check: CacheCheck
    share: LoopShare
    rollout: Callable[[], RolloutSettings] = RolloutSettings
    side_thread: Callable[[], SideThread] = SideThread
    caches: Mapping[AnyResource, SharedInformer[Any]] = {}

    def cache(self, resource: Resource[T]) -> SharedInformer[T]:
        """Return the informer of a resource for all kinds. The resource must be in the `CACHES` of a wiring module."""
        return self.caches[resource]

    @property
    def stores(self) -> Mapping[AnyResource, StoreView[Any]]:
        return {resource: informer.store for resource, informer in self.caches.items()}

    def informer(self, resource: Resource[T], cache: Cache) -> SharedInformer[T]:
        return SharedInformer(
            resource,
            self.client,
            namespaces=self.config.namespaces,
            indexes=cache.indexes,
            transform=cache.transform,
            instruments=self.metrics,
        )


class Assembly(NamedTuple):
    """The controller of one kind, and the informer of the kind's objects.

    `figures` returns the replica counts of each object of the kind, for the metrics page. `expectations` has the writes
    that the caches do not show yet. `parse` returns a parsed spec, or its first error.
    """

    controller: Controller
    owners: SharedInformer[Any]
    figures: Callable[[], Iterable[SetFigures]]
    expectations: tuple[Expectations, ...] = ()
    parse: Callable[[Any], Any | FieldError] = lambda owner: owner

    def unsettled(self) -> set[ObjectKey]:
        return {key for expected in self.expectations for key in expected.unsettled()}

    def report_invalid(self, owners: Iterable[Any]) -> None:
        """Log one line if specs are invalid, for example since an upgrade (P30). Any thread may call it."""
        parsed = ((each.metadata.key, self.parse(each)) for each in owners)
        errors = {str(key): error.message for key, error in parsed if isinstance(error, FieldError)}
        first = sorted(errors)[:5]
        if first:
            name = self.controller.name
            log.warning("specs are invalid", controller=name, number=len(errors), first=first, why=errors[first[0]])


def assemble_kinds(parts: Parts, kinds: Iterable[Kind[Any]]) -> tuple[list[Assembly], list[SharedInformer[Any]]]:
    """Return the assemblies of these kinds, and all informers that the kinds need. Each resource is watched once."""
    modules = [kind.module("wiring") for kind in kinds]
    needs = [module.CACHES for module in modules]
    if parts.config.disruption_budgets:
        needs.append({DISRUPTION_BUDGETS: BUDGET_CACHE})
    if parts.config.migrations:
        needs.append({MIGRATIONS: MIGRATION_CACHE})
    caches = merged_caches(needs)
    shared = {resource: parts.informer(resource, cache) for resource, cache in caches.items()}
    common = parts._replace(caches=shared)
    assemblies: list[Assembly] = [module.assemble(common) for module in modules]
    return assemblies, [*shared.values(), *(assembly.owners for assembly in assemblies)]


def merged_caches(needs: Iterable[Mapping[AnyResource, Cache]]) -> dict[AnyResource, Cache]:
    """Return one cache with all indexes for each resource. Raise ValueError if kinds have different transforms."""
    merged: dict[AnyResource, Cache] = {}
    for resource, cache in (item for need in needs for item in need.items()):
        known = merged.get(resource, Cache({}))
        if known.transform and cache.transform and known.transform is not cache.transform:
            raise ValueError(f"two kinds have different transforms for the cache of {resource.name}")
        merged[resource] = Cache({**known.indexes, **cache.indexes}, known.transform or cache.transform)
    return merged


def queue_of(parts: Parts, kind: Kind[Any]) -> WorkQueue[ObjectKey]:
    """The namespaces take turns, and one namespace has at most four fifths of the workers."""
    most = max(parts.config.workers * 4 // 5, 1)
    return WorkQueue(kind.name, instruments=parts.metrics, flow=lambda key: key.namespace, most_of_flow=most)


def wakes(queue: WorkQueue[ObjectKey], triggers: Triggers[T]) -> Callable[[Change[T]], None]:
    def handle(change: Change[T]) -> None:
        for key, delay_s in triggers(change):
            queue.add_after(key, delay_s)

    return handle


def on_removal(act: Callable[[ObjectKey], None]) -> Callable[[Change[Any]], None]:
    def handle(change: Change[Any]) -> None:
        if isinstance(change, Removed):
            act(change.last_known.metadata.key)

    return handle


def assemble(
    parts: Parts,
    kind: Kind[Any],
    rules: Rules[S],
    queue: WorkQueue[ObjectKey],
    *,
    owners: SharedInformer[Any],
    written: Iterable[SharedInformer[Any]],
) -> Assembly:
    """Assemble a kind. Its plans write the resources of `written`."""
    reconciler: Reconciler

    def publish(owner: ObjectMeta, notices: Iterable[Notice]) -> Iterable[Notice]:
        return parts.recorder.publish(ref_of(rules.resource, owner), notices, component=kind.component)

    def publish_about(key: ObjectKey, notice: Notice) -> None:
        owner = rules.owners.get(key)
        if owner is not None:
            publish(owner.metadata, (notice,))

    budgets = [parts.caches[DISRUPTION_BUDGETS]] if DISRUPTION_BUDGETS in parts.caches else []
    for informer in budgets:
        informer.add_handler(wakes(queue, partial(wakes_of_budget, owners=owners.store, kind=kind.kind)))
    expectations = _expectations(parts, kind, (*written, *budgets))
    of_status = _expectations(parts, kind, [owners])
    if parts.config.observe:
        reconciler = DryRunReconciler(
            kind, rules, now=parts.now, instruments=parts.metrics, known_status=_known_status(parts, kind)
        )
    else:
        reconciler = _writer(parts, kind, rules, expectations, of_status, publish=publish)
    controller = Controller(
        kind.name,
        queue,
        reconciler,
        workers=parts.config.workers,
        instruments=parts.metrics,
        share=parts.share,
        publish=publish_about,
    )
    owners.add_handler(on_removal(partial(parts.metrics.owner_gone, kind.kind)))
    figures = Figures(kind.kind, rules.resource.group, rules.parse_intent)
    waiting = (expectations, of_status)
    return Assembly(controller, owners, lambda: figures.read(owners.store.values()), waiting, rules.parse_intent)


def _writer(
    parts: Parts,
    kind: Kind[Any],
    rules: Rules[S],
    expectations: Expectations,
    of_status: Expectations,
    *,
    publish: Callable[[ObjectMeta, Iterable[Notice]], Iterable[Notice]],
) -> RulesReconciler[S]:
    parts.metrics.show_unsettled(kind.name, expectations.oldest_s)
    executor = Executor(
        parts.client,
        expectations,
        controller=kind.name,
        instruments=parts.metrics,
        report=partial(parts.metrics.carried_out, kind.name, kind.kind),
        judge=rules.judge._replace(now=parts.now),
        check=parts.check,
        refusals=rules.refusals,
        thread=parts.side_thread(),
    )
    late_cache = LateCache(parts.client, parts.stores, parts.check.doubt, kind.finalized)
    status_writer = StatusWriter(parts.client, rules.resource, of_status, parts.check)
    history = HistoryWriter(parts.client, rules.resource, of_status, parts.now)
    return RulesReconciler(
        kind,
        rules,
        Tools(executor, expectations, late_cache, status_writer, history),
        publish=publish,
        now=parts.now,
        instruments=parts.metrics,
        known_status=_known_status(parts, kind),
    )


def _known_status(parts: Parts, kind: Kind[Any]) -> frozenset[str] | None:
    """Return the status fields in the served schema, or None for all. In a takeover, KubeVirt's schema lacks some."""
    in_place = parts.config.mode == Mode.TAKEOVER and parts.config.group_of(kind) == kind.group
    return kind.known_status if in_place else None


def _expectations(parts: Parts, kind: Kind[Any], informers: Iterable[SharedInformer[Any]]) -> Expectations:
    stores = {informer.resource: informer.store for informer in informers}
    clock = asyncio.get_running_loop().time
    return Expectations(stores, now=clock, gave_up=lambda: parts.metrics.gave_up(kind.name), doubt=parts.check.doubt)
