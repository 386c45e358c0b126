"""What an administrator sees and does: the current objects of each namespace, and the users' requests.

The view watches the API server itself, without the fault proxy. It uses plain aiohttp and no code of `informers/`. So
it shows the truth while the controller sees something else.
"""

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.faults.proxy.upstream import abandon
from tests.faults.resources import KIND_OF, path_of
from tests.faults.samples.objects import Json, Objects

SHOWN_WITHIN_S = 60.0
MERGE, STEPS = "application/merge-patch+json", "application/json-patch+json"
LINE_LIMIT = 2**26
"""The longest line of a watch, in bytes."""


class Refused(Exception):
    """The API server answers a user's request with an error status."""


class View:
    """The current objects of all namespaces."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.removed: set[str] = set()
        """The UIDs of the objects whose removal was seen."""

        self._objects: dict[str, Objects] = defaultdict(Objects)
        self._changed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._changed_at: dict[str, float] = {}

    def objects(self, namespace: str) -> Objects:
        return self._objects[namespace]

    def changed_at(self, namespace: str) -> float:
        """The time of the last change in the namespace, on the clock of the event loop."""
        return self._changed_at.get(namespace, 0.0)

    async def until(self, namespace: str, holds: Callable[[Objects], bool], *, within_s: float) -> bool:
        """Wait until a condition holds. Return False if it does not hold in time."""
        try:
            async with asyncio.timeout(within_s):
                while not holds(self.objects(namespace)):
                    self._changed[namespace].clear()
                    await self._changed[namespace].wait()
        except TimeoutError:
            return False
        return True

    async def follow(self, plural: str) -> None:
        """Watch a resource of all namespaces. The control plane of the samples is new and never fails itself."""
        timeout = aiohttp.ClientTimeout(total=None)
        query = "watch=1&resourceVersion=0&timeoutSeconds=3600"
        async with self.session.get(f"{path_of(plural)}?{query}", timeout=timeout) as answer:
            answer.raise_for_status()
            try:
                async for line in answer.content:
                    self._take(plural, json.loads(line))
            finally:
                abandon(answer)

    def _take(self, plural: str, event: Json) -> None:
        item = event["object"]
        metadata = item["metadata"]
        items = self.objects(metadata["namespace"])[plural]
        metadata.pop("managedFields", None)
        if event["type"] == "DELETED":
            self.removed.add(metadata["uid"])
            items.pop(metadata["name"], None)
        else:
            items[metadata["name"]] = item
        self._changed_at[metadata["namespace"]] = asyncio.get_running_loop().time()
        self._changed[metadata["namespace"]].set()


@asynccontextmanager
async def viewing(kubeconfig: Path) -> AsyncIterator[View]:
    """Watch a control plane while the block runs. `kubeconfig` has the administrator's permissions."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=60.0)
    async with aiohttp.ClientSession(
        cluster["server"], connector=connector, timeout=timeout, read_bufsize=LINE_LIMIT
    ) as session:
        view = View(session)
        watches = [asyncio.create_task(view.follow(plural), name=f"view-{plural}") for plural in KIND_OF]
        try:
            yield view
            assert not any(watch.done() for watch in watches), "a watch of the view has ended"
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)


class User:
    """A user with all permissions in one namespace. `objects` are the current objects of the namespace."""

    def __init__(self, view: View, namespace: str) -> None:
        self.view = view
        self.namespace = namespace

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
        data, headers = json.dumps(body).encode(), {"Content-Type": content_type}
        async with self.view.session.request(method, path, data=data, headers=headers) as answer:
            text = await answer.text(errors="replace")
        if answer.status >= 400:
            raise Refused(f"{answer.status}: {text}")
        return dict(json.loads(text))
