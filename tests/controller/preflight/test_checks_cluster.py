"""On a real API server, the controller refuses to start and tells the reason."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller.access import Permission, missing_permissions
from controller.config.settings import Config
from controller.preflight.checks import StartupError, check
from controller.preflight.permissions import permissions_needed
from informers.http.client import ApiClient, open_client
from informers.http.configuration import load_credentials
from sandbox.controlplane import ControlPlane
from tests import rbac
from tests.cluster import Kubectl
from tests.command_line import parse

SETS = "virtualmachineinstancereplicasets"
POOLS = "virtualmachinepools"
IN_FORCE_WITHIN_S = 60.0


def wall_clock() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    async with open_client(await load_credentials(str(kubeconfig)), user_agent="vmherd-tests") as client:
        yield client


@pytest.fixture
def herder(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> tuple[str, Path]:
    name = f"herder-{namespace}"
    return name, control_plane.write_kubeconfig(tmp_path / "kubeconfig", name)


def settings(namespace: str, *argv: str) -> Config:
    return parse(["--leader-election-namespace", namespace, *argv], {})


Allow = Callable[[Config, Callable[[Permission], bool]], Awaitable[None]]


@pytest.fixture
def allow(kubectl: Kubectl, namespace: str, herder: tuple[str, Path]) -> AsyncIterator[Allow]:
    """Grant the user the permissions in `wanted` that the configuration needs, and wait until they are in force."""
    name, kubeconfig = herder

    async def given(config: Config, wanted: Callable[[Permission], bool]) -> None:
        granted = tuple(filter(wanted, permissions_needed(config)))
        kubectl.apply(*rbac.roles(granted, name=name, subject=rbac.user(name)))
        async with connected(kubeconfig) as client, asyncio.timeout(IN_FORCE_WITHIN_S):
            while await missing_permissions(client, granted):
                await asyncio.sleep(0.05)

    yield given
    kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")


@pytest.mark.cluster
@pytest.mark.parametrize("scope", ["everywhere", "one namespace"])
async def test_the_listed_permissions_are_enough_to_start(scope, allow, herder, namespace):
    config = settings(namespace, *(["--watch-namespaces", namespace] if scope == "one namespace" else []))
    await allow(config, lambda _: True)
    async with connected(herder[1]) as client:
        await check(client, config, now=wall_clock)


@pytest.mark.cluster
async def test_missing_permissions_are_reported_with_the_name_of_the_user(allow, herder, namespace):
    config = settings(namespace)
    await allow(config, lambda permission: permission.verb != "delete" and permission.subresource != "status")
    async with connected(herder[1]) as client:
        with pytest.raises(StartupError) as caught:
            await check(client, config, now=wall_clock)
    remedy = f"grant it to {herder[0]} with a role"
    assert str(caught.value).splitlines() == [
        f"missing permission: patch {SETS}.kubevirt.io/status in all namespaces; {remedy}",
        f"missing permission: patch {POOLS}.pool.kubevirt.io/status in all namespaces; {remedy}",
        f"missing permission: delete virtualmachineinstances.kubevirt.io in all namespaces; {remedy}",
        f"missing permission: delete controllerrevisions.apps in all namespaces; {remedy}",
        f"missing permission: delete virtualmachines.kubevirt.io in all namespaces; {remedy}",
    ]
