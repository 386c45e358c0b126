"""What an administrator sees and does: one watch for each resource of the whole cluster, and the users' requests.

The watches go directly to the API server. So they show the truth while the controller reads through the fault proxy.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import yaml

from sandbox.controlplane import ControlPlane
from tests.faults.objects import API_OF, Json, Objects

MERGE, STEPS = "application/merge-patch+json", "application/json-patch+json"
RETRY_S = 0.2
SHOWN_WITHIN_S = 60.0
PATIENCE_S = 60.0
LINE_LIMIT = 1 << 22
_decode = msgspec.json.Decoder().decode


class Refused(Exception):
    """The API server answers a user's request with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def is_temporary(self) -> bool:
        return self.status in (403, 429) or self.status >= 500


class View:
    """The current objects of all namespaces."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self._objects: dict[str, Objects] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._changed_at: dict[str, float] = {}
        self._events: dict[str, Counter[str]] = defaultdict(Counter)
        self._listed = dict.fromkeys(API_OF, False)
        self.removed: set[str] = set()
        """The UIDs of the objects whose removal was seen."""

    def objects(self, namespace: str) -> Objects:
        return self._objects.setdefault(namespace, Objects())

    def changed_at(self, namespace: str) -> float:
        """The time of the last change in the namespace, on the clock of the event loop."""
        return self._changed_at.get(namespace, 0.0)

    def events(self, namespace: str) -> Counter[str]:
        """The number of watch events in the namespace so far, by resource."""
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

    async def synced(self) -> None:
        while not all(self._listed.values()):
            await asyncio.sleep(0.02)

    async def follow(self, plural: str) -> None:
        """List and watch one resource until the task is cancelled."""
        while True:
            try:
                await self._list_and_watch(plural)
            except (aiohttp.ClientError, OSError, TimeoutError, Refused, msgspec.DecodeError, KeyError):
                await asyncio.sleep(RETRY_S)

    async def _list_and_watch(self, plural: str) -> None:
        path = f"{self.url}{API_OF[plural]}/{plural}"
        async with self.session.get(path) as answer:
            if answer.status != 200:
                raise Refused(answer.status, await answer.text())
            page = _decode(await answer.read())
        self._replace(plural, page["items"])
        self._listed[plural] = True
        watch = {"watch": "1", "resourceVersion": page["metadata"]["resourceVersion"]}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self.session.get(path, params=watch, timeout=limits) as answer:
            while line := await answer.content.readline():
                event = _decode(line)
                if event["type"] == "ERROR":
                    return
                self._apply(plural, event["type"], event["object"])

    def _replace(self, plural: str, items: list[Json]) -> None:
        for objects in self._objects.values():
            objects[plural].clear()
        for item in items:
            self.objects(item["metadata"]["namespace"])[plural][item["metadata"]["name"]] = item
        for namespace in self._objects:
            self._touch(namespace)

    def _apply(self, plural: str, type_: str, item: Json) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        objects = self.objects(namespace)
        self._events[namespace][plural] += 1
        if type_ == "DELETED":
            self.removed.add(item["metadata"]["uid"])
            objects[plural].pop(name, None)
        else:
            objects[plural][name] = item
        self._touch(namespace)

    def _touch(self, namespace: str) -> None:
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
        return await self._shown(plural, await self._send("POST", self._path(plural), body))

    async def patch(self, plural: str, name: str, change: Json | list[Json], *, subresource: str = "") -> Json:
        """Apply a JSON merge patch, or a JSON patch if `change` is a list."""
        path = "/".join(filter(None, (self._path(plural), name, subresource)))
        content_type = STEPS if isinstance(change, list) else MERGE
        return await self._shown(plural, await self._send("PATCH", path, change, content_type=content_type))

    async def delete(self, plural: str, name: str, propagation: str = "Background") -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        uid = self.objects[plural][name]["metadata"]["uid"]
        await self._send("DELETE", f"{self._path(plural)}/{name}", options)

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

    def _path(self, plural: str) -> str:
        return f"{API_OF[plural]}/namespaces/{self.namespace}/{plural}"

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
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        async with self.view.session.request(method, self.view.url + path, data=data, headers=headers) as answer:
            content = await answer.read()
            if answer.status >= 400:
                raise Refused(answer.status, content.decode(errors="replace"))
            found: Json = _decode(content)
            return found


@asynccontextmanager
async def open_view(plane: ControlPlane) -> AsyncIterator[View]:
    """Follow all resources while the block runs."""
    async with admin_session(plane) as session:
        view = View(session, plane.url)
        following = [asyncio.create_task(view.follow(plural), name=f"view-{plural}") for plural in API_OF]
        try:
            async with asyncio.timeout(30):
                await view.synced()
            yield view
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


@asynccontextmanager
async def admin_session(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the client certificate of the administrator."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    limits = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(connector=connector, timeout=limits, read_bufsize=LINE_LIMIT) as session:
        yield session
