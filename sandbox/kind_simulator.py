"""Runs a behavior, a pure function that returns the next step, for the objects of one kind.

Two workers never process the same object. After a write, the behavior is called only when the cache contains the write.
A failed write is repeated until it succeeds, also while the API server is down.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, TransportError
from informers.http.client import ApiClient
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey, annotations_of, version_number
from informers.objects import PatchType, read_meta
from informers.ratelimit import ItemBackoff
from informers.resource import Resource
from informers.store import Added, Change, Removed, Updated
from informers.workqueue import WorkQueue
from sandbox import step as steps
from sandbox.settings import read_settings
from sandbox.step import NextStep, Step

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

RETRY_FROM_S, RETRY_TO_S = 0.2, 5.0
STALE_CACHE_RETRY_S = 5.0
"""The seconds between two checks of whether the caches contain a write, if no event of a watch arrives."""

Informers = Mapping[Resource[Any], SharedInformer[Any]]


class KindSimulator(Generic[T]):
    """`informers` must contain an informer for each written kind. With `warns`, ignored annotations are logged."""

    def __init__(
        self,
        resource: Resource[T],
        behavior: NextStep[T],
        client: ApiClient,
        informers: Informers,
        *,
        warns: bool = False,
    ) -> None:
        self.name = resource.plural
        self._resource = resource
        self._behavior = behavior
        self._client = client
        self._informers = informers
        self._warns = warns
        self._store = informers[resource].store
        informers[resource].add_handler(self._on_change)
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            self.name, limiter=ItemBackoff(initial_s=RETRY_FROM_S, maximum_s=RETRY_TO_S)
        )
        self._first_seen: dict[ObjectKey, datetime] = {}
        self._written: dict[ObjectKey, dict[Resource[Any], int]] = {}
        """The resource version of the last write of each object to each resource, if not yet in the caches."""

        self._logged_warnings: set[str] = set()
        """Each warning is logged once, because all objects of a template have the same."""

    async def run(self, workers: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(), name=f"simulator-{self.name}-{number}")

    def enqueue(self, keys: Iterable[ObjectKey]) -> None:
        """Put these objects into the queue, so that a worker processes them. Objects that do not exist are skipped."""
        for key in keys:
            if self._store.get(key) is not None:
                self._queue.add(key)

    def enqueue_all(self) -> None:
        self.enqueue(obj.metadata.key for obj in self._store.values())

    def _on_change(self, change: Change[T]) -> None:
        match change:
            case Added(new=new):
                self._first_seen[new.metadata.key] = datetime.now(UTC)
                self._queue.add(new.metadata.key)
            case Updated(new=new):
                self._queue.add(new.metadata.key)
            case Removed(last_known=gone):
                key = gone.metadata.key
                self._first_seen.pop(key, None)
                self._written.pop(key, None)
                self._queue.forget(key)

    async def _work(self) -> None:
        async for key in self._queue:
            try:
                await self._process(key)
                self._queue.forget(key)
            except Exception as error:
                self._log_failure(key, error)
                self._queue.add_rate_limited(key)
            finally:
                self._queue.done(key)

    async def _process(self, key: ObjectKey) -> None:
        """Execute one step for one object, or check it again later if the caches do not show its earlier writes."""
        obj = self._store.get(key)
        if obj is None:
            return
        if not self._is_current(key):
            self._queue.add_after(key, STALE_CACHE_RETRY_S)
            return
        now = datetime.now(UTC)
        step = self._behavior(obj, now, self._first_seen.get(key, now))
        if self._warns:
            self._log_warnings(key, read_settings(annotations_of(obj.metadata)).warnings)
        if step.effects or step.write is not None:
            await self._apply(key, step)
        elif step.after_s is not None:
            self._queue.add_after(key, step.after_s)

    def _is_current(self, key: ObjectKey) -> bool:
        written = self._written.get(key)
        if written is None:
            return True
        for resource, version in written.items():
            seen = version_number(self._informers[resource].store.version(key.namespace))
            if seen is not None and seen < version:
                return False
        del self._written[key]
        return True

    async def _apply(self, key: ObjectKey, step: Step) -> None:
        for effect in step.effects:
            await self._apply_effect(key, effect)
        if step.write is not None:
            await self._patch(key, self._resource, key, step.write)
        log.debug("simulated", resource=self.name, namespace=key.namespace, name=key.name)

    async def _apply_effect(self, key: ObjectKey, effect: steps.Effect) -> None:
        match effect:
            case steps.Create(resource=resource, body=body):
                with suppress(AlreadyExists):
                    self._record_write(key, resource, await self._client.create(resource, key.namespace, body))
            case steps.Change(resource=resource, name=name, patch=patch, adopts=adopts):
                if adopts and not await self._may_adopt(key):
                    return
                await self._patch(key, resource, ObjectKey(key.namespace, name), patch)
            case steps.Delete():
                with suppress(NotFound, Conflict):
                    self._record_write(key, effect.resource, await self._delete(key.namespace, effect))

    async def _may_adopt(self, key: ObjectKey) -> bool:
        cached = self._store.get(key)
        try:
            fresh = read_meta(await self._client.get(self._resource, key))
        except NotFound:
            return False
        return cached is not None and fresh.uid == cached.metadata.uid and fresh.deletion_timestamp is None

    async def _delete(self, namespace: str, effect: steps.Delete) -> bytes:
        target = ObjectKey(namespace, effect.name)
        if effect.grace_s is None:
            return await self._client.delete(effect.resource, target, uid=effect.uid)
        options = {"gracePeriodSeconds": effect.grace_s, "preconditions": {"uid": effect.uid}}
        body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", **options})
        return await self._client.request("DELETE", effect.resource.path(namespace, effect.name), body=body)

    async def _patch(self, key: ObjectKey, resource: Resource[Any], target: ObjectKey, patch: steps.Patch) -> None:
        """If the object no longer exists, nothing is changed. A new object with the same name is not changed either."""
        with suppress(NotFound):
            answer = await self._client.patch(
                resource, target, patch.body, content_type=PatchType.MERGE, subresource=patch.subresource
            )
            self._record_write(key, resource, answer)

    def _record_write(self, key: ObjectKey, resource: Resource[Any], answer: bytes) -> None:
        """Store the resource version in the answer. An object that is gone at once has none."""
        version = version_number(read_meta(answer).resource_version)
        if version is not None and self._store.get(key) is not None:
            self._written.setdefault(key, {})[resource] = version

    def _log_warnings(self, key: ObjectKey, warnings: Iterable[str]) -> None:
        for warning in warnings:
            if warning not in self._logged_warnings:
                self._logged_warnings.add(warning)
                log.warning(
                    "annotation ignored", resource=self.name, namespace=key.namespace, name=key.name, why=warning
                )

    def _log_failure(self, key: ObjectKey, error: Exception) -> None:
        """Log the first failure of an object, if it is no conflict, lost connection or terminating namespace."""
        expected = isinstance(error, Conflict | TransportError) or (
            isinstance(error, Forbidden) and error.namespace_terminating
        )
        if expected or self._queue.retries(key):
            return
        line = log.bind(resource=self.name, namespace=key.namespace, name=key.name)
        if isinstance(error, ApiError):
            line.warning("the API server rejected a simulated change", why=str(error))
        else:
            line.error("the simulator failed to process an object", exc_info=error)


def subject_of(change: Change[T]) -> T:
    match change:
        case Added(new=subject) | Updated(new=subject) | Removed(last_known=subject):
            return subject
