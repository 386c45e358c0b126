"""What an administrator sees and does: the current objects of each namespace, and the users' requests.

The observer's watches go directly to the API server. So they show the truth while the controller reads through the
fault proxy.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.faults.admin import MERGE, STEPS
from tests.faults.judge.history import Observation
from tests.faults.judge.observer import Observer
from tests.faults.judge.states import name_of, uid_of
from tests.faults.matrix.objects import Json, Objects
from tests.faults.resources import RESOURCE_OF, path_of

RETRY_S = 0.2
SHOWN_WITHIN_S = 60.0
PATIENCE_S = 60.0
ANSWERED_WITHIN_S = 30.0


class Refused(Exception):
    """The API server answers a user's request with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def is_temporary(self) -> bool:
        return self.status in (403, 429) or self.status >= 500


class View:
    """The current objects of all namespaces, as the observer sees them."""

    def __init__(self, observer: Observer) -> None:
        self.api = observer.api
        self._objects: dict[str, Objects] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._changed_at: dict[str, float] = {}
        self._events: dict[str, Counter[str]] = defaultdict(Counter)
        self.removed: set[str] = set()
        """The UIDs of the objects whose removal was seen."""

        observer.follow(self._take)

    def objects(self, namespace: str) -> Objects:
        return self._objects.setdefault(namespace, Objects())

    def changed_at(self, namespace: str) -> float:
        """The time of the last change in the namespace, on the clock of the event loop."""
        return self._changed_at.get(namespace, 0.0)

    def events(self, namespace: str) -> Counter[str]:
        """The number of changes in the namespace so far, by resource."""
        return Counter(self._events[namespace])

    def forget(self, namespace: str) -> None:
        self._objects.pop(namespace, None)
        self._changed.pop(namespace, None)
        self._changed_at.pop(namespace, None)
        self._events.pop(namespace, None)

    async def until(self, namespace: str, holds: Callable[[Objects], bool], *, within_s: float) -> bool:
        """Wait until a condition holds. Return False if it does not hold in time."""
        try:
            async with asyncio.timeout(within_s):
                while not holds(self.objects(namespace)):
                    event = self._changed.setdefault(namespace, asyncio.Event())
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return False
        return True

    def _take(self, seen: Observation) -> None:
        namespace, plural = seen.object["metadata"]["namespace"], RESOURCE_OF[seen.kind]
        items = self.objects(namespace)[plural]
        self._events[namespace][plural] += 1
        if seen.type == "DELETED":
            self.removed.add(uid_of(seen.object))
            items.pop(name_of(seen.object), None)
        else:
            items[name_of(seen.object)] = seen.object
        self._changed_at[namespace] = asyncio.get_running_loop().time()
        if event := self._changed.get(namespace):
            event.set()


class User:
    """A user with all permissions in one namespace. `objects` are the current objects of the namespace.

    A patient user tries again while the server does not answer.
    """

    def __init__(self, view: View, namespace: str, *, patient: bool = False) -> None:
        self.view = view
        self.namespace = namespace
        self._patient = patient

    @property
    def objects(self) -> Objects:
        return self.view.objects(self.namespace)

    async def create(self, plural: str, body: Json) -> Json:
        return await self._shown(plural, await self._send("POST", path_of(plural, self.namespace), body))

    async def patch(self, plural: str, name: str, change: Json | list[Json], *, subresource: str = "") -> Json:
        """Apply a JSON merge patch, or a JSON patch if `change` is a list."""
        path = "/".join(filter(None, (path_of(plural, self.namespace, name), subresource)))
        content_type = STEPS if isinstance(change, list) else MERGE
        return await self._shown(plural, await self._send("PATCH", path, change, content_type=content_type))

    async def delete(self, plural: str, name: str, propagation: str = "Background") -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        uid = self.objects[plural][name]["metadata"]["uid"]
        await self._send("DELETE", path_of(plural, self.namespace, name), options)

        def shown(objects: Objects) -> bool:
            metadata = objects[plural].get(name, {"metadata": {"uid": ""}})["metadata"]
            return metadata["uid"] != uid or "deletionTimestamp" in metadata

        await self._until(shown)

    async def create_namespace(self) -> str:
        """Create the namespace, and return its resourceVersion."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        created = await self._send("POST", "/api/v1/namespaces", body)
        return str(created["metadata"]["resourceVersion"])

    async def _shown(self, plural: str, result: Json) -> Json:
        """Wait until the view shows the result of a write. Conditions then never read a view from before the write."""
        name, version = result["metadata"]["name"], int(result["metadata"]["resourceVersion"])
        uid = result["metadata"]["uid"]

        def shown(objects: Objects) -> bool:
            found = objects[plural].get(name)
            if found is None:
                return uid in self.view.removed
            return int(found["metadata"]["resourceVersion"]) >= version

        await self._until(shown)
        return result

    async def _until(self, shown: Callable[[Objects], bool]) -> None:
        if not await self.view.until(self.namespace, shown, within_s=SHOWN_WITHIN_S):
            raise TimeoutError("the view does not show a user's change")

    async def _send(self, method: str, path: str, body: Any, *, content_type: str = "application/json") -> Json:
        try:
            return await self._send_once(method, path, body, content_type)
        except (Refused, aiohttp.ClientError, OSError, TimeoutError) as error:
            if not self._patient or (isinstance(error, Refused) and not error.is_temporary):
                raise
        return await self._send_again(method, path, body, content_type)

    async def _send_again(self, method: str, path: str, body: Any, content_type: str) -> Json:
        """Try again until the server answers. The first try may have had its effect."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(RETRY_S)
                try:
                    return await self._send_once(method, path, body, content_type)
                except Refused as error:
                    if error.status == 409 and method == "POST":
                        return await self._send_once("GET", f"{path}/{body['metadata']['name']}", None, content_type)
                    if error.status == 404 and method == "DELETE":
                        return {}
                    if not error.is_temporary:
                        raise
                except (aiohttp.ClientError, OSError, TimeoutError):
                    continue

    async def _send_once(self, method: str, path: str, body: Any, content_type: str) -> Json:
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            answer = await self.view.api.send(method, path, body, content_type)
        if not answer.ok:
            raise Refused(answer.code, answer.message)
        return answer.document
