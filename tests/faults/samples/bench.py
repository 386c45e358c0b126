"""What all samples share: a control plane, a simulator, a view, and the controller's configuration."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import aiohttp
from msgspec import Struct
from msgspec.structs import replace

from controller.config.settings import Config
from controller.preflight import checks
from controller.preflight.rollout_strategy import RolloutStrategy
from controller.runtime.execute import refusals
from informers.http import client
from informers.watch import reflector
from sandbox.controlplane import ControlPlane
from tests.faults.proxy.upstream import Upstream, open_upstream
from tests.faults.samples.view import View, viewing
from tests.release import pod, settings

REQUEST_TIMEOUT_S = 6.0
IDLE_TIMEOUT_S = 8.0
REFUSED_AGAIN_S = 3.0
"""The first wait before a refused write is tried again."""

FLAGS = (
    *("--no-leader-elect", "--mode", "standalone", "--disruption-budgets"),
    *("--metrics-bind-address", "0", "--health-probe-bind-address", "0"),
)


class Bench(Struct, frozen=True, kw_only=True):
    """The shared parts. `token` belongs to the account of the chart's release."""

    plane: ControlPlane
    view: View
    upstream: Upstream
    config: Config
    token: str
    directory: Path

    def config_for(self, namespace: str, kubeconfig: Path) -> Config:
        return replace(self.config, watch_namespaces=(namespace,), kubeconfig=str(kubeconfig))


async def _unchecked(*_: object, **__: object) -> None:
    """Replaces the checks before the controller's start. The real checks send as many requests as the rest of a run, so
    they are left out.
    """


async def _changes_running_vms(self: RolloutStrategy) -> None:
    """Replaces the read of KubeVirt's rollout strategy: as before the first answer, KubeVirt changes running VMs."""


def new_namespace() -> str:
    return f"f-{uuid.uuid4().hex[:10]}"


@asynccontextmanager
async def open_bench(plane: ControlPlane, directory: Path) -> AsyncIterator[Bench]:
    """Open what the runs share. While the block runs, the timeouts of requests and watches and the waits are short.

    So a request that hangs, or a watch that stalls, costs seconds instead of minutes.
    """
    config = settings(plane, *FLAGS)
    token = pod(plane, *FLAGS).token
    limits = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=2.0)
    with (
        mock.patch.object(client, "DEFAULT_TIMEOUT", limits),
        mock.patch.object(client, "REQUEST_TIMEOUT_S", REQUEST_TIMEOUT_S),
        mock.patch.object(reflector, "IDLE_TIMEOUT_S", IDLE_TIMEOUT_S),
        mock.patch.object(refusals, "FIRST_WAIT_S", REFUSED_AGAIN_S),
        mock.patch.object(checks, "check", _unchecked),
        mock.patch.object(RolloutStrategy, "read", _changes_running_vms),
    ):
        async with (
            viewing(plane.kubeconfig) as view,
            open_upstream(plane.url, plane.ca) as upstream,
        ):
            yield Bench(
                plane=plane,
                view=view,
                upstream=upstream,
                config=config,
                token=token,
                directory=directory,
            )
