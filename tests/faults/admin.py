"""A client with the administrator's permissions, directly at the API server."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from msgspec import Struct

MERGE, STEPS = "application/merge-patch+json", "application/json-patch+json"
LINE_LIMIT = 2**26
"""The longest line of a watch, in bytes."""


class Answer(Struct, frozen=True):
    """The status code of a response, and its JSON document."""

    code: int
    document: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.code < 400

    @property
    def message(self) -> str:
        return str(self.document.get("message", ""))


class Api:
    """Requests with JSON bodies. An error status is an answer and no exception."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data else {}
        async with self.session.request(method, self.url + path, data=data, headers=headers) as response:
            text = await response.read()
        try:
            document = json.loads(text)
        except ValueError:
            document = {"message": text.decode(errors="replace")}
        return Answer(response.status, document)

    async def get(self, path: str) -> Answer:
        return await self.send("GET", path)

    async def merge(self, path: str, change: Any) -> Answer:
        return await self.send("PATCH", path, change, MERGE)

    async def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list, sorted by name."""
        answer = await self.get(path)
        assert answer.ok, answer.message
        return sorted(answer.document["items"], key=lambda item: item["metadata"]["name"])


@asynccontextmanager
async def admin_api(kubeconfig: Path, *, limit: int = 0, within_s: float = 60.0) -> AsyncIterator[Api]:
    """A client with this kubeconfig's certificate. It has at most `limit` connections; 0 means any number."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    connector = aiohttp.TCPConnector(ssl=context, limit=limit)
    timeout = aiohttp.ClientTimeout(total=within_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=LINE_LIMIT) as session:
        yield Api(session, cluster["server"])
