"""What all runs share: a control plane, clients, an observer, and controllers in this process.

A controller talks to the API server through a fault proxy. A crash first ends its connections, so that no further byte
passes, and then cancels the controller's task.
"""

import asyncio
import contextvars
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from controller import app
from controller.config.settings import Config
from sandbox.controlplane import ControlPlane
from tests.faults.judge.observer import Observer, observing
from tests.faults.proxy.proxy import FaultProxy
from tests.faults.proxy.upstream import Upstream, open_upstream
from tests.release import pod, settings

CONFLICT = 409
REFUSES_CREATES = "test.vmherd.dev/refuses-creates"
"""In a namespace with this label, a policy refuses all creates of VMs."""

REGISTRATION = "admissionregistration.k8s.io/v1"
STARTED_WITHIN_S = 60.0

_log: contextvars.ContextVar[list[dict[str, Any]] | None] = contextvars.ContextVar("log", default=None)


class Controller:
    """A controller in this process, for one namespace, with its own proxy and log."""

    def __init__(self, cluster: "Cluster", namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.lines: list[dict[str, Any]] = []
        self._proxy: FaultProxy | None = None
        self._task: asyncio.Task[None] | None = None
        self._starts = 0
        self._seen = 0
        self._was_cut = False

    async def start(self, *, wait: bool = True) -> None:
        self._starts += 1
        self._was_cut = False
        self._proxy = FaultProxy(self._cluster.upstream, tls=False)
        await self._proxy.start()
        config = self._cluster.config_for(self._proxy, f"{self._namespace}-{self._starts}", self._namespace)
        context = contextvars.copy_context()
        context.run(_log.set, self.lines)
        self._seen = len(self.lines)
        self._task = asyncio.get_running_loop().create_task(app.serve(config, asyncio.Event()), context=context)
        if wait:
            await self.working()

    async def working(self) -> None:
        """Wait until the workers run. If the controller ended because its first requests were cut, start it again, as
        the kubelet does.
        """
        async with asyncio.timeout(STARTED_WITHIN_S):
            while not any(line["event"] == "working" for line in self.lines[self._seen :]):
                if self.ended and not self._was_cut:
                    return
                if self.ended:
                    await self.crash()
                    await self.start(wait=False)
                await asyncio.sleep(0.02)

    def cut(self) -> None:
        """Reset all connections. Writes that the server has received may still happen."""
        if self._proxy is not None:
            self._was_cut = True
            self._proxy.reset_connections()

    async def stall(self, seconds: float) -> None:
        """Hold back what the server sends, then deliver it."""
        if (proxy := self._proxy) is not None:
            proxy.hold()
            await asyncio.sleep(seconds)
            proxy.release()

    async def crash(self) -> None:
        """Stop the controller like a power failure: close its connections, then cancel its task."""
        if self._proxy is not None:
            await self._proxy.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()
        self._task = self._proxy = None

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

    def __init__(self, plane: ControlPlane, observer: Observer, upstream: Upstream, directory: Path) -> None:
        self.api = observer.api
        self.observer = observer
        self.upstream = upstream
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

    def config_for(self, proxy: FaultProxy, name: str, namespace: str) -> Config:
        """The chart's configuration for one namespace, and for the API server behind this proxy."""
        return msgspec.structs.replace(
            self._config,
            kubeconfig=str(proxy.write_kubeconfig(self._directory / f"{name}.kubeconfig", self._token)),
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
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _keep],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    try:
        async with (
            observing(plane.kubeconfig, plane.audit_log) as observer,
            open_upstream(plane.url, plane.ca) as upstream,
        ):
            cluster = Cluster(plane, observer, upstream, directory)
            await cluster.install_policy()
            yield cluster
    finally:
        structlog.reset_defaults()
