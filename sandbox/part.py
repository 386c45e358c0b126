"""The loop around a pure behavior: watches the objects of one kind, asks what is next, and carries it out.

- An object is looked at when it or its surroundings change, and when it is due; by one worker at a time.
- A behavior is never shown a state from before its own writes: each write's version is waited for in the cache of the
  kind that was written, so nothing is done twice because a watch is late.
- What could not be written is tried again, for ever. A server that is away is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from informers.client import ApiClient
from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, TransportError
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey, version_number
from informers.objects import PatchType
from informers.ratelimit import ItemBackoff
from informers.resource import Resource
from informers.store import Added, Change, Removed, Updated
from informers.workqueue import WorkQueue
from sandbox import step as steps
from sandbox.step import NextStep, Step

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

RETRY_FROM_S, RETRY_TO_S = 0.2, 5.0

OVERLOOKED_AFTER_S = 5.0
"""When to look again at an object whose own writes have not shown. They may never: what was made can be gone before a
watch that broke is back."""

Informers = Mapping[Resource[Any], SharedInformer[Any]]


class _Version(Struct, rename="camel"):
    resource_version: str = ""


class _Written(Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


_decode_written = msgspec.json.Decoder(_Written).decode


class Part(Generic[T]):
    """Simulates the objects of one kind. `informers` are those of all kinds that are written here."""

    def __init__(self, resource: Resource[T], behavior: NextStep[T], client: ApiClient, informers: Informers) -> None:
        self.name = resource.plural
        self._resource = resource
        self._behavior = behavior
        self._client = client
        self._informers = informers
        self._store = informers[resource].store
        informers[resource].add_handler(self._note)
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            self.name, limiter=ItemBackoff(initial_s=RETRY_FROM_S, maximum_s=RETRY_TO_S)
        )
        self._first_seen: dict[ObjectKey, datetime] = {}
        """Of the objects in the store. A restart moves it, which behaviors allow for."""

        self._written: dict[ObjectKey, dict[Resource[Any], int]] = {}
        """For an object: the newest version of each kind that was written for it and may not be in the cache yet."""

        self._told: set[str] = set()
        """The flaws that were logged. A template's mistake is in each object made from it, and worth one line."""

    async def run(self, workers: int) -> None:
        """Act, for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(), name=f"simulator-{self.name}-{number}")

    def wake(self, keys: Iterable[ObjectKey]) -> None:
        """Something around these objects has changed, if they exist."""
        for key in keys:
            if self._store.get(key) is not None:
                self._queue.add(key)

    def wake_all(self) -> None:
        self.wake(obj.metadata.key for obj in self._store.values())

    def _note(self, change: Change[T]) -> None:
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
                await self._advance(key)
                self._queue.forget(key)
            except Exception as error:
                self._tell_failure(key, error)
                self._queue.add_rate_limited(key)
            finally:
                self._queue.done(key)

    async def _advance(self, key: ObjectKey) -> None:
        """Take one object one step further."""
        obj = self._store.get(key)
        if obj is None:
            return
        if not self._is_current(key):
            self._queue.add_after(key, OVERLOOKED_AFTER_S)
            return
        now = datetime.now(UTC)
        step = self._behavior(obj, now, self._first_seen.get(key, now))
        for flaw in step.flaws:
            self._tell_flaw(key, flaw)
        if step.effects or step.write is not None:
            await self._carry_out(key, step)
        elif step.after_s is not None:
            self._queue.add_after(key, step.after_s)

    def _is_current(self, key: ObjectKey) -> bool:
        """Whether the caches show all that was written for this object."""
        written = self._written.get(key)
        if written is None:
            return True
        for resource, version in written.items():
            seen = version_number(self._informers[resource].store.version(key.namespace))
            if seen is not None and seen < version:
                return False
        del self._written[key]
        return True

    async def _carry_out(self, key: ObjectKey, step: Step) -> None:
        for effect in step.effects:
            await self._affect(key, effect)
        if step.write is not None:
            await self._patch(key, self._resource, key, step.write)
        log.debug("simulated", resource=self.name, namespace=key.namespace, name=key.name)

    async def _affect(self, key: ObjectKey, effect: steps.Effect) -> None:
        match effect:
            case steps.Create(resource=resource, body=body):
                with suppress(AlreadyExists):
                    self._note_written(key, resource, await self._client.create(resource, key.namespace, body))
            case steps.Change(resource=resource, name=name, patch=patch):
                await self._patch(key, resource, ObjectKey(key.namespace, name), patch)
            case steps.Delete(resource=resource, name=name, uid=uid):
                with suppress(NotFound, Conflict):
                    target = ObjectKey(key.namespace, name)
                    self._note_written(key, resource, await self._client.delete(resource, target, uid=uid))

    async def _patch(self, key: ObjectKey, resource: Resource[Any], target: ObjectKey, patch: steps.Patch) -> None:
        """Send the patch. An object that has gone meanwhile needs none, whatever else has its name by now."""
        with suppress(NotFound):
            answer = await self._client.patch(
                resource, target, patch.body, content_type=PatchType.MERGE, subresource=patch.subresource
            )
            self._note_written(key, resource, answer)

    def _note_written(self, key: ObjectKey, resource: Resource[Any], answer: bytes) -> None:
        """A deletion that takes effect at once is answered with no object, and waited for by nobody."""
        version = version_number(_decode_written(answer).metadata.resource_version)
        if version is not None and self._store.get(key) is not None:
            self._written.setdefault(key, {})[resource] = version

    def _tell_flaw(self, key: ObjectKey, flaw: str) -> None:
        if flaw not in self._told:
            self._told.add(flaw)
            log.warning("annotation ignored", resource=self.name, namespace=key.namespace, name=key.name, why=flaw)

    def _tell_failure(self, key: ObjectKey, error: Exception) -> None:
        """Say what went wrong, once for a row of failures.

        That the server does not answer, the informer says; and in a namespace that goes, nothing new is wanted.
        """
        vain = isinstance(error, Conflict | TransportError) or (
            isinstance(error, Forbidden) and error.namespace_terminating
        )
        if vain or self._queue.retries(key):
            return
        line = log.bind(resource=self.name, namespace=key.namespace, name=key.name)
        if isinstance(error, ApiError):
            line.warning("a simulated change was refused", why=str(error))
        else:
            line.error("the simulator cannot work on an object", exc_info=error)
