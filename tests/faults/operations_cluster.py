"""What all runs share: a control plane, clients, the audit log, and controllers in this process.

A controller talks to the API server through a `Wire`. A crash first cuts its wire, so that no further byte passes, and
then cancels the controller's task.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import ssl
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
import yaml

from controller import app
from controller.config.settings import Config
from sandbox.audit import AuditRecord
from sandbox.controlplane import ControlPlane
from tests.faults.observer import Observer, observing
from tests.release import pod, settings

WRITES = ("create", "update", "patch", "delete", "deletecollection")
AGENT = b'"userAgent":"vmherd/'
CONFLICT = 409
REFUSES_CREATES = "test.vmherd.dev/refuses-creates"
"""In a namespace with this label, a policy refuses all creates of VMs."""

REGISTRATION = "admissionregistration.k8s.io/v1"
TAIL_S = 0.1
STARTED_WITHIN_S = 60.0

_log: contextvars.ContextVar[list[dict[str, Any]] | None] = contextvars.ContextVar("log", default=None)


class Answer(msgspec.Struct, frozen=True):
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
    """An administrator's client, directly at the API server. An error status is an answer and no exception."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data else {}
        async with self._session.request(method, self._url + path, data=data, headers=headers) as response:
            text = await response.read()
        try:
            document = json.loads(text)
        except ValueError:
            document = {"message": text.decode(errors="replace")}
        return Answer(response.status, document)

    async def get(self, path: str) -> Answer:
        return await self.send("GET", path)

    async def merge(self, path: str, change: Any) -> Answer:
        return await self.send("PATCH", path, change, "application/merge-patch+json")

    async def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list, sorted by name."""
        answer = await self.get(path)
        assert answer.ok, answer.message
        return sorted(answer.document["items"], key=lambda item: item["metadata"]["name"])


class AuditTail:
    """Reads the audit log while it grows, and keeps the controllers' writes by namespace."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = log.stat().st_size
        self._decode = msgspec.json.Decoder(AuditRecord).decode
        self._writes: defaultdict[str, list[AuditRecord]] = defaultdict(list)

    async def run(self) -> None:
        while True:
            self.read()
            await asyncio.sleep(TAIL_S)

    def read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._position)
            new, end, _rest = log.read().rpartition(b"\n")
        self._position += len(new) + len(end)
        for line in new.splitlines():
            if AGENT in line:
                record = self._decode(line)
                if record.verb in WRITES and record.resource != "events" and record.namespace:
                    self._writes[record.namespace].append(record)

    def writes(self, namespace: str) -> list[AuditRecord]:
        """The writes of controllers in a namespace, without Events."""
        return self._writes[namespace]


class Wire:
    """A TCP proxy between one controller and the API server. It can be cut, or hold back what the server sends."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._pipes: set[_End] = set()
        self._server: asyncio.Server | None = None
        self.was_cut = False

    async def open(self) -> int:
        """Listen, and return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Cut all connections and accept no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Reset all connections. Writes that the server has received may still happen."""
        self.was_cut = True
        for end in tuple(self._pipes):
            end.abort()

    async def stall(self, seconds: float) -> None:
        """Hold back what the server sends, then deliver it."""
        servers = [end for end in self._pipes if isinstance(end, _Upstream)]
        for end in servers:
            end.pause()
        await asyncio.sleep(seconds)
        for end in servers:
            end.resume()


class _End(asyncio.Protocol):
    """One of the two connections of a pipe."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.transport: Any = None
        self.peer: _End | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._wire._pipes.add(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire._pipes.discard(self)
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()


class _Upstream(_End):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        assert self.peer is not None
        if self.peer.transport.is_closing():
            transport.abort()
        else:
            self.peer.transport.resume_reading()


class _Client(_End):
    """The connection from the controller. This object also opens the connection to the server."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.pause_reading()
        self.peer = _Upstream(self._wire)
        self.peer.peer = self
        self._opening = asyncio.get_running_loop().create_task(self._open(self.peer))

    async def _open(self, upstream: _End) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: upstream, "127.0.0.1", self._wire._upstream)
        except OSError:
            self.abort()


class Controller:
    """A controller in this process, for one namespace, with its own wire and log."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.lines: list[dict[str, Any]] = []
        self.wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self.starts = 0
        self._seen = 0

    async def start(self, *, wait: bool = True) -> None:
        self.starts += 1
        self.wire = Wire(self._cluster.port)
        port = await self.wire.open()
        config = self._cluster.config_for(self._namespace, port, self.starts)
        context = contextvars.copy_context()
        seen = len(self.lines)
        context.run(_log.set, self.lines)
        self._task = asyncio.get_running_loop().create_task(app.serve(config, asyncio.Event()), context=context)
        self._seen = seen
        if wait:
            await self.working()

    async def working(self) -> None:
        """Wait until the workers run. If the controller ended because its first requests were cut, start it again, as
        the kubelet does.
        """
        async with asyncio.timeout(STARTED_WITHIN_S):
            while not any(line["event"] == "working" for line in self.lines[self._seen :]):
                if self.ended and not (self.wire is not None and self.wire.was_cut):
                    return
                if self.ended:
                    await self.crash()
                    await self.start(wait=False)
                await asyncio.sleep(0.02)

    async def crash(self) -> None:
        """Stop the controller like a power failure: close its connections, then cancel its task."""
        if self.wire is not None:
            await self.wire.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()
        self._task = self.wire = None

    async def restart(self) -> None:
        await self.crash()
        await self.start()

    @property
    def ended(self) -> str:
        """Why the controller ended by itself, or ""."""
        if self._task is None or not self._task.done():
            return ""
        return "cancelled" if self._task.cancelled() else repr(self._task.exception() or "returned")

    def errors(self) -> list[str]:
        """The log lines of level error."""
        return [str(line) for line in self.lines if line["level"] in ("error", "critical")]


class Cluster:
    """A control plane with a simulator, and what the runs on it share."""

    def __init__(self, plane: ControlPlane, api: Api, audit: AuditTail, directory: Path) -> None:
        self.api = api
        self.audit = audit
        self.observer: Observer | None = None
        self.port = urlsplit(plane.url).port or 0
        self._plane = plane
        self._directory = directory
        self._token = pod(plane).token
        self._config = settings(plane, "--no-leader-elect")
        self._numbers = iter(range(10**9))

    async def install_policy(self) -> None:
        """Create the policy for namespaces with the label `REFUSES_CREATES`, unless an earlier run has created it."""
        create = {"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
        matches = {"resourceRules": [{**create, "resources": ["virtualmachines"]}]}
        policy = {"matchConstraints": matches, "validations": [{"expression": "false", "message": "no new VMs"}]}
        selector = {"namespaceSelector": {"matchLabels": {REFUSES_CREATES: "true"}}}
        binding = {"policyName": "refuse", "validationActions": ["Deny"], "matchResources": selector}
        for kind, spec in (("Policy", policy), ("PolicyBinding", binding)):
            body = {"apiVersion": REGISTRATION, "kind": f"ValidatingAdmission{kind}", "metadata": {"name": "refuse"}}
            plural = "policies" if kind == "Policy" else "policybindings"
            path = f"/apis/{REGISTRATION}/validatingadmission{plural}"
            answer = await self.api.send("POST", path, {**body, "spec": spec})
            assert answer.ok or answer.code == CONFLICT, answer.message

    def config_for(self, namespace: str, port: int, start: int) -> Config:
        """The chart's configuration for one namespace. The API server's address is this port."""
        path = self._directory / f"{namespace}-{start}.kubeconfig"
        self._plane.write_kubeconfig(path, "vmherd", token=self._token)
        document = yaml.safe_load(path.read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        path.write_text(json.dumps(document))
        return msgspec.structs.replace(
            self._config,
            kubeconfig=str(path),
            watch_namespaces=(namespace,),
            metrics_bind_address=None,
            health_probe_bind_address=None,
        )

    async def new_namespace(self, prefix: str) -> str:
        name = f"{prefix}-{next(self._numbers)}-{uuid.uuid4().hex[:6]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        answer = await self.api.send("POST", "/api/v1/namespaces", body)
        assert answer.ok, answer.message
        return name


def _keep(_logger: Any, _method: str, event: dict[str, Any]) -> Any:
    lines = _log.get()
    if lines is not None:
        lines.append(event)
    raise structlog.DropEvent


@asynccontextmanager
async def open_cluster(plane: ControlPlane, directory: Path) -> AsyncIterator[Cluster]:
    """Open the clients. While the block runs, the controllers' log lines go to the lists of their controllers."""
    user = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]
    context = ssl.create_default_context(cafile=str(plane.ca))
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _keep],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    try:
        connector = aiohttp.TCPConnector(ssl=context, limit=50)
        async with aiohttp.ClientSession(connector=connector) as session:
            cluster = Cluster(plane, Api(session, plane.url), AuditTail(plane.audit_log), directory)
            async with observing(plane.kubeconfig, plane.audit_log) as observer, asyncio.TaskGroup() as group:
                cluster.observer = observer
                await cluster.install_policy()
                tail = group.create_task(cluster.audit.run())
                yield cluster
                tail.cancel()
    finally:
        structlog.reset_defaults()
