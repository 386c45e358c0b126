"""An independent observer of the API server. It lists and watches as administrator, without a proxy, and keeps every
state.

The observer uses plain aiohttp and no code of `informers/`. So it finds an error in `informers/`. One observer serves
all runs on a control plane: it watches all namespaces, and `history` returns one namespace.

The history of the observer is complete, or its holes are known:

- When a watch ends, the observer opens a new watch from the last resourceVersion. Bookmarks keep this version recent.
- If the server does not know this resourceVersion any more (410), the observer lists again. It may have
  missed states before this list, so it records a `Hole`. The answers in the audit log usually fill the hole.
- `caught_up` lists the namespace again and waits until the observer has seen each listed state and each removal.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.faults.admin import Api, admin_api
from tests.faults.judge.audit_tail import AuditTail
from tests.faults.judge.completion import complete
from tests.faults.judge.history import History, Hole, Observation, Request
from tests.faults.judge.states import Object, name_of, uid_of, version_of
from tests.faults.proxy.upstream import abandon
from tests.faults.resources import RESOURCE_OF, path_of

WATCH_S: Final = 600
RETRY_S: Final = 0.2
SILENCE_S: Final = 150.0
"""A watch without data for this time is opened again. Bookmarks come every minute."""

CATCH_UP_S: Final = 60.0


class ObserverBehind(Exception):
    """The error when the observer does not see states that the API server has."""


class _Expired(Exception):
    """The error when the server does not know the resourceVersion of a watch any more."""


class _Watch:
    """The watch of one kind. `live` has the current objects by UID. `revision` is the last resourceVersion."""

    def __init__(self, kind: str, record: "Recorder") -> None:
        self.kind = kind
        self.revision = 0
        self.live: dict[str, Object] = {}
        self.listed = asyncio.Event()
        self.changed = asyncio.Event()
        self._record = record

    def take_list(self, items: Iterable[Object], revision: int) -> None:
        """Take a list. Each list after the first is noted as a hole, because states may be lost between two lists."""
        found = {uid_of(item): item for item in items}
        if self.listed.is_set():
            missed = [item for item in found.values() if version_of(item) > self._version(uid_of(item))]
            why = f"the watch expired; {len(missed)} states and {len(self.live.keys() - found.keys())} removals found"
            self._record.holes.append(Hole(self.kind, self.revision, revision, why))
        for uid in self.live.keys() - found.keys():
            self._take("DELETED", self.live[uid], revision)
        for item in sorted(found.values(), key=version_of):
            if version_of(item) != self._version(uid_of(item)):
                self._take("MODIFIED" if uid_of(item) in self.live else "ADDED", item, version_of(item))
        self.revision = revision
        self.listed.set()

    def take_event(self, event: Object) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise _Expired(item.get("message", ""))
        if kind != "BOOKMARK":
            self._take(kind, item, version_of(item))
        self.revision = max(self.revision, version_of(item))

    def behind(self, items: Iterable[Object], namespace: str) -> list[str]:
        """Compare a newer list with the known objects. Return the names whose state or removal was not seen yet."""
        found = {uid_of(item): item for item in items}
        known = {uid: item for uid, item in self.live.items() if item["metadata"].get("namespace") == namespace}
        late = [name_of(item) for uid, item in found.items() if self._late(uid, item)]
        return late + [name_of(item) for uid, item in known.items() if uid not in found]

    def _late(self, uid: str, item: Object) -> bool:
        return version_of(item) > max(self._version(uid), self._record.last.get(uid, 0))

    def _version(self, uid: str) -> int:
        return version_of(self.live[uid]) if uid in self.live else 0

    def _take(self, type_: Any, item: Object, revision: int) -> None:
        if type_ == "DELETED":
            self.live.pop(uid_of(item), None)
        else:
            self.live[uid_of(item)] = item
        self._record.add(Observation(revision, self.kind, type_, item, time.time()))
        self.changed.set()


class Recorder:
    """The observations by namespace, and the holes. A hole is a time in which the observer may have missed states. The
    field `last` is the newest revision of each UID.
    """

    def __init__(self) -> None:
        self.observations: dict[str, list[Observation]] = defaultdict(list)
        self.holes: list[Hole] = []
        self.last: dict[str, int] = {}
        self.tell: Callable[[Observation], None] = lambda _: None
        """Called with each new observation."""

    def add(self, observation: Observation) -> None:
        metadata = observation.object["metadata"]
        self.observations[metadata.get("namespace", "")].append(observation)
        self.last[metadata["uid"]] = observation.revision
        self.tell(observation)

    def forget(self, namespace: str) -> None:
        for each in self.observations.pop(namespace, ()):
            self.last.pop(uid_of(each.object), None)


class Observer:
    """The watches of all kinds. Create an Observer with `observing`."""

    def __init__(self, api: Api, audit_log: Path) -> None:
        self.api = api
        self._recorder = Recorder()
        self._watches = {kind: _Watch(kind, self._recorder) for kind in RESOURCE_OF}
        self._audit = AuditTail(audit_log)

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(self._recorder.holes)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for watch in self._watches.values():
                group.create_task(self._follow(watch), name=f"observer-{watch.kind}")

    async def ready(self) -> None:
        """Wait for the first list of each kind."""
        for watch in self._watches.values():
            await watch.listed.wait()

    async def caught_up(self, namespace: str, within_s: float = CATCH_UP_S) -> None:
        """Wait until the observer has seen all states that the namespace has now. Raises ObserverBehind."""
        give_up = time.monotonic() + within_s
        late: list[str] = []
        for kind, watch in self._watches.items():
            while True:
                try:
                    items, _ = await self._list(kind, namespace)
                    late = watch.behind(items, namespace)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    late = [f"no answer: {error}"]  # the API server restarts
                if not late:
                    break
                if time.monotonic() > give_up:
                    raise ObserverBehind(f"{kind} in {namespace}: {', '.join(late)}")
                await asyncio.sleep(0.02)

    async def history(self, namespace: str, *more: str) -> History:
        """Return the history of the namespace up to now.

        `more` are other namespaces whose requests belong to the history, for example the namespace of the lease.
        """
        await self.caught_up(namespace)
        return self.seen(namespace, *more)

    async def end(self, namespace: str, since: float) -> History:
        """Return the objects that the namespace has now, and the requests from the time `since`.

        After a restore of etcd, the observed changes are no history: the restore changed objects without a request.
        """
        observations = []
        for kind in RESOURCE_OF:
            items, _ = await self._list(kind, namespace)
            observations += [Observation(version_of(item), kind, "ADDED", item, since) for item in items]
        self._audit.read()
        requests = tuple(each for each in self._audit.requests(namespace) if each.time >= since)
        return History(tuple(sorted(observations, key=lambda each: each.revision)), requests)

    def seen(self, namespace: str, *more: str) -> History:
        """Return the history of the namespace as far as the observer has seen it, without a request."""
        self._audit.read()
        requests = self._audit.requests(namespace, *more)
        own: Iterable[Request] = (each for each in requests if each.namespace == namespace)
        observations = complete(self._recorder.observations.get(namespace, ()), own)
        return History(observations, requests, self.holes)

    def follow(self, tell: Callable[[Observation], None]) -> None:
        """Call this function with the current objects now, and with each later observation."""
        for watch in self._watches.values():
            for item in watch.live.values():
                tell(Observation(version_of(item), watch.kind, "ADDED", item))
        self._recorder.tell = tell

    def writes(self, namespace: str) -> list[Request]:
        """Return the writes of controllers in a namespace so far, dry runs included and Events left out."""
        self._audit.read()
        return self._audit.writes(namespace)

    def requests(self, namespace: str) -> int:
        """Return the number of the controller's requests so far, except watches and lists."""
        self._audit.read()
        return self._audit.acts(namespace)

    def forget(self, namespace: str) -> None:
        """Remove the states and the requests of a namespace from memory."""
        self._recorder.forget(namespace)
        self._audit.forget(namespace)

    async def _follow(self, watch: _Watch) -> None:
        is_listed = False
        while True:
            try:
                if not is_listed:
                    watch.take_list(*await self._list(watch.kind))
                is_listed = True
                async for event in self._events(watch):
                    watch.take_event(event)
            except _Expired:
                is_listed = False
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                await asyncio.sleep(RETRY_S)
                await self._list_if_restored(watch)

    async def _list_if_restored(self, watch: _Watch) -> None:
        """List again if the revisions have gone back, because etcd was restored."""
        try:
            items, revision = await self._list(watch.kind)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return
        if revision < watch.revision:
            watch.take_list(items, revision)

    async def _list(self, kind: str, namespace: str = "") -> tuple[list[Object], int]:
        path = path_of(RESOURCE_OF[kind], namespace)
        async with self.api.session.get(self.api.url + path) as answer:
            answer.raise_for_status()
            document = json.loads(await answer.read())
        group_version = document["apiVersion"]
        items = [{"apiVersion": group_version, "kind": kind, **_slim(item)} for item in document["items"] or ()]
        return items, version_of(document)

    async def _events(self, watch: _Watch) -> AsyncIterator[Object]:
        url = self.api.url + path_of(RESOURCE_OF[watch.kind])
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={watch.revision}&timeoutSeconds={WATCH_S}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENCE_S)
        async with self.api.session.get(f"{url}?{query}", timeout=timeout) as answer:
            if answer.status == 410:
                raise _Expired(await answer.text())
            answer.raise_for_status()
            try:
                async for line in answer.content:
                    event = json.loads(line)
                    _slim(event["object"])
                    yield event
            finally:
                abandon(answer)


def _slim(item: Object) -> Object:
    """Remove `managedFields`, which repeat the other fields."""
    item.get("metadata", {}).pop("managedFields", None)
    return item


@asynccontextmanager
async def observing(kubeconfig: Path, audit_log: Path) -> AsyncIterator[Observer]:
    """Observe a control plane while the block runs. `kubeconfig` has the administrator's permissions.

    The control plane needs `audit_level="RequestResponse"`.
    """
    async with admin_api(kubeconfig) as api:
        observer = Observer(api, audit_log)
        running = asyncio.create_task(observer.run(), name="observer")
        try:
            await observer.ready()
            yield observer
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
